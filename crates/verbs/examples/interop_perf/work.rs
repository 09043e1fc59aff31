//! What is measured, by which program, and what of its answer is the figure.

use std::net::Ipv4Addr;

use crate::XDP;

/// Who works.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Adapter {
    Rxe,
    Xdp,
    Udp,
}

impl Adapter {
    pub(crate) const ALL: [Self; 3] = [Self::Rxe, Self::Xdp, Self::Udp];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Rxe => "rxe",
            Self::Xdp => "xdp",
            Self::Udp => "udp",
        }
    }

    /// What a guest does so that it is there, and alone: two cannot have UDP port 4791, which
    /// rxe has for as long as its module is loaded.
    pub(crate) const fn comes(self) -> &'static str {
        match self {
            Self::Rxe => {
                "[ -d /sys/module/rdma_rxe ] || insmod /lib/modules/rdma_rxe.ko\n\
                 rdma link show rxe0 >/dev/null 2>&1 || rdma link add rxe0 type rxe netdev eth0"
            }
            Self::Xdp | Self::Udp => {
                "rdma link del rxe0 2>/dev/null\n\
                 [ ! -d /sys/module/rdma_rxe ] || busybox rmmod rdma_rxe"
            }
        }
    }

    /// Which of roxe's it is.
    fn device(self, here: Ipv4Addr) -> String {
        match self {
            // At both ends is such a port, so that packets may be joined.
            Self::Udp => format!("udp:{here},gso=on"),
            _ => XDP.to_owned(),
        }
    }
}

/// A row: the same work for each adapter.
pub(crate) struct Work {
    pub(crate) name: &'static str,
    /// A program of perftest without its `ib_`, and what both ends are told.
    line: &'static str,
    pub(crate) metric: Metric,
}

/// What the figure is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Metric {
    /// The average, in Mb/s.
    Bandwidth,
    /// Messages, in thousands a second.
    Rate,
    /// The median, in µs.
    Latency,
}

#[rustfmt::skip]
pub(crate) const ALL: &[Work] = &[
    row("WRITE 64 KiB, path MTU 1024",         "write_bw -m 1024 -s 65536 -n 200",   Metric::Bandwidth),
    row("WRITE 64 KiB, path MTU 2048",         "write_bw -m 2048 -s 65536 -n 200",   Metric::Bandwidth),
    row("SEND 64 KiB, path MTU 1024",          "send_bw -m 1024 -s 65536 -n 200",    Metric::Bandwidth),
    row("SEND 64 KiB, path MTU 2048",          "send_bw -m 2048 -s 65536 -n 200",    Metric::Bandwidth),
    row("READ 64 KiB, path MTU 1024",          "read_bw -m 1024 -s 65536 -n 200",    Metric::Bandwidth),
    row("READ 64 KiB, path MTU 2048",          "read_bw -m 2048 -s 65536 -n 200",    Metric::Bandwidth),
    row("SEND 64 KiB, path MTU 1024, events",  "send_bw -m 1024 -s 65536 -n 200 -e", Metric::Bandwidth),
    row("8-byte WRITEs",                       "write_bw -m 1024 -s 8 -n 6000",      Metric::Rate),
    row("8-byte SENDs",                        "send_bw -m 1024 -s 8 -n 6000",       Metric::Rate),
    row("8-byte SENDs, events",                "send_bw -m 1024 -s 8 -n 6000 -e",    Metric::Rate),
    row("8-byte SEND, one way, events",        "send_lat -m 1024 -s 8 -n 1000 -e",   Metric::Latency),
    row("8-byte READ, there and back, events", "read_lat -m 1024 -s 8 -n 1000 -e",   Metric::Latency),
];

const fn row(name: &'static str, line: &'static str, metric: Metric) -> Work {
    Work { name, line, metric }
}

/// The longest that one end works, in seconds.
pub(crate) const LONGEST_S: u64 = 40;

impl Work {
    /// Whether its name has all of these words.
    pub(crate) fn has(&self, words: &[String]) -> bool {
        words.iter().all(|word| self.name.contains(word.as_str()))
    }

    /// What a guest with this address runs.
    pub(crate) fn line(
        &self,
        adapter: Adapter,
        here: Ipv4Addr,
        port: u16,
        server: Option<Ipv4Addr>,
    ) -> String {
        let own = match adapter {
            Adapter::Rxe => {
                let [a, b, c, d] = here.octets();
                // Which of its addresses this is, the kernel decides.
                let gid = format!(
                    "$(cd /sys/class/infiniband/rxe0/ports/1/gids; \
                     grep -l ffff:{a:02x}{b:02x}:{c:02x}{d:02x} * 2>/dev/null | head -n 1)"
                );
                format!("ib_{} -d rxe0 -x {gid} -F", self.line)
            }
            Adapter::Xdp | Adapter::Udp => {
                format!("roxe perf {} -d {}", self.line, adapter.device(here))
            }
        };
        let server = server.map_or_else(String::new, |it| format!(" {it}"));
        // An emulated host answers late.
        format!("timeout {LONGEST_S} {own} -u 18 -p {port}{server}")
    }
}

impl Metric {
    pub(crate) const fn unit(self) -> &'static str {
        match self {
            Self::Bandwidth => "Mb/s",
            Self::Rate => "k/s",
            Self::Latency => "µs",
        }
    }

    pub(crate) const fn less_is_better(self) -> bool {
        matches!(self, Self::Latency)
    }

    /// The figure out of perftest's table, whose last line it is: of bandwidth size, messages, MB/s
    /// at most and on average, and millions of messages a second; of latency size, trips, and µs at
    /// least, at most and typically.
    pub(crate) fn read(self, said: &str) -> Option<f64> {
        let is_row = |line: &&str| line.trim_start().starts_with(|it: char| it.is_ascii_digit());
        let line = said.lines().rev().find(is_row)?;
        let column =
            |at: usize| line.split_whitespace().nth(at).and_then(|it| it.parse::<f64>().ok());
        let figure = match self {
            // perftest's MB are 2^20 bytes.
            Self::Bandwidth => column(3)? * 8.0 * 1.048_576,
            Self::Rate => column(4)? * 1000.0,
            Self::Latency => column(4)?,
        };
        (figure.is_finite() && figure > 0.0).then_some(figure)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_figure_is_the_average_the_rate_or_the_median_of_perftest() {
        let bandwidth = "-----\n #bytes     #iterations    BW peak[MB/sec]    BW average[MB/sec]   \
                         MsgRate[Mpps]\n 65536      200              14.96              13.85  \
                         \t\t   0.000222\n-----\n";
        let close = |figure: Option<f64>, to: f64| (figure.unwrap() - to).abs() < 0.01;
        assert!(close(Metric::Bandwidth.read(bandwidth), 116.18));
        assert!(close(Metric::Rate.read(bandwidth), 0.222));
        let latency = " #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]\n \
                       8       1000         320.58        6258.27      567.60   \t       896.67\n";
        assert!(close(Metric::Latency.read(latency), 567.6));
        // What perftest prints when its clock is not right.
        assert_eq!(Metric::Bandwidth.read(&bandwidth.replace("13.85", "inf")), None);
        assert_eq!(Metric::Bandwidth.read(&bandwidth.replace("13.85", "0.00")), None);
        assert_eq!(Metric::Latency.read("Couldn't connect to 10.10.0.2:18515\n"), None);
    }

    #[test]
    fn all_adapters_are_told_the_same() {
        let [here, there] = [2, 3].map(|it| Ipv4Addr::new(10, 10, 0, it));
        for work in ALL {
            for adapter in Adapter::ALL {
                let line = work.line(adapter, there, 20_001, Some(here));
                let told = format!("{} -d ", work.line);
                let rest = line.split_once(&told).expect(&line).1;
                assert!(rest.ends_with(" -u 18 -p 20001 10.10.0.2"), "{line}");
            }
        }
        let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        let rows = ALL.iter().filter(|work| work.has(&words("WRITE 1024")));
        assert_eq!(rows.count(), 1);
        assert!(ALL[0].line(Adapter::Rxe, here, 1, None).contains("grep -l ffff:0a0a:0002 "));
    }
}
