//! One end of a pair of queue pairs, whoever's it is.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use roxe_verbs::{Mtu, ServiceType};

use crate::Outcome;

/// How a pair of queue pairs shall be.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Setup {
    pub(crate) service: ServiceType,
    pub(crate) path_mtu: Mtu,
    /// Receives come from a shared queue.
    pub(crate) srq: bool,
    /// What queue pairs let the peer do to memory: all or nothing.
    pub(crate) remote_access: bool,
    /// The PSN of the first request of each end, in the order of the ends.
    pub(crate) psn: [u32; 2],
    /// 4.096 µs times two to the power of this.
    pub(crate) timeout: u8,
    pub(crate) retry_cnt: u8,
    pub(crate) rnr_retry: u8,
    pub(crate) min_rnr_timer: u8,
    pub(crate) rd_atomic: u8,
}

/// What the other end has to know of one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Card {
    pub(crate) address: IpAddr,
    pub(crate) qpn: u32,
    pub(crate) psn: u32,
    pub(crate) va: u64,
    pub(crate) r_key: u32,
}

/// What is asked of a queue pair; `va` are addresses at the other end.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Work {
    Send,
    SendImm(u32),
    SendInv(u32),
    Write { va: u64, r_key: u32 },
    WriteImm { va: u64, r_key: u32, imm: u32 },
    Read { va: u64, r_key: u32 },
    CompareSwap { va: u64, r_key: u32, compare: u64, swap: u64 },
    FetchAdd { va: u64, r_key: u32, add: u64 },
}

/// How a request ended, in the numbers of libibverbs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Done {
    pub(crate) id: u64,
    pub(crate) status: u8,
    /// `ibv_wc_opcode`. Unless the status is 0, nothing from here on means anything.
    pub(crate) opcode: u32,
    pub(crate) len: u32,
    pub(crate) imm: Option<u32>,
    pub(crate) invalidated: Option<u32>,
    pub(crate) source_qp: u32,
}

/// The name of an `ibv_wc_status`, without its `IBV_WC_`; of an unknown one its number.
pub(crate) fn status_name(status: u8) -> String {
    STATUSES.get(usize::from(status)).map_or_else(|| format!("status {status}"), |it| (*it).into())
}

/// In the order of `ibv_wc_status`.
#[rustfmt::skip]
const STATUSES: [&str; 22] = [
    "SUCCESS", "LOC_LEN_ERR", "LOC_QP_OP_ERR", "LOC_EEC_OP_ERR", "LOC_PROT_ERR", "WR_FLUSH_ERR",
    "MW_BIND_ERR", "BAD_RESP_ERR", "LOC_ACCESS_ERR", "REM_INV_REQ_ERR", "REM_ACCESS_ERR",
    "REM_OP_ERR", "RETRY_EXC_ERR", "RNR_RETRY_EXC_ERR", "LOC_RDD_VIOL_ERR", "REM_INV_RD_REQ_ERR",
    "REM_ABORT_ERR", "INV_EECN_ERR", "INV_EEC_STATE_ERR", "FATAL_ERR", "RESP_TIMEOUT_ERR",
    "GENERAL_ERR",
];

/// An end: an adapter with a region of memory and one queue pair.
pub(crate) trait End: Send {
    /// Whose it is.
    fn name(&self) -> &'static str;

    /// Makes what is needed, up to a queue pair in state Init. `which` of the two ends it is.
    fn make(&mut self, setup: &Setup, which: usize) -> Outcome<Card>;

    /// Connects with the other end.
    fn meet(&mut self, setup: &Setup, peer: &Card) -> Outcome;

    /// Takes part in a group.
    fn join(&mut self, group: IpAddr) -> Outcome;

    /// What it sends goes to a group from now on.
    fn send_to(&mut self, group: IpAddr) -> Outcome;

    /// Fills memory with the pattern of a seed.
    fn fill(&mut self, at: u64, len: u64, seed: u64) -> Outcome;

    /// Whether memory has the pattern of a seed from byte `skip` of that on.
    fn check(&mut self, at: u64, len: u64, seed: u64, skip: u64) -> Outcome;

    /// The eight bytes at a place as a number.
    fn word(&mut self, at: u64) -> Outcome<u64>;

    fn set_word(&mut self, at: u64, value: u64) -> Outcome;

    /// Opens a window over its memory that the peer may invalidate; says its key.
    fn bind(&mut self) -> Outcome<u32>;

    fn receive(&mut self, id: u64, at: u64, len: u32) -> Outcome;

    fn post(&mut self, id: u64, work: Work, at: u64, len: u32) -> Outcome;

    /// Makes a second region that the peer may only read; says its address and key.
    fn read_only(&mut self) -> Outcome<(u64, u32)>;

    /// Destroys the queue pair.
    fn destroy(&mut self) -> Outcome;

    /// The state of the queue pair, as libibverbs names it: `rts`, `error`.
    fn state(&mut self) -> Outcome<String>;

    /// The next `count` completions, or fewer if they do not come in time.
    fn wait(&mut self, count: usize, patience: Duration) -> Outcome<Vec<Done>>;

    /// Everything that its adapter counts.
    fn counters(&mut self) -> Outcome<BTreeMap<String, u64>>;
}

/// Byte `at` of the pattern of a seed; the agent has the same.
pub(crate) fn pattern(seed: u64, at: u64) -> u8 {
    let word = seed.wrapping_add(at / 8 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let word = (word ^ word >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    ((word ^ word >> 31) >> (at % 8 * 8)) as u8
}

/// Bytes of an end's memory.
pub(crate) const MEMORY: usize = 6 << 20;

/// The key of datagrams.
pub(crate) const Q_KEY: u32 = 0x1ee7;

/// Receives and requests on their way at the same time.
pub(crate) const DEPTH: u32 = 64;
