//! Numbers in words, and rates in numbers.

use std::ffi::{CStr, c_char, c_int};

use roxe_verbs::StaticRate;

/// The text at a number, or "unknown".
fn at(texts: &'static [&'static CStr], number: c_int) -> *const c_char {
    let found = usize::try_from(number).ok().and_then(|number| texts.get(number));
    found.unwrap_or(&c"unknown").as_ptr()
}

pub(crate) extern "C" fn ibv_wc_status_str(status: c_int) -> *const c_char {
    at(STATUSES, status)
}

pub(crate) extern "C" fn ibv_event_type_str(event: c_int) -> *const c_char {
    at(EVENTS, event)
}

pub(crate) extern "C" fn ibv_port_state_str(state: c_int) -> *const c_char {
    at(PORT_STATES, state)
}

pub(crate) extern "C" fn ibv_node_type_str(node: c_int) -> *const c_char {
    at(NODES, node)
}

pub(crate) extern "C" fn ibv_wr_opcode_str(opcode: c_int) -> *const c_char {
    at(OPCODES, opcode)
}

/// `ibv_wc_status`.
const STATUSES: &[&CStr] = &[
    c"success",
    c"local length error",
    c"local QP operation error",
    c"local EE context operation error",
    c"local protection error",
    c"Work Request Flushed Error",
    c"memory window bind error",
    c"bad response",
    c"local access error",
    c"remote invalid request error",
    c"remote access error",
    c"remote operation error",
    c"transport retry counter exceeded",
    c"RNR retry counter exceeded",
    c"local RDD violation",
    c"remote invalid RD request",
    c"operation aborted",
    c"invalid EE context number",
    c"invalid EE context state",
    c"fatal error",
    c"response timeout error",
    c"general error",
    c"tag matching error",
    c"tag matching rendezvous incomplete",
];

/// `ibv_event_type`.
const EVENTS: &[&CStr] = &[
    c"CQ error",
    c"local work queue catastrophic error",
    c"invalid request local work queue error",
    c"local access violation work queue error",
    c"communication established",
    c"send queue drained",
    c"path migrated",
    c"path migration request error",
    c"local catastrophic error",
    c"port active",
    c"port error",
    c"LID change",
    c"P_Key change",
    c"SM change",
    c"SRQ catastrophic error",
    c"SRQ limit reached",
    c"last WQE reached",
    c"client reregistration",
    c"GID table change",
    c"WQ fatal",
];

/// `ibv_port_state`.
const PORT_STATES: &[&CStr] =
    &[c"no state change (NOP)", c"down", c"init", c"armed", c"active", c"active defer"];

/// `ibv_node_type`.
const NODES: &[&CStr] = &[
    c"unknown",
    c"InfiniBand channel adapter",
    c"InfiniBand switch",
    c"InfiniBand router",
    c"iWARP NIC",
    c"usNIC",
    c"usNIC UDP",
    c"unspecified",
];

/// `ibv_wr_opcode`.
const OPCODES: &[&CStr] = &[
    c"RDMA_WRITE",
    c"RDMA_WRITE_WITH_IMM",
    c"SEND",
    c"SEND_WITH_IMM",
    c"RDMA_READ",
    c"ATOMIC_CMP_AND_SWP",
    c"ATOMIC_FETCH_AND_ADD",
    c"LOCAL_INV",
    c"BIND_MW",
    c"SEND_WITH_INV",
    c"TSO",
    c"DRIVER1",
];

/// Numbers of `ibv_rate`.
fn rates() -> impl Iterator<Item = (u8, u32)> {
    (1..64).filter_map(|code| Some((code, StaticRate::from_bits(code).megabits()?)))
}

/// -1 for what is no rate.
pub(crate) extern "C" fn ibv_rate_to_mbps(rate: c_int) -> c_int {
    let known = rates().find(|(code, _)| c_int::from(*code) == rate);
    known.and_then(|(_, megabits)| c_int::try_from(megabits).ok()).unwrap_or(-1)
}

/// As fast as the port goes where there is no such rate.
pub(crate) extern "C" fn mbps_to_ibv_rate(megabits: c_int) -> c_int {
    let known = rates().find(|(_, known)| c_int::try_from(*known) == Ok(megabits));
    known.map_or(0, |(code, _)| code.into())
}

/// In units of 2.5 Gb/s.
pub(crate) extern "C" fn ibv_rate_to_mult(rate: c_int) -> c_int {
    match ibv_rate_to_mbps(rate) {
        -1 => -1,
        megabits => megabits / UNIT,
    }
}

pub(crate) extern "C" fn mult_to_ibv_rate(multiple: c_int) -> c_int {
    let known = rates().find(|(_, megabits)| {
        let whole = multiple.checked_mul(UNIT);
        whole.is_some_and(|whole| c_int::try_from(*megabits) == Ok(whole))
    });
    known.map_or(0, |(code, _)| code.into())
}

/// Mb/s.
const UNIT: c_int = 2500;
