//! From the command line to what is done: defaults, and what does not go together, as in perftest.

use std::time::Duration;

use roxe_verbs::{Limits, Mtu, ServiceType};

use crate::perf::arguments::{AtomicType, Kind, PerfArguments, Test};
use crate::side_channel::Failure;

/// What messages do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verb {
    Send,
    Write,
    Read,
    Atomic(AtomicType),
}

impl Verb {
    /// As perftest prints it.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Send => "Send",
            Self::Write => "RDMA_Write",
            Self::Read => "RDMA_Read",
            Self::Atomic(_) => "Atomic",
        }
    }

    /// Whether answers carry data: then a request takes a resource of the responder.
    pub(crate) const fn fetches(self) -> bool {
        matches!(self, Self::Read | Self::Atomic(_))
    }
}

/// What of it is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Metric {
    Bandwidth,
    Latency,
}

/// How long it goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Extent {
    /// So many messages of each queue pair.
    Messages(u64),
    /// For this time, of which `margin` at both ends is not measured.
    Time { whole: Duration, margin: Duration },
}

/// What is done.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    /// What of it both sides must have the same.
    pub(crate) kind: Kind,
    pub(crate) verb: Verb,
    pub(crate) metric: Metric,
    pub(crate) service: ServiceType,
    pub(crate) is_client: bool,
    /// Bytes of a message; of all sizes the greatest.
    pub(crate) size: u32,
    /// Whether all powers of two up to it are measured.
    pub(crate) all: bool,
    /// Whether somebody chose the size.
    size_chosen: bool,
    pub(crate) extent: Extent,
    pub(crate) mtu: Mtu,
    pub(crate) queue_pairs: u32,
    pub(crate) bidirectional: bool,
    pub(crate) tx_depth: u32,
    pub(crate) rx_depth: u32,
    pub(crate) use_srq: bool,
    pub(crate) post_list: u32,
    pub(crate) cq_mod: u32,
    pub(crate) out_reads: u16,
    pub(crate) inline_size: u32,
    pub(crate) events: bool,
    pub(crate) peak: bool,
    pub(crate) verify: bool,
    /// Size of the buffer that short messages are spread over, as both sides agreed.
    pub(crate) cycle_buffer: u32,
    /// At multiples of so many bytes they begin.
    pub(crate) cache_line: u32,
}

/// Sizes up to here are measured with `-a`.
const GREATEST: u32 = 8 << 20;

/// Messages above this are completed each, or a bandwidth is not what it seems.
const LARGE: u32 = 8192;

/// With more messages than this the greatest bandwidth is not looked for.
const MANY: u64 = 20_000;

/// Receives of UC and UD, whose senders do not wait for any.
const MOST_RECEIVES: u64 = 16_000;

/// Requests that may be outstanding while latencies are measured: completions are not waited for.
pub(crate) const LATENCY_DEPTH: u32 = 64;

/// READs and atomics that a queue pair of anybody's may have outstanding.
pub(crate) const MOST_READS: u16 = 128;

impl Plan {
    /// What the command line asks for.
    pub(crate) fn new(arguments: &PerfArguments, limits: &Limits) -> Result<Self, Failure> {
        let (verb, metric) = match arguments.test {
            Test::SendBw => (Verb::Send, Metric::Bandwidth),
            Test::SendLat => (Verb::Send, Metric::Latency),
            Test::WriteBw => (Verb::Write, Metric::Bandwidth),
            Test::WriteLat => (Verb::Write, Metric::Latency),
            Test::ReadBw => (Verb::Read, Metric::Bandwidth),
            Test::ReadLat => (Verb::Read, Metric::Latency),
            Test::AtomicBw => (Verb::Atomic(arguments.atomic_type), Metric::Bandwidth),
            Test::AtomicLat => (Verb::Atomic(arguments.atomic_type), Metric::Latency),
        };
        let bandwidth = metric == Metric::Bandwidth;
        let service = arguments.connection;
        let messages = arguments.iters.unwrap_or(match verb {
            Verb::Write if bandwidth => 5000,
            _ => 1000,
        });
        refuse(arguments, verb, metric, messages)?;
        refuse_unlike_port(arguments, limits)?;
        let extent = match arguments.duration {
            None => Extent::Messages(messages),
            Some(seconds) => {
                let margin = arguments.margin.unwrap_or(seconds / 4);
                if seconds <= margin.saturating_mul(2) {
                    return Err(Failure::usage("-D has to be more than twice -f"));
                }
                let [whole, margin] = [seconds, margin].map(Duration::from_secs);
                Extent::Time { whole, margin }
            }
        };
        let at_most = |depth: u32| match extent {
            Extent::Messages(messages) => u64::from(depth).min(messages) as u32,
            Extent::Time { .. } => depth,
        };
        let size = match verb {
            Verb::Atomic(_) => 8,
            _ if arguments.all => GREATEST,
            _ => arguments.size.unwrap_or(if bandwidth { 65536 } else { 2 }),
        };
        let tx_depth = at_most(arguments.tx_depth.unwrap_or(if bandwidth { 128 } else { 1 }));
        let every = match extent {
            Extent::Messages(messages) => messages.min(MOST_RECEIVES) as u32,
            Extent::Time { .. } => 512,
        };
        let ready = if service == ServiceType::Rc { at_most(512) } else { every };
        let cq_mod = match arguments.cq_mod {
            Some(cq_mod) => cq_mod,
            None if arguments.post_list > 1 => arguments.post_list,
            None => {
                let large = size > LARGE && service != ServiceType::Ud;
                if large && !arguments.all && !arguments.events { 1 } else { 100 }
            }
        };
        let wanted = arguments.outs.unwrap_or(MOST_READS);
        let most =
            MOST_READS.min(limits.max_qp_rd_atom.into()).min(limits.max_qp_init_rd_atom.into());
        let many = matches!(extent, Extent::Messages(messages) if messages <= MANY);
        let plan = Self {
            kind: Kind { test: arguments.test, service, both: arguments.bidirectional },
            verb,
            metric,
            service,
            is_client: arguments.host.is_some(),
            size,
            all: arguments.all,
            size_chosen: arguments.size.is_some(),
            extent,
            mtu: arguments.mtu.unwrap_or(limits.port_mtu),
            queue_pairs: arguments.qp,
            bidirectional: arguments.bidirectional,
            tx_depth,
            rx_depth: arguments.rx_depth.map_or(ready, at_most),
            use_srq: arguments.use_srq,
            post_list: arguments.post_list,
            cq_mod: cq_mod.min(tx_depth),
            out_reads: if verb.fetches() { wanted.min(most) } else { 1 },
            inline_size: arguments.inline_size,
            events: arguments.events,
            peak: many && !arguments.no_peak,
            verify: arguments.verify,
            cycle_buffer: 4096,
            cache_line: 64,
        };
        plan.refuse_long_datagrams()?;
        plan.refuse_beyond(limits)?;
        Ok(plan)
    }

    /// Requests that each send and each receive queue of ours takes.
    pub(crate) fn depths(&self) -> [u32; 2] {
        let sends = match self.metric {
            Metric::Bandwidth => self.tx_depth,
            Metric::Latency => LATENCY_DEPTH,
        };
        [sends, if self.receives() { self.rx_depth } else { 1 }]
    }

    /// Receives of the queue that all queue pairs share, if they do.
    pub(crate) fn shared_depth(&self) -> Option<u32> {
        (self.use_srq && self.receives()).then(|| self.rx_depth.max(self.queue_pairs))
    }

    /// Entries of the one completion queue: all requests of all queue pairs at once.
    pub(crate) fn completions(&self) -> u64 {
        self.depths().map(u64::from).iter().sum::<u64>() * u64::from(self.queue_pairs)
    }

    /// Says which flag asks for longer queues than the adapter has.
    fn refuse_beyond(&self, limits: &Limits) -> Result<(), Failure> {
        let [sends, receives] = self.depths();
        let (queue_pairs, most, most_cqe) =
            (self.queue_pairs, limits.max_qp_wr, limits.max_cqe.into());
        let why = if queue_pairs > limits.max_qp {
            format!("-q {queue_pairs}: the adapter has {} queue pairs", limits.max_qp)
        } else if sends > most {
            format!("-t {sends}: a queue of the adapter has {most} requests")
        } else if let Some(shared) = self.shared_depth().filter(|it| *it > limits.max_srq_wr) {
            let most = limits.max_srq_wr;
            format!("-r {shared}: a shared receive queue of the adapter has {most} receives")
        } else if receives > most {
            format!("-r {receives}: a queue of the adapter has {most} receives")
        } else if self.completions() > most_cqe {
            let each = if self.receives() { "-t and -r" } else { "-t" };
            format!(
                "-q {queue_pairs} times {each} are {} completions: a completion queue of the \
                 adapter has {most_cqe}",
                self.completions()
            )
        } else {
            return Ok(());
        };
        Err(Failure::Usage(why))
    }

    /// A datagram is one packet.
    fn refuse_long_datagrams(&self) -> Result<(), Failure> {
        let most = self.mtu.bytes();
        if self.service == ServiceType::Ud && self.size > most && self.size_chosen {
            return Err(Failure::usage(format_args!(
                "a datagram of {} bytes does not fit the path MTU, {most}: -s {most}, or raise \
                 the MTU of both interfaces",
                self.size
            )));
        }
        Ok(())
    }

    /// Takes the path MTU that both ports have. A datagram is one packet.
    pub(crate) fn agree_mtu(&mut self, peers: Mtu) -> Result<(), Failure> {
        self.mtu = self.mtu.min(peers);
        self.refuse_long_datagrams()?;
        if self.service == ServiceType::Ud {
            self.size = self.size.min(self.mtu.bytes());
        }
        Ok(())
    }

    /// The test by its name.
    pub(crate) fn name(&self) -> String {
        let verb = match self.verb {
            Verb::Send => "send",
            Verb::Write => "write",
            Verb::Read => "read",
            Verb::Atomic(_) => "atomic",
        };
        let metric = match self.metric {
            Metric::Bandwidth => "bw",
            Metric::Latency => "lat",
        };
        format!("{verb}_{metric}")
    }

    /// The sizes to be measured, in turn.
    pub(crate) fn sizes(&self) -> impl Iterator<Item = u32> {
        let all = self.all;
        let size = self.size;
        (1..=size.ilog2())
            .map(|power| 1 << power)
            .filter(move |_| all)
            .chain((!all).then_some(size))
    }

    /// Whether each side waits for as many messages as it was told: another number at the peer
    /// leaves one of them waiting.
    pub(crate) fn counts_with_peer(&self) -> bool {
        self.verb == Verb::Send || (self.verb == Verb::Write && self.metric == Metric::Latency)
    }

    /// Whether this side has receives.
    pub(crate) fn receives(&self) -> bool {
        let latency = self.metric == Metric::Latency;
        self.verb == Verb::Send && (!self.is_client || self.bidirectional || latency)
    }
}

/// What does not go together, in a sentence each.
fn refuse(
    arguments: &PerfArguments,
    verb: Verb,
    metric: Metric,
    messages: u64,
) -> Result<(), Failure> {
    let PerfArguments { connection, size, qp, post_list, inline_size, cq_mod, .. } = *arguments;
    let (bandwidth, latency) = (metric == Metric::Bandwidth, metric == Metric::Latency);
    let (uc, ud) = (connection == ServiceType::Uc, connection == ServiceType::Ud);
    let send = verb == Verb::Send;
    let atomic = matches!(verb, Verb::Atomic(_));
    #[rustfmt::skip]
    let refusals: [(bool, &str); 20] = [
        (uc && verb.fetches(),              "UC has neither READ nor atomics: -c RC"),
        (ud && !send,                       "UD has SEND only: -c RC"),
        (atomic && size.is_some_and(|it| it != 8), "an atomic is of 8 bytes"),
        (atomic && arguments.all,           "an atomic is of 8 bytes: no -a"),
        (latency && qp > 1,                 "latency is measured with one queue pair"),
        (latency && arguments.bidirectional, "latency goes there and back anyway: no -b"),
        (latency && arguments.no_peak,      "-N is for bandwidth"),
        (latency && post_list > 1,          "latency is measured request by request: no -l"),
        (bandwidth && arguments.histogram,  "-H is for latency"),
        (bandwidth && arguments.unsorted,   "-U is for latency"),
        (arguments.events && verb == Verb::Write, "WRITE has no events: who is written to is not told"),
        (arguments.events && arguments.duration.is_some(), "-D goes on without sleeping: no -e"),
        (inline_size > 0 && verb.fetches(), "READ and atomics have nothing to send inline"),
        (arguments.outs.is_some() && !verb.fetches(), "-o is for READ and atomics"),
        (arguments.rx_depth.is_some() && !send, "only SEND has receives"),
        (arguments.use_srq && !send,        "only SEND has receives, shared or not"),
        (post_list > 1 && arguments.duration.is_none() && !messages.is_multiple_of(post_list.into()),
                                            "-n has to be a multiple of -l"),
        (post_list > 1 && post_list > arguments.tx_depth.unwrap_or(128),
                                            "-l may not be above -t"),
        (post_list > 1 && cq_mod.is_some_and(|it| post_list % it != 0),
                                            "-l has to be a multiple of -Q"),
        (arguments.use_srq && arguments.rx_depth.is_some_and(|it| it < qp),
                                            "a shared receive queue needs a receive for each queue pair"),
    ];
    match refusals.iter().find(|(refused, _)| *refused) {
        Some((_, what)) => Err(Failure::usage(what)),
        None => Ok(()),
    }
}

/// What the port does not have.
fn refuse_unlike_port(arguments: &PerfArguments, limits: &Limits) -> Result<(), Failure> {
    let PerfArguments { inline_size, mtu, .. } = *arguments;
    let most_inline = limits.max_inline_data;
    if inline_size > most_inline {
        return Err(Failure::usage(format_args!("{most_inline} bytes are the most for -I")));
    }
    match mtu {
        Some(mtu) if mtu > limits.port_mtu => Err(Failure::usage(format_args!(
            "a path MTU of {mtu} does not fit the port, which has {}: -m {0}, or raise the \
             interface's MTU",
            limits.port_mtu
        ))),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    #[derive(clap::Parser)]
    struct Line {
        #[command(flatten)]
        arguments: PerfArguments,
    }

    fn refusal(words: &str, limits: &Limits) -> Option<String> {
        let words = ["perf"].into_iter().chain(words.split_whitespace());
        let Line { arguments } = Line::parse_from(words);
        match Plan::new(&arguments, limits) {
            Ok(_) => None,
            Err(Failure::Usage(why)) => Some(why),
            Err(other) => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_flag_that_goes_beyond_the_adapter_is_named_with_its_limit() {
        let mut limits = Limits::DEFAULT;
        (limits.max_qp, limits.max_cqe) = (8, 1000);
        (limits.max_qp_wr, limits.max_srq_wr) = (200, 100);
        let cases = [
            ("write_bw -q 9 -t 8", "-q 9: the adapter has 8 queue pairs"),
            ("write_bw -t 201", "-t 201: a queue of the adapter has 200 requests"),
            ("send_bw -r 201", "-r 201: a queue of the adapter has 200 receives"),
            (
                "send_bw -r 101 --use-srq",
                "-r 101: a shared receive queue of the adapter has 100 receives",
            ),
            (
                "write_bw -q 8",
                "-q 8 times -t are 1032 completions: a completion queue of the adapter has 1000",
            ),
        ];
        for (words, why) in cases {
            assert_eq!(refusal(words, &limits).as_deref(), Some(why), "{words}");
            assert_eq!(refusal(words, &Limits::DEFAULT), None, "{words}");
        }
        for words in ["write_bw -q 7", "send_bw -r 100 --use-srq", "send_lat -r 100"] {
            assert_eq!(refusal(words, &limits), None, "{words}");
        }
    }

    #[test]
    fn a_datagram_too_long_is_refused_before_the_peer_is_known() {
        let mut limits = Limits::DEFAULT;
        limits.port_mtu = Mtu::B1024;
        let why = refusal("send_bw -c UD -s 1025", &limits).unwrap();
        assert!(why.starts_with("a datagram of 1025 bytes does not fit the path MTU, 1024"));
        for words in ["send_bw -c UD -s 1024", "send_bw -c UD", "send_bw -c UD -a"] {
            assert_eq!(refusal(words, &limits), None, "{words}");
        }
    }
}
