//! What a queue pair does where the specification leaves it a choice, and where devices in the
//! field have made another one than ours.
//!
//! A peer is a device that we cannot change: to know that we get along with it, ours must be able
//! to behave like it. What arrives, and how requests complete that go well, never depends on
//! anything here.

use core::time::Duration;

use roxe_wire::NakCode;

/// How a queue pair behaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Conduct {
    /// MigReq in the BTH of everything it sends. Peers ignore it, or take a slower path without.
    pub mig_req: bool,
    /// A request asks for an acknowledgement when so many packets before it did not. `None` is a
    /// quarter of the window.
    pub ask_after: Option<u32>,
    /// So does the last packet of each message; else only of one behind which no other message
    /// follows at once and asks for both. Where that one cannot leave after all, the last packet is
    /// sent again and asks.
    pub asks_for_each_message: bool,
    /// When an acknowledgement that was asked for is sent.
    pub acknowledge: Acknowledge,
    /// Whether acknowledgements say how many receive buffers wait: end-to-end flow control. Not
    /// with a shared receive queue. IBA vol 1 §9.7.7.2
    pub grants_credits: bool,
    /// Whether a peer's credits hold back messages.
    pub obeys_credits: bool,
    /// The ACK timer runs so long at the least, whatever the attribute says.
    pub least_timeout: Duration,
    /// So many packets at the most are under way after the ACK timer ran out, until an answer
    /// comes. A receiver that is behind finds what was sent before it was slow, and not all of it
    /// again.
    pub window_after_timeout: u32,
    /// A request behind one that found no receive buffer is refused with a sequence NAK of its own.
    pub nak_after_rnr: bool,
    /// What refuses a message that does not fit its receive buffer.
    pub too_long: NakCode,
    /// A READ that is asked for again from its middle is answered as the rest of the first one, not
    /// with a First or Only of its own.
    pub resumes_reads: bool,
    /// A response that is missing within a READ is missed by the ACK timer only, not by the
    /// response behind it.
    pub misses_by_timer: bool,
}

/// When an acknowledgement that was asked for is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Acknowledge {
    /// When the device has room; it covers all that was carried out by then.
    AtOnce,
    /// One for each request that asks, whatever has been carried out since.
    Each,
    /// Once so many requests have asked, or the first of them has waited so long.
    Held {
        /// How many.
        requests: u8,
        /// How long.
        wait: Duration,
    },
}

impl Conduct {
    /// Ours.
    pub const DEFAULT: Self = Self {
        mig_req: true,
        ask_after: None,
        asks_for_each_message: true,
        acknowledge: Acknowledge::AtOnce,
        grants_credits: false,
        obeys_credits: true,
        least_timeout: Duration::ZERO,
        window_after_timeout: u32::MAX,
        nak_after_rnr: false,
        too_long: NakCode::InvalidRequest,
        resumes_reads: false,
        misses_by_timer: false,
    };

    /// As ConnectX adapters are known to behave. How long they hold an acknowledgement, and where
    /// their timeout has its floor, differs between them. 06-6.2
    pub const CONNECT_X: Self = Self {
        ask_after: Some(256),
        acknowledge: Acknowledge::Held { requests: 4, wait: Duration::from_micros(8) },
        grants_credits: true,
        least_timeout: Duration::from_millis(130),
        ..Self::DEFAULT
    };

    /// Ours where messages are posted many at a time, so that one acknowledgement answers them, and
    /// where hosts are kept from their work and lose what they have no room for: whoever does not
    /// answer is asked for less.
    pub const ADAPTER: Self =
        Self { asks_for_each_message: false, window_after_timeout: 16, ..Self::DEFAULT };

    /// As Linux rxe behaves. 06-6.1
    pub const RXE: Self = Self {
        mig_req: false,
        ask_after: Some(64),
        acknowledge: Acknowledge::Each,
        obeys_credits: false,
        nak_after_rnr: true,
        too_long: NakCode::RemoteOperationalError,
        resumes_reads: true,
        misses_by_timer: true,
        ..Self::DEFAULT
    };
}

impl Default for Conduct {
    fn default() -> Self {
        Self::DEFAULT
    }
}
