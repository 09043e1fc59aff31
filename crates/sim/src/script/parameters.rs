//! Which arguments each statement takes, as tables.

use super::syntax::{CallVerb, ObjectKind, SendVerb, Service};

/// An argument's name and what follows it.
pub(super) type Parameter = (&'static str, Kind);

/// What follows an argument's name.
#[derive(Clone, Copy, Debug)]
pub(super) enum Kind {
    /// Nothing.
    Flag,
    /// A number from the first to the second, or a symbol.
    Number(u64, u64),
    /// One of these words.
    Word(&'static [&'static str]),
    /// Some of these words, with commas.
    List(&'static [&'static str]),
    /// An object's name.
    Name,
    Address,
    Pieces,
}

use Kind::{Address, Flag, List, Name, Number, Pieces, Word};

// Numbers of so many bits.
const U1: Kind = bits(1);
const U2: Kind = bits(2);
const U3: Kind = bits(3);
const U4: Kind = bits(4);
const U5: Kind = bits(5);
const U6: Kind = bits(6);
const U7: Kind = bits(7);
const U8: Kind = bits(8);
const U12: Kind = bits(12);
const U16: Kind = bits(16);
const U20: Kind = bits(20);
const U24: Kind = bits(24);
const U32: Kind = bits(32);
const U64: Kind = bits(64);

pub(super) const fn bits(width: u32) -> Kind {
    Number(0, u64::MAX >> (64 - width))
}

/// Rights to memory, as `ibv_access_flags` has them.
pub(super) const RIGHTS: &[&str] = &[
    "local-write",
    "remote-write",
    "remote-read",
    "remote-atomic",
    "mw-bind",
    "zero-based",
    "on-demand",
    "hugetlb",
    "flush-global",
    "flush-persistent",
    "relaxed-ordering",
];

pub(super) const STATES: &[&str] = &["reset", "init", "rtr", "rts", "sqd", "sqe", "error"];

/// The names of [`CompletionStatus`](roxe_transport::work::CompletionStatus).
pub(super) const STATUSES: &[&str] = &[
    "ok",
    "local-length-error",
    "local-qp-operation-error",
    "local-protection-error",
    "flushed",
    "mw-bind-error",
    "bad-response",
    "local-access-error",
    "remote-invalid-request",
    "remote-access-error",
    "remote-operation-error",
    "retry-exceeded",
    "rnr-retry-exceeded",
    "fatal",
];

/// The events that scripts know, by their names.
pub const EVENT_NAMES: &[&str] = &[
    "fatal",
    "request-error",
    "access-error",
    "established",
    "drained",
    "last-wqe",
    "notify",
    "overrun",
    "limit",
    "connect-request",
    "connect-response",
    "connect-error",
    "rejected",
    "unreachable",
    "disconnected",
    "timewait-exit",
    "datagram-request",
    "resolved",
];

/// What may stand behind an event.
pub(super) fn of_event(name: &str) -> &'static [Parameter] {
    match name {
        "connect-request" => &[
            ("as", Name),
            ("from", Address),
            ("source-port", U16),
            ("responder-resources", U8),
            ("initiator-depth", U8),
        ],
        "connect-response" => &[("responder-resources", U8), ("initiator-depth", U8)],
        "rejected" | "connect-error" => &[("reason", U16)],
        "datagram-request" => &[("as", Name), ("from", Address), ("source-port", U16)],
        "resolved" => &[("status", U8), ("service-qpn", U24), ("service-q-key", U32)],
        _ => &[],
    }
}

pub(super) const ERRORS: &[&str] = &["EINVAL", "ENOMEM", "EBUSY", "EADDRINUSE"];

/// What may stand behind the dot of a symbol.
pub(super) const SYMBOL_PARTS: &[&str] = &["va", "rkey", "lkey", "qpn", "peer", "id", "psn"];

/// The answer to an atomic, as explanations call it.
pub(super) const ATOMIC_ACK: &str = "ATOMIC_ACK";

pub(super) const NAK_CODES: &[&str] = &[
    "sequence-error",
    "invalid-request",
    "remote-access",
    "remote-operational",
    "invalid-rd-request",
    "reserved",
];

pub(super) const OPERATIONS: &[&str] = &[
    "send",
    "write",
    "read",
    "cmp-swap",
    "fetch-add",
    "bind",
    "invalidate",
    "reg",
    "atomic-write",
    "flush",
    "recv",
    "recv-imm",
];

/// The attributes of `ibv_modify_qp`, by the names that queue pairs are made with.
pub(super) const ATTRIBUTES: &[&str] = &[
    "notify-drained",
    "access",
    "pkey",
    "port",
    "qkey",
    "to",
    "path-mtu",
    "timeout",
    "retry",
    "rnr-retry",
    "expect-psn",
    "max-rd-atomic",
    "min-rnr-timer",
    "send-psn",
    "max-dest-rd-atomic",
    "peer",
];

/// Whose ports services have: `RDMA_PS_TCP` and the like.
const SPACES: &[&str] = &["tcp", "udp", "ib"];

const PLACEMENTS: &[&str] = &["global", "persistent"];
const SELECTIVITIES: &[&str] = &["range", "region"];

pub(super) const DEVICE: &[Parameter] = &[
    ("path-mtu", Number(256, 4096)),
    ("seed", U64),
    ("address", Address),
    ("second-address", Address),
    ("peer", Address),
    ("as", Word(&["roxe", "adapter", "connectx", "rxe"])),
    ("vlan", U12),
    ("second-vlan", U12),
    ("cc", Word(&["none", "dcqcn", "dcqcn-paper", "timely", "swift"])),
    ("cnp", Word(&["queue-pair", "address", "port"])),
    ("rate", U32),
];

const QP: &[Parameter] = &[
    ("expect-psn", U24),
    ("send-psn", U24),
    ("peer", U24),
    ("to", Address),
    ("gid", U32),
    ("path-mtu", Number(256, 4096)),
    ("access", List(RIGHTS)),
    ("retry", U8),
    ("rnr-retry", U8),
    ("timeout", U5),
    ("min-rnr-timer", U5),
    ("max-rd-atomic", U8),
    ("max-dest-rd-atomic", U8),
    ("qkey", U32),
    ("pkey", U16),
    ("tclass", U8),
    ("hop", U8),
    ("flow-label", U20),
    ("sl", U4),
    ("depth", U32),
    ("sge", U32),
    ("inline", U32),
    ("window", U32),
    ("signal-all", Flag),
    ("srq", Name),
    ("pd", Name),
    ("cq", Name),
    ("recv-cq", Name),
    ("state", Word(STATES)),
];

pub(super) const fn of_object(object: ObjectKind) -> &'static [Parameter] {
    match object {
        ObjectKind::Pd => &[],
        ObjectKind::Cq => &[("depth", U32)],
        ObjectKind::Mr => {
            &[("len", U64), ("va", U64), ("access", List(RIGHTS)), ("pd", Name), ("fast", Flag)]
        }
        ObjectKind::Mw => &[("type", Number(1, 2)), ("pd", Name)],
        ObjectKind::Ah => &[
            ("to", Address),
            ("gid", U32),
            ("tclass", U8),
            ("hop", U8),
            ("flow-label", U20),
            ("sl", U4),
            ("pd", Name),
        ],
        ObjectKind::Cm => &[
            ("guid", U64),
            ("ack-delay", U5),
            ("responder-resources", U8),
            ("initiator-depth", U8),
            ("service-timeout", U5),
            ("max-connections", U32),
        ],
        ObjectKind::Listener => {
            &[("port", U16), ("space", Word(SPACES)), ("address", Address), ("backlog", U16)]
        }
        ObjectKind::Connection | ObjectKind::Resolution | ObjectKind::Question => &[],
        ObjectKind::Srq => &[("depth", U32), ("limit", U32), ("sge", U32), ("pd", Name)],
        ObjectKind::Qp(Service::Rc | Service::Uc | Service::Ud | Service::Gsi) => QP,
    }
}

pub(super) const POST_RECEIVE: &[Parameter] =
    &[("id", U64), ("len", U32), ("sge", Pieces), ("lkey", U32)];

/// What requests to the peer's memory have, and some others.
macro_rules! remote {
    ($($extra:expr),*) => {
        &[
            ("id", U64),
            ("len", U32),
            ("sge", Pieces),
            ("lkey", U32),
            ("va", U64),
            ("rkey", U32),
            ("inline", Flag),
            ("unsignaled", Flag),
            ("solicited", Flag),
            ("fence", Flag),
            $($extra,)*
        ]
    };
}

pub(super) const fn of_send(verb: SendVerb) -> &'static [Parameter] {
    match verb {
        SendVerb::Send => &[
            ("id", U64),
            ("len", U32),
            ("sge", Pieces),
            ("lkey", U32),
            ("imm", U32),
            ("inv", U32),
            ("to", Name),
            ("qpn", U24),
            ("qkey", U32),
            ("inline", Flag),
            ("unsignaled", Flag),
            ("solicited", Flag),
            ("fence", Flag),
        ],
        SendVerb::Bind | SendVerb::Register => &[
            ("id", U64),
            ("mw", Name),
            ("mr", Name),
            ("key", U32),
            ("va", U64),
            ("len", U64),
            ("access", List(RIGHTS)),
            ("unsignaled", Flag),
            ("fence", Flag),
        ],
        SendVerb::Invalidate => &[("id", U64), ("key", U32), ("unsignaled", Flag), ("fence", Flag)],
        SendVerb::Write => remote![("imm", U32)],
        SendVerb::Read | SendVerb::AtomicWrite => remote![],
        SendVerb::CompareSwap => remote![("compare", U64), ("swap", U64)],
        SendVerb::FetchAdd => remote![("add", U64)],
        SendVerb::Flush => {
            remote![("placement", List(PLACEMENTS)), ("selectivity", Word(SELECTIVITIES))]
        }
    }
}

pub(super) const fn of_call(verb: CallVerb) -> &'static [Parameter] {
    match verb {
        CallVerb::Modify => &[
            ("state", Word(STATES)),
            ("notify-drained", Flag),
            ("access", List(RIGHTS)),
            ("retry", U8),
            ("rnr-retry", U8),
            ("timeout", U5),
            ("min-rnr-timer", U5),
            ("max-rd-atomic", U8),
            ("max-dest-rd-atomic", U8),
            ("expect-psn", U24),
            ("send-psn", U24),
            ("path-mtu", Number(256, 4096)),
            ("peer", U24),
            ("to", Address),
            ("gid", U32),
            ("qkey", U32),
            ("pkey", U16),
            ("without", List(ATTRIBUTES)),
            ("limit", U32),
            ("depth", U32),
        ],
        CallVerb::Destroy | CallVerb::Lose | CallVerb::Hold | CallVerb::Release => &[],
        CallVerb::AddGid => &[("address", Address), ("vlan", U12)],
        CallVerb::RemoveGid => &[("gid", U32)],
        CallVerb::Reregister => {
            &[("pd", Name), ("access", List(RIGHTS)), ("va", U64), ("len", U64)]
        }
        CallVerb::Attach | CallVerb::Detach => &[("group", Address)],
        CallVerb::Notify => &[("solicited", Flag)],
        CallVerb::Resize => &[("depth", U32)],
        CallVerb::Connect => &[
            ("qp", Name),
            ("port", U16),
            ("source-port", U16),
            ("to", Address),
            ("gid", U32),
            ("responder-resources", U8),
            ("initiator-depth", U8),
            ("retry", U3),
            ("rnr-retry", U3),
            ("tclass", U8),
            ("hop", U8),
            ("sl", U4),
            ("response-timeout", U5),
            ("max-cm-retries", U4),
            ("packet-lifetime", U5),
        ],
        CallVerb::Accept => {
            &[("qp", Name), ("responder-resources", U8), ("initiator-depth", U8), ("rnr-retry", U3)]
        }
        CallVerb::Establish | CallVerb::Disconnect => &[],
        CallVerb::Reject => &[("reason", U16)],
        CallVerb::Resolve => &[
            ("port", U16),
            ("source-port", U16),
            ("to", Address),
            ("gid", U32),
            ("response-timeout", U5),
            ("max-cm-retries", U4),
            ("packet-lifetime", U5),
        ],
        CallVerb::Answer => &[("qp", Name), ("qkey", U32), ("status", U8)],
    }
}

pub(super) const COMPLETION: &[Parameter] = &[
    ("id", U64),
    ("len", U32),
    ("imm", U32),
    ("inv", U32),
    ("op", Word(OPERATIONS)),
    ("source-qp", U24),
    ("grh", Flag),
];

macro_rules! frame {
    ($($extra:expr),* $(,)?) => {
        &[
            ("psn", U24),
            ("ack-req", Flag),
            ("solicited", Flag),
            ("qpn", U24),
            ("pkey", U16),
            ("mig", U1),
            ("fecn", U1),
            ("becn", U1),
            ("reserved-6", U6),
            ("reserved-7", U7),
            ("pad", U2),
            ("va", U64),
            ("rkey", U32),
            ("len", U32),
            ("compare", U64),
            ("swap", U64),
            ("add", U64),
            ("value", U64),
            ("imm", U32),
            ("inv", U32),
            ("credits", U5),
            ("msn", U24),
            ("timer", U5),
            ("code", Word(NAK_CODES)),
            ("qkey", U32),
            ("source-qp", U24),
            ("placement", List(PLACEMENTS)),
            ("selectivity", Word(SELECTIVITIES)),
            ("from", Address),
            ("to", Address),
            ("sport", U16),
            ("tclass", U8),
            ("hop", U8),
            ("vlan", U12),
            ("pcp", U3),
            $($extra,)*
        ]
    };
}

/// What a frame into the device may say.
pub(super) const FRAME_IN: &[Parameter] = frame![
    ("tver", U4),
    ("syndrome", U8),
    ("icrc", Word(&["bad", "big-endian", "without-pad"])),
    ("cut", U16),
    ("split", U16),
    ("padding", U16),
    ("udp-length", U16),
    ("checksum", Word(&["right", "bad"])),
    ("fragment", Flag),
    ("untagged", Flag),
    ("outer-vlan", U16),
];

/// What a frame out of the device may say.
pub(super) const FRAME_OUT: &[Parameter] = frame![];
