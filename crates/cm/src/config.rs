//! How long, how often, how many.

use std::time::Duration;

use roxe_wire::mad::cm::{Bits, CmTimeout};
use roxe_wire::{AckTimeout, Mtu, wait_4096_ns};

/// What an agent knows of its adapter, and its limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// The adapter's GUID: with it, a queue pair number means one queue pair in the whole network.
    pub ca_guid: u64,
    /// The largest path MTU that the port has room for.
    pub path_mtu: Mtu,
    /// How long the adapter may take to acknowledge a packet, encoded as an ACK timeout. Linux's
    /// software adapter says 15.
    pub ack_delay: CmTimeout,
    /// The most READs and atomics that a queue pair can answer at once.
    pub max_responder_resources: u8,
    /// The most READs and atomics that a queue pair can have under way.
    pub max_initiator_depth: u8,
    /// How long an application may think about a REQ or REP that comes again: what an MRA says.
    pub service_timeout: CmTimeout,
    /// Whether other agents hear what comes to the same addresses. Then messages of connections
    /// that are not here may be for them, and get no answer; of calls to services that nobody
    /// listens at here [`Event::Unserved`](crate::Event::Unserved) tells.
    pub shares_addresses: bool,
    /// The most connections, resolutions and questions at once, in all states. Beyond, calls fail
    /// and requests are refused.
    pub max_connections: usize,
}

impl Config {
    /// What Linux does, for an adapter with this GUID and port with this path MTU.
    pub const fn linux(ca_guid: u64, path_mtu: Mtu) -> Self {
        Self {
            ca_guid,
            path_mtu,
            ack_delay: CmTimeout::from_bits(15),
            max_responder_resources: 128,
            max_initiator_depth: 128,
            service_timeout: CmTimeout::from_bits(24),
            shares_addresses: false,
            max_connections: 1 << 16,
        }
    }
}

/// How long a connection request or a resolution waits for answers, and how often it asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// How long the other side may take to answer, and this one: `RDMA_CM` says 20, 4.3 s.
    pub response_timeout: CmTimeout,
    /// How often a message is repeated.
    pub max_retries: Bits<4>,
    /// How long a packet may be on its way: 4.096 µs × 2^code, `code` 0 ..= 31. Linux 6.1 says 18,
    /// 1.1 s; newer kernels 16.
    pub packet_lifetime: CmTimeout,
}

impl Timing {
    /// What Linux 6.1 uses: an answer is waited for 6.4 s, sixteen times.
    pub const LINUX: Self = Self {
        response_timeout: CmTimeout::from_bits(20),
        max_retries: Bits::new(15),
        packet_lifetime: CmTimeout::from_bits(18),
    };

    /// How long to wait for an answer: there, thought about, and back.
    //= BC-126
    pub(crate) fn answer_within(self) -> Duration {
        2 * self.packet_lifetime.duration() + self.response_timeout.duration()
    }
}

impl Default for Timing {
    fn default() -> Self {
        Self::LINUX
    }
}

/// The ACK timeout of a queue pair: two packet lifetimes and the ACK delay of the other side,
/// rounded up to a power of two. IBA vol 1 §12.7.34, as Linux computes it.
pub fn ack_timeout(packet_lifetime: CmTimeout, ack_delay: CmTimeout) -> AckTimeout {
    let there_and_back = packet_lifetime.code() + 1;
    let delay = ack_delay.code();
    let code = if there_and_back >= delay {
        there_and_back + u8::from(delay + 1 >= there_and_back)
    } else {
        delay + u8::from(there_and_back + 1 >= delay)
    };
    AckTimeout::new(code.min(31)).unwrap_or_default()
}

/// How long a connection stays in time wait: as long as a packet of it may be under way, which its
/// ACK timeout covers.
pub(crate) const fn time_wait(ack_timeout: AckTimeout) -> Duration {
    wait_4096_ns(ack_timeout.code())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ack_timeout_is_the_sum_rounded_up() {
        let code = |lifetime, delay| {
            let timeout = CmTimeout::from_bits;
            ack_timeout(timeout(lifetime), timeout(delay)).code()
        };
        assert_eq!(code(18, 15), 19, "as in captures of Linux 6.1");
        assert_eq!(code(16, 15), 17, "as in one of a newer kernel");
        assert_eq!(code(18, 18), 20);
        assert_eq!(code(14, 18), 18);
        assert_eq!(code(16, 18), 19);
        assert_eq!((code(31, 0), code(0, 31), code(31, 31)), (31, 31, 31));
    }

    #[test]
    fn linux_asks_again_after_six_seconds() {
        assert_eq!(Timing::LINUX.answer_within().as_millis(), 6442);
    }
}
