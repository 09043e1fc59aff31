//! Our own engine as a device elsewhere: an agent that does what lines say, and a wire. Time is
//! virtual: it goes on where the runner waits.

use std::collections::VecDeque;
use std::net::{IpAddr, Ipv6Addr};
use std::time::Duration;

use roxe_device::address_handle::AddressVector;
use roxe_device::gid_table::GidEntry;
use roxe_device::memory::Registration;
use roxe_device::protection_domain::Pd;
use roxe_device::{
    CqId, Device, HostMemory as _, HostRegion, Limits, QueuePairInit, ReceiveCapacity, VecMemory,
    VerbError,
};
use roxe_sim::script::Site;
use roxe_transport::qp_state::{AttributeMask, QpState, ServiceType};
use roxe_transport::work::{
    AccessFlags, Attributes, Completion, Data, Extra, PostError, ReceiveRequest, Remote,
    SendOperation, SendRequest, Sge,
};
use roxe_transport::{Outlet, SendCapacity};
use roxe_wire::{
    AckTimeout, Frame, FrameTemplate, Gid, GidType, ICRC_LEN, ImmDt, Instant, IpPair, LKey,
    MacAddress, Mtu, PKey, Path, Psn, QKey, Qpn, RKey, RawFrame, RnrTimer, Room, icrc,
};

pub(super) struct Engine {
    device: Device<VecMemory>,
    now: Instant,
    pd: Option<Pd>,
    cqs: Vec<CqId>,
    regions: Vec<Option<(LKey, HostRegion)>>,
    qps: Vec<(Qpn, ServiceType, AddressVector)>,
    /// Frames on their way to the runner.
    pub(super) wire: VecDeque<Vec<u8>>,
    /// What is done to each frame on its way from the device; whether it arrives.
    pub(super) spoil: fn(&mut Vec<u8>) -> bool,
    /// Lines that the agent refuses, by their first word: the number of errno.
    pub(super) refuses: Option<(&'static str, u32)>,
    /// What an agent answers that is none: in place of what lines with this first word get.
    pub(super) answers: Vec<(&'static str, String)>,
    /// Frames that come as soon as there is a queue pair.
    pub(super) strays: Vec<Vec<u8>>,
    /// A frame that comes while the agent is asked for events.
    pub(super) late: Option<Vec<u8>>,
    /// How long each answer takes.
    pub(super) slow: Duration,
    /// Lines that were told to wait long.
    pub(super) waited: Vec<String>,
    /// The interfaces on which groups were joined.
    pub(super) joined: Vec<String>,
}

/// The words of a line.
struct Words<'a>(&'a str);

impl<'a> Words<'a> {
    fn text(&self, key: &str) -> Option<&'a str> {
        let mut pairs = self.0.split(' ').filter_map(|word| word.split_once('='));
        pairs.find(|(known, _)| *known == key).map(|(_, value)| value)
    }

    fn number(&self, key: &str) -> Option<u64> {
        self.text(key).map(number)
    }

    fn or(&self, key: &str, otherwise: u64) -> u64 {
        self.number(key).unwrap_or(otherwise)
    }
}

fn number(text: &str) -> u64 {
    match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).expect("digits"),
        None => text.parse().expect("a number"),
    }
}

/// The numbers of errno that libibverbs would give.
struct Errno(u32);

impl From<VerbError> for Errno {
    fn from(_: VerbError) -> Self {
        Self(22)
    }
}

impl From<PostError> for Errno {
    fn from(error: PostError) -> Self {
        Self(if matches!(error, PostError::QueueFull { .. }) { 12 } else { 22 })
    }
}

impl Engine {
    pub(super) fn new(address: IpAddr) -> Self {
        let mut limits = Limits::DEFAULT;
        limits.port_mtu = Mtu::B4096;
        let mut device = Device::new(limits, 1, VecMemory::new());
        let entry = GidEntry { gid: Gid::from_ip(address), gid_type: GidType::RoceV2, vlan: None };
        device.add_gid(entry).expect("an address");
        Self {
            device,
            now: Instant::ZERO,
            pd: None,
            cqs: Vec::new(),
            regions: Vec::new(),
            qps: Vec::new(),
            wire: VecDeque::new(),
            spoil: |_| true,
            refuses: None,
            answers: Vec::new(),
            strays: Vec::new(),
            late: None,
            slow: Duration::ZERO,
            waited: Vec::new(),
            joined: Vec::new(),
        }
    }

    /// Lets the device do what is due, and puts on the wire what it sends.
    fn turn(&mut self) {
        while self.device.poll_timeout().is_some_and(|at| at <= self.now) {
            self.device.handle_timeout(self.now);
        }
        let mut room = vec![0; 4096 + 128];
        loop {
            let outlet = Outlet { room: Room::whole(&mut room), elide: false };
            let Some(transmit) = self.device.poll_transmit(self.now, outlet) else { return };
            let packet = &room[..transmit.packet.len + ICRC_LEN];
            let paths = self.device.paths();
            let addressing = paths.get(transmit.path).expect("a path").addressing;
            let template = FrameTemplate::new(&Path {
                ethernet: (MacAddress([2; 6]), MacAddress([4; 6])),
                vlan: None,
                ip: IpPair::new(addressing.source, addressing.destination).expect("a family"),
                traffic_class: addressing.traffic_class,
                hop_limit: addressing.hop_limit,
                flow_label: addressing.flow_label,
                source_port: addressing.source_port,
            });
            let mut frame = vec![0; template.headers_len()];
            let cover = template.write(packet.len() as u16, 0, &mut frame).expect("it fits");
            let start = frame.len();
            frame.extend_from_slice(packet);
            assert!(icrc::seal(&cover, Room::whole(&mut frame[start..])));
            if (self.spoil)(&mut frame) {
                self.wire.push_back(frame);
            }
        }
    }

    fn act(&mut self, verb: &str, words: &Words<'_>) -> Result<String, Errno> {
        let missing = || Errno(22);
        Ok(match verb {
            "open" => String::new(),
            "gids" => {
                let gid = self.device.gids().get(0).expect("the first").gid;
                let address = match gid.to_ip() {
                    IpAddr::V4(v4) => v4.to_ipv6_mapped(),
                    IpAddr::V6(v6) => v6,
                };
                format!(" n=3 gid=0,fe80::1,1,eth0 gid=1,fe80::1,2,eth0 gid=0,{address},2,eth1")
            }
            "pd" => {
                self.pd = Some(self.device.alloc_pd()?);
                " pd=0".to_owned()
            }
            "cq" => {
                let cq = self.device.create_completion_queue(words.or("depth", 1) as u32)?;
                self.cqs.push(cq);
                format!(" cq={}", self.cqs.len() - 1)
            }
            "mr" => {
                let len = words.or("len", 0);
                let host = self.device.host_mut().add(vec![0; len as usize]);
                let va = words.or("iova", 0x7000_0000 + 0x10_0000 * self.regions.len() as u64);
                let access = AccessFlags::from_bits(words.or("access", 1) as u32);
                let (pd, access) = (self.pd.expect("a pd"), access.expect("rights"));
                let what = Registration { pd, host, va, len, access };
                let key = self.device.register_memory(&what)?;
                self.regions.push(Some((key, host)));
                let at = self.regions.len() - 1;
                format!(" mr={at} va=0x{va:x} lkey=0x{0:x} rkey=0x{0:x}", key.0)
            }
            "peek" => {
                let (_, host) = self.region(words)?;
                let mut bytes = vec![0; words.or("len", 0) as usize];
                let read = self.device.host().read(host, words.or("off", 0), &mut bytes);
                read.map_err(|_| missing())?;
                let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
                format!(" hex={hex}")
            }
            "poke" => {
                let (_, host) = self.region(words)?;
                let bytes = unhex(words.text("hex").unwrap_or_default());
                let written = self.device.host_mut().write(host, words.or("off", 0), &bytes);
                written.map_err(|_| missing())?;
                String::new()
            }
            "qp" => self.create(words)?,
            "modify" => {
                self.modify(words)?;
                String::new()
            }
            "query" => {
                let (qpn, ..) = self.qps[words.or("qp", 0) as usize];
                format!(" state={}", self.device.query_queue_pair(qpn)?.state.name())
            }
            "recv" => {
                let (qpn, ..) = self.qps[words.or("qp", 0) as usize];
                let sges = pieces(words);
                let request = ReceiveRequest { wr_id: words.or("id", 0), sges: &sges };
                self.device.post_receive(qpn, &request)?;
                String::new()
            }
            "send" => {
                self.send_request(words)?;
                String::new()
            }
            "poll" => {
                let cq = self.cqs[words.or("cq", 0) as usize];
                let mut room = vec![Completion::BLANK; 16];
                let count = self.device.poll_completions(cq, &mut room);
                let told: String = room[..count].iter().map(show).collect();
                format!(" n={count}{told}")
            }
            // It hears of no group: what counts is where its kernel is to.
            "attach" => String::new(),
            "join" => {
                self.joined.extend(words.text("netdev").map(str::to_owned));
                String::new()
            }
            "event" => match self.device.poll_event() {
                Some(_) => " n=1 event=3 qp=0".to_owned(),
                None => " n=0".to_owned(),
            },
            "destroy" => {
                let at = words.number("mr").ok_or_else(missing)? as usize;
                let (key, _) = self.region(words)?;
                self.device.deregister_memory(key)?;
                self.regions[at] = None;
                String::new()
            }
            _ => return Err(Errno(38)),
        })
    }

    fn region(&self, words: &Words<'_>) -> Result<(LKey, HostRegion), Errno> {
        let at = words.or("mr", u64::MAX) as usize;
        self.regions.get(at).copied().flatten().ok_or(Errno(22))
    }

    fn create(&mut self, words: &Words<'_>) -> Result<String, Errno> {
        let service = match words.text("type") {
            Some("uc") => ServiceType::Uc,
            Some("ud") => ServiceType::Ud,
            _ => ServiceType::Rc,
        };
        let cq = |key: &str| self.cqs[words.or(key, 0) as usize];
        let qpn = self.device.create_queue_pair(&QueuePairInit {
            service,
            pd: self.pd.expect("a pd"),
            send_cq: cq("cq"),
            receive_cq: cq("rcq"),
            srq: None,
            send: SendCapacity { depth: 16, max_sge: 4, max_inline: 64 },
            receive: ReceiveCapacity { depth: 16, max_sge: 4 },
            signal_all: words.or("sigall", 0) != 0,
        })?;
        let nobody = AddressVector::new(0, Gid::from_ip(Ipv6Addr::LOCALHOST.into()));
        self.qps.push((qpn, service, nobody));
        Ok(format!(" qp={} qpn=0x{:x}", self.qps.len() - 1, qpn.get()))
    }

    fn modify(&mut self, words: &Words<'_>) -> Result<(), Errno> {
        let at = words.or("qp", 0) as usize;
        let (qpn, ..) = self.qps[at];
        let info = self.device.query_queue_pair(qpn)?;
        let state = words.text("state").map(|name| {
            QpState::ALL.into_iter().find(|state| state.name() == name).expect("a state")
        });
        if let Some(gid) = words.text("dgid") {
            let address = gid.parse::<Ipv6Addr>().expect("an address");
            let gid = Gid::from_ip(Gid::from_ip(address.into()).to_ip());
            self.qps[at].2 = AddressVector::new(words.or("sgid", 0) as u32, gid);
        }
        let old = info.attributes;
        let min_rnr = old.min_rnr_timer.code();
        // Bits as `ibv_qp_attr_mask` has them.
        let bits = [
            ("access", 3),
            ("pkey", 4),
            ("port", 5),
            ("qkey", 6),
            ("dgid", 7),
            ("mtu", 8),
            ("timeout", 9),
            ("retry", 10),
            ("rnr_retry", 11),
            ("rq_psn", 12),
            ("rd", 13),
            ("min_rnr", 15),
            ("sq_psn", 16),
            ("dest_rd", 17),
            ("dest", 20),
        ];
        let said = bits.into_iter().filter(|(word, _)| words.text(word).is_some());
        let mask = said.fold(0, |mask, (_, bit)| mask | 1 << bit);
        let or = |key: &str, old: u32| words.or(key, old.into()) as u32;
        let values = Attributes {
            dest_qp: Qpn::new(or("dest", old.dest_qp.get())),
            path_mtu: Mtu::from_bytes(or("mtu", old.path_mtu.bytes())).expect("an MTU"),
            access: AccessFlags::from_bits(or("access", old.access.bits())).expect("rights"),
            q_key: QKey(or("qkey", old.q_key.0)),
            p_key: PKey::DEFAULT,
            sq_psn: Psn::new(or("sq_psn", old.sq_psn.get())),
            rq_psn: Psn::new(or("rq_psn", old.rq_psn.get())),
            max_rd_atomic: or("rd", old.max_rd_atomic.into()) as u8,
            max_dest_rd_atomic: or("dest_rd", old.max_dest_rd_atomic.into()) as u8,
            timeout: AckTimeout::new(or("timeout", old.timeout.code().into()) as u8).expect("one"),
            retry_cnt: or("retry", old.retry_cnt.into()) as u8,
            rnr_retry: or("rnr_retry", old.rnr_retry.into()) as u8,
            min_rnr_timer: RnrTimer::from_bits(or("min_rnr", min_rnr.into()) as u8),
            ..old
        };
        let (to, vector) = (state.unwrap_or(info.state), self.qps[at].2);
        let given = AttributeMask::from_bits(mask);
        Ok(self.device.modify_queue_pair(qpn, to, given, &values, Some(&vector))?)
    }

    fn send_request(&mut self, words: &Words<'_>) -> Result<(), Errno> {
        let (qpn, ..) = self.qps[words.or("qp", 0) as usize];
        let remote = Remote { va: words.or("va", 0), r_key: RKey(words.or("rkey", 0) as u32) };
        let imm = ImmDt(words.or("imm", 0) as u32);
        let operation = match words.text("op") {
            Some("send") => SendOperation::Send,
            Some("send_imm") => SendOperation::SendWithImm(imm),
            Some("write") => SendOperation::Write(remote),
            Some("write_imm") => SendOperation::WriteWithImm(remote, imm),
            Some("read") => SendOperation::Read(remote),
            Some("faa") => SendOperation::FetchAdd { remote, add: words.or("add", 0) },
            Some("cas") => SendOperation::CompareSwap {
                remote,
                compare: words.or("compare", 0),
                swap: words.or("swap", 0),
            },
            _ => return Err(Errno(38)),
        };
        let flags = words.text("flags").unwrap_or_default();
        let (sges, bytes) = (pieces(words), unhex(words.text("bytes").unwrap_or_default()));
        let inline = flags.contains('i');
        let request = SendRequest {
            wr_id: words.or("id", 0),
            operation,
            data: if inline { Data::Inline(&bytes) } else { Data::Regions(&sges) },
            signaled: flags.contains('s'),
            solicited: flags.contains('e'),
            fence: flags.contains('f'),
            target: None,
        };
        Ok(self.device.post_send(qpn, &request)?)
    }
}

impl Site for Engine {
    fn ask(&mut self, line: &str) -> Result<String, String> {
        let (verb, rest) = line.split_once(' ').unwrap_or((line, ""));
        self.now = self.now + self.slow;
        if verb == "event" {
            self.wire.extend(self.late.take());
        }
        if let Some((_, answer)) = self.answers.iter().find(|(of, _)| *of == verb) {
            return Ok(answer.clone());
        }
        if let Some((_, number)) = self.refuses.filter(|(refused, _)| *refused == verb) {
            return Ok(format!("error {number} {verb}: no"));
        }
        let said = self.act(verb, &Words(rest));
        self.turn();
        Ok(match said {
            Ok(words) => format!("ok{words}"),
            Err(Errno(number)) => format!("error {number} {verb}: why"),
        })
    }

    fn send(&mut self, frame: &mut [u8]) -> Result<(), String> {
        if let Ok(frame) = Frame::parse(RawFrame::ethernet(frame))
            && !matches!(frame.check_udp_checksum(), Some(Err(_)))
        {
            self.device.handle_packet(self.now, frame.received());
        }
        self.turn();
        Ok(())
    }

    fn receive(&mut self, patience: Duration) -> Result<Option<Vec<u8>>, String> {
        if !self.qps.is_empty() {
            self.wire.extend(self.strays.drain(..));
        }
        if self.wire.is_empty() {
            let until = self.now + patience;
            let timer = self.device.poll_timeout().filter(|at| *at <= until);
            self.now = timer.unwrap_or(until).max(self.now);
            self.turn();
        }
        Ok(self.wire.pop_front())
    }

    fn now(&mut self) -> Instant {
        self.now
    }

    fn waits_long(&mut self, line: &str) {
        self.waited.push(line.to_owned());
    }
}

fn pieces(words: &Words<'_>) -> Vec<Sge> {
    let piece = |text: &str| {
        let mut parts = text.split(':').map(number);
        let mut part = || parts.next().expect("three parts");
        Sge { va: part(), len: part() as u32, l_key: LKey(part() as u32) }
    };
    words.text("raw").map(|raw| raw.split(',').map(piece).collect()).unwrap_or_default()
}

fn unhex(digits: &str) -> Vec<u8> {
    let digit = |at: usize| u8::from_str_radix(&digits[at..at + 2], 16).expect("two digits");
    (0..digits.len()).step_by(2).map(digit).collect()
}

/// A completion as agents tell it.
fn show(of: &Completion) -> String {
    let opcode = of.opcode.code();
    let (flags, extra) = match of.extra {
        Extra::Imm(imm) => (2, imm.0),
        Extra::Invalidated(key) => (8, key.0),
        Extra::None => (0, 0),
    };
    let Completion { wr_id, status, byte_len, qpn, source_qp, .. } = of;
    // `IBV_WC_GRH` means something for datagrams only, and rxe always has it.
    format!(
        " wc={wr_id},{},{opcode},{byte_len},{},0x{extra:x},0x{:x},0x{:x}",
        status.code(),
        flags | 1,
        source_qp.get(),
        qpn.get()
    )
}
