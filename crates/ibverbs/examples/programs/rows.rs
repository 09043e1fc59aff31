//! The rows: programs of the distribution, and in which ways they are asked.

/// A program, asked in a way.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    pub(crate) program: &'static str,
    /// What it is asked for, as the page says it.
    pub(crate) way: &'static str,
    /// The command lines of both sides, the server's first; a program that needs no other side has
    /// one. In braces stands what differs: `{gid}` is the index of an end's own address, `{server}`
    /// and `{client}` are their addresses, `{meeting}` is the server's for TCP; `{n}` and `{few}`
    /// say how often, `{patience}` what perftest is told where an end is slow; `{scratch}` is a
    /// file that nobody else writes.
    pub(crate) lines: Vec<String>,
    pub(crate) meet: Meet,
    pub(crate) is_ipv6: bool,
    /// How it ends where it cannot work, and why.
    pub(crate) refusal: Option<(&'static str, &'static str)>,
}

/// How a client finds its server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Meet {
    /// There is no client.
    Alone,
    /// Over TCP.
    Tcp,
    /// By the RDMA connection manager.
    Cm,
    /// The same, and the server goes on for ever: two clients come.
    CmForEver,
    /// In a group.
    Group,
}

const fn cm(way: Way, server: &'static str, client: &'static str) -> Connected {
    Connected { way, server, client, meet: Meet::Cm }
}

/// A row of programs that know the connection manager.
struct Connected {
    way: Way,
    server: &'static str,
    client: &'static str,
    meet: Meet,
}

type Way = &'static str;

const PINGPONGS: [&str; 4] =
    ["ibv_rc_pingpong", "ibv_uc_pingpong", "ibv_ud_pingpong", "ibv_srq_pingpong"];

/// A way that has `-6` has IPv6.
const EVERY_PINGPONG: &[&str] = &["", "-e", "-6"];
/// It looks at the first byte of each page.
const LOOKS: &[&str] = &["-c -s 65536", "-c -e -s 65536"];
const MTUS: &[&str] = &[
    "-m 256 -c -s 16384",
    "-m 512 -c -s 16384",
    "-m 1024 -c -s 16384",
    "-m 2048 -c -s 16384",
    "-m 4096 -c -s 16384",
];
/// A datagram is a page at most.
const UD_LOOKS: &[&str] = &["-c", "-c -e"];
const RC_PINGPONG: &[&str] = &["-N", "-N -e", "-t", "-o", "-o -P"];

/// perftest: of each operation those that have it. Without a limit on what is sent, unreliable
/// messages are lost where a host is too slow for them, and the other side waits for ever: those
/// are short.
#[rustfmt::skip]
const PERFTEST: &[(&[&str], &[&str])] = &[
    (&["ib_send_bw", "ib_send_lat", "ib_write_bw", "ib_write_lat", "ib_read_bw", "ib_read_lat", "ib_atomic_bw", "ib_atomic_lat"],
        &["", "-D 5", "-R", "-6"]),
    // It has no events for WRITE.
    (&["ib_send_bw", "ib_send_lat", "ib_read_bw", "ib_read_lat", "ib_atomic_bw", "ib_atomic_lat"],
        &["-e"]),
    (&["ib_send_bw", "ib_read_bw", "ib_atomic_bw"],
        &["-b -q 8 -e"]),
    (&["ib_send_bw", "ib_send_lat", "ib_write_bw", "ib_write_lat", "ib_read_bw", "ib_read_lat"],
        &["-a -n {few}"]),
    (&["ib_send_bw", "ib_write_bw", "ib_read_bw", "ib_atomic_bw"],
        &["-b", "-q 8", "-N", "-R -q 8"]),
    (&["ib_send_bw", "ib_send_lat"],
        &["--use-srq", "-c UC -s 2048", "-c UD", "-R -c UD"]),
    (&["ib_send_bw"],
        &["--use-srq -q 8", "-R --use-srq"]),
    (&["ib_write_bw", "ib_write_lat"],
        &["-c UC"]),
    (&["ib_send_bw", "ib_send_lat", "ib_write_bw", "ib_write_lat"],
        &["-I 64 -s 64"]),
    (&["ib_send_bw", "ib_write_bw", "ib_read_bw"],
        &["-m 256", "-m 512", "-m 1024", "-m 2048", "-m 4096"]),
    (&["ib_send_bw", "ib_write_bw"],
        &["-l 4"]),
    (&["ib_write_bw"],
        &["--mr_per_qp -q 8", "--report_gbits"]),
    (&["ib_atomic_bw", "ib_atomic_lat"],
        &["-A CMP_AND_SWAP"]),
];

#[rustfmt::skip]
const CONNECTED: &[Connected] = &[
    cm("-v -C 100",       "rping -s -v -C 100 -a {server}",         "rping -c -v -C 100 -a {server}"),
    cm("-v -V -S 5000",   "rping -s -v -V -S 5000 -C 50 -a {server}", "rping -c -v -V -S 5000 -C 50 -a {server}"),
    cm("-v -V -S 65000",  "rping -s -v -V -S 65000 -C 50 -a {server}", "rping -c -v -V -S 65000 -C 50 -a {server}"),
    cm("-q -V",           "rping -s -v -V -q -C 10 -a {server}",    "rping -c -v -V -q -C 10 -a {server}"),
    cm("-6 -V",           "rping -s -v -V -C 100 -a {server}",      "rping -c -v -V -C 100 -a {server}"),
    Connected { meet: Meet::CmForEver, ..cm("-P -V", "rping -s -v -V -P -a {server}", "rping -c -v -V -C 10 -a {server}") },
    cm("-c 5",            "ucmatose -b {server} -c 5",              "ucmatose -s {server} -c 5"),
    cm("-C 50 -S 4000",   "ucmatose -b {server} -C 50 -S 4000",     "ucmatose -s {server} -C 50 -S 4000"),
    cm("-m",              "ucmatose -m",                            "ucmatose -s {server} -m"),
    cm("-6",              "ucmatose -f ipv6 -b {server}",           "ucmatose -f ipv6 -s {server}"),
    cm("",                "udaddy -b {server}",                     "udaddy -s {server}"),
    // It waits for more than come.
    Connected { meet: Meet::CmForEver, ..cm("-c 40 -C 0", "udaddy -b {server} -c 100 -C 0", "udaddy -s {server} -c 40 -C 0") },
    cm("-c 3 -C 20",      "udaddy -b {server} -c 3 -C 20",          "udaddy -s {server} -c 3 -C 20"),
    Connected { meet: Meet::Group, ..cm("", "mckey -m 239.1.1.1 -b {server}", "mckey -s -m 239.1.1.1 -b {client}") },
    cm("",                "rdma_server",                            "rdma_client -s {server}"),
    Connected { meet: Meet::CmForEver, ..cm("-c 100", "cmtime -b {server} -c 100", "cmtime -s {server} -c 100") },
    Connected { meet: Meet::CmForEver, ..cm("", "rcopy",            "rcopy /proc/self/exe {server}:{scratch}") },
    cm("-S 4096",         "rstream -I 10 -C 20 -S 4096",            "rstream -s {server} -I 10 -C 20 -S 4096"),
    cm("-S 64 -T b",      "rstream -I 100 -C 1 -S 64 -T b",         "rstream -s {server} -I 100 -C 1 -S 64 -T b"),
    cm("-S 300000 -T v",  "rstream -I 3 -C 3 -S 300000 -T b -T v",  "rstream -s {server} -I 3 -C 3 -S 300000 -T b -T v"),
    cm("-T a",            "rstream -I 10 -C 20 -S 4096 -T a -T b",  "rstream -s {server} -I 10 -C 20 -S 4096 -T a -T b"),
    cm("-T r",            "rstream -I 10 -C 20 -S 4096 -T r",       "rstream -s {server} -I 10 -C 20 -S 4096 -T r"),
    cm("-6",              "rstream -b {server} -I 10 -C 20 -T b",   "rstream -s {server} -I 10 -C 20 -T b"),
    cm("-S 4096",         "riostream -I 10 -C 20 -S 4096",          "riostream -s {server} -I 10 -C 20 -S 4096"),
    cm("-S 300000 -T v",  "riostream -I 3 -C 3 -S 300000 -T b -T v", "riostream -s {server} -I 3 -C 3 -S 300000 -T b -T v"),
    cm("",                "udpong",                                 "udpong -s {server}"),
];

impl Row {
    /// All of them, in the order of the page.
    pub(crate) fn all() -> Vec<Self> {
        let alone = [("ibv_devices", ""), ("ibv_devinfo", "-v")].map(|(program, way)| Self {
            lines: vec![format!("{program} {way}")],
            ..Self::new(program, way, Meet::Alone)
        });
        let pingpongs = PINGPONGS.iter().flat_map(|&program| {
            let looks = if program.contains("_ud_") { [UD_LOOKS, &[]] } else { [LOOKS, MTUS] };
            let more = if program.contains("_rc_") { RC_PINGPONG } else { &[] };
            let ways = EVERY_PINGPONG.iter().chain(looks.into_iter().flatten()).chain(more);
            ways.map(move |way| Self::meeting(program, way))
        });
        let programs = PERFTEST[0].0.iter();
        let perftest = programs.flat_map(|&program| {
            let have = PERFTEST.iter().filter(move |(programs, _)| programs.contains(&program));
            have.flat_map(|(_, ways)| *ways).map(move |way| Self::meeting(program, way))
        });
        let connected = CONNECTED.iter().map(|Connected { way, server, client, meet }| {
            let program = server.split(' ').next().unwrap_or(server);
            let refusal = (program == "udpong").then_some(DATAGRAMS);
            let lines = [server, client].map(|line| (*line).to_owned()).to_vec();
            Self { lines, refusal, ..Self::new(program, way, *meet) }
        });
        alone.into_iter().chain(pingpongs).chain(perftest).chain(connected).collect()
    }

    fn new(program: &'static str, way: &'static str, meet: Meet) -> Self {
        let is_ipv6 = way.contains("-6");
        Self { program, way, lines: Vec::new(), meet, is_ipv6, refusal: None }
    }

    /// A program whose sides meet over TCP at the server's address, or with `-R` by the connection
    /// manager.
    pub(crate) fn meeting(program: &'static str, way: &'static str) -> Self {
        let asked = way.replace("-6", "");
        let by_cm = way.contains("-R");
        let line = if program.starts_with("ibv_") {
            format!("{program} -g {{gid}} -n {{n}} {asked}")
        } else {
            let own = if by_cm { "" } else { "-x {gid}" };
            let count = if way.contains("-n") || way.contains("-D") { "" } else { "-n {n}" };
            format!("{program} {own} -F {{patience}} {count} {asked}")
        };
        let meet = if by_cm { Meet::Cm } else { Meet::Tcp };
        let lines = vec![line.clone(), format!("{line} {{meeting}}")];
        Self { lines, ..Self::new(program, way, meet) }
    }

    /// How it is called.
    pub(crate) fn name(&self) -> String {
        format!("{} {}", self.program, self.way).trim_end().to_owned()
    }

    /// Packets that are lost are sent again.
    pub(crate) fn is_reliable(&self) -> bool {
        match self.program {
            // No message follows what the connection manager says.
            "udaddy" => self.way.contains("-C 0"),
            "mckey" | "udpong" => false,
            // Nobody waits for what is written.
            "ib_write_bw" => true,
            program => {
                let named = ["_uc_", "_ud_"].iter().any(|it| program.contains(it));
                !(named || self.way.contains("-c U"))
            }
        }
    }

    /// It sends some tens of packets at most.
    pub(crate) fn sends_few(&self) -> bool {
        match self.program {
            "rping" => ["-q", "-P"].iter().any(|way| self.way.contains(way)),
            program => ["ucmatose", "rdma_server"].contains(&program),
        }
    }

    /// It goes when it has what it waits for, though its peer may never hear of an acknowledgement.
    pub(crate) fn leaves_early(&self) -> bool {
        self.program.starts_with("ibv_") || self.program == "rdma_server"
    }

    /// What it reads comes in many packets.
    pub(crate) fn reads_much(&self) -> bool {
        let ways = ["-a", "-m"];
        self.program.starts_with("ib_read_") && ways.iter().any(|way| self.way.contains(way))
    }

    /// Its two completion queues tell by one channel, and it takes the first event for one of the
    /// queue that it waits for.
    pub(crate) fn may_take_the_wrong_event(&self) -> bool {
        self.program == "ib_send_lat" && self.way == "-e"
    }

    /// It measures, and reports.
    pub(crate) fn is_perftest(&self) -> bool {
        self.program.starts_with("ib_")
    }
}

/// What a program of rsockets for datagrams says here.
pub(crate) const DATAGRAMS: (&str, &str) = (
    "Operation not supported",
    "our librdmacm.so.1 has no rsockets of datagrams: `rsocket` with SOCK_DGRAM fails with \
     EOPNOTSUPP",
);
