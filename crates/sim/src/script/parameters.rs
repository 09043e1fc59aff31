//! Which arguments each statement takes, as tables.

use super::syntax::{CallVerb, ObjectKind, SendVerb, Service};

/// An argument's name and what follows it.
pub(super) type Parameter = (&'static str, Kind);

/// What follows an argument's name.
#[derive(Clone, Copy, Debug)]
pub(super) enum Kind {
    /// Nothing.
    Flag,
    /// A number or symbol.
    Number,
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

pub(super) const EVENT_NAMES: &[&str] = &[
    "fatal",
    "request-error",
    "access-error",
    "established",
    "drained",
    "last-wqe",
    "notify",
    "overrun",
    "limit",
];

pub(super) const ERRORS: &[&str] = &["EINVAL", "ENOMEM", "EBUSY"];

/// What may stand behind the dot of a symbol.
pub(super) const SYMBOL_PARTS: &[&str] = &["va", "rkey", "lkey", "qpn", "peer"];

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

const PLACEMENTS: &[&str] = &["global", "persistent"];
const SELECTIVITIES: &[&str] = &["range", "region"];

/// How many bits the number has that is called so.
pub(super) fn bits_of(name: &str) -> u32 {
    match name {
        "mig" | "fecn" | "becn" => 1,
        "pad" => 2,
        "pcp" => 3,
        "tver" => 4,
        "credits" | "timer" => 5,
        "reserved-6" => 6,
        "reserved-7" => 7,
        "syndrome" | "tclass" | "hop" | "sl" | "timeout" | "retry" | "rnr-retry"
        | "min-rnr-timer" | "max-rd-atomic" | "max-dest-rd-atomic" => 8,
        "vlan" | "second-vlan" => 12,
        "sport" | "udp-length" | "outer-vlan" | "pkey" => 16,
        "psn" | "msn" | "qpn" | "source-qp" | "expect-psn" | "send-psn" | "peer" => 24,
        "rkey" | "lkey" | "inv" | "key" | "imm" | "qkey" | "depth" | "limit" | "inline"
        | "window" | "gid" | "flow-label" | "sge" => 32,
        _ => 64,
    }
}

pub(super) const DEVICE: &[Parameter] = &[
    ("path-mtu", Number),
    ("seed", Number),
    ("address", Address),
    ("second-address", Address),
    ("peer", Address),
    ("as", Word(&["roxe", "connectx", "rxe"])),
    ("vlan", Number),
    ("second-vlan", Number),
];

const QP: &[Parameter] = &[
    ("expect-psn", Number),
    ("send-psn", Number),
    ("peer", Number),
    ("to", Address),
    ("gid", Number),
    ("path-mtu", Number),
    ("access", List(RIGHTS)),
    ("retry", Number),
    ("rnr-retry", Number),
    ("timeout", Number),
    ("min-rnr-timer", Number),
    ("max-rd-atomic", Number),
    ("max-dest-rd-atomic", Number),
    ("qkey", Number),
    ("pkey", Number),
    ("tclass", Number),
    ("hop", Number),
    ("flow-label", Number),
    ("sl", Number),
    ("depth", Number),
    ("sge", Number),
    ("inline", Number),
    ("window", Number),
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
        ObjectKind::Cq => &[("depth", Number)],
        ObjectKind::Mr => &[
            ("len", Number),
            ("va", Number),
            ("access", List(RIGHTS)),
            ("pd", Name),
            ("fast", Flag),
        ],
        ObjectKind::Mw => &[("type", Number), ("pd", Name)],
        ObjectKind::Ah => &[
            ("to", Address),
            ("gid", Number),
            ("tclass", Number),
            ("hop", Number),
            ("flow-label", Number),
            ("sl", Number),
            ("pd", Name),
        ],
        ObjectKind::Srq => &[("depth", Number), ("limit", Number), ("sge", Number), ("pd", Name)],
        ObjectKind::Qp(Service::Rc | Service::Uc | Service::Ud | Service::Gsi) => QP,
    }
}

pub(super) const POST_RECEIVE: &[Parameter] =
    &[("id", Number), ("len", Number), ("sge", Pieces), ("lkey", Number)];

pub(super) const fn of_send(verb: SendVerb) -> &'static [Parameter] {
    match verb {
        SendVerb::Send => &[
            ("id", Number),
            ("len", Number),
            ("sge", Pieces),
            ("lkey", Number),
            ("imm", Number),
            ("inv", Number),
            ("to", Name),
            ("qpn", Number),
            ("qkey", Number),
            ("inline", Flag),
            ("unsignaled", Flag),
            ("solicited", Flag),
            ("fence", Flag),
        ],
        SendVerb::Bind | SendVerb::Register => &[
            ("id", Number),
            ("mw", Name),
            ("mr", Name),
            ("key", Number),
            ("va", Number),
            ("len", Number),
            ("access", List(RIGHTS)),
            ("unsignaled", Flag),
            ("fence", Flag),
        ],
        SendVerb::Invalidate => {
            &[("id", Number), ("key", Number), ("unsignaled", Flag), ("fence", Flag)]
        }
        _ => &[
            ("id", Number),
            ("len", Number),
            ("sge", Pieces),
            ("lkey", Number),
            ("imm", Number),
            ("va", Number),
            ("rkey", Number),
            ("compare", Number),
            ("swap", Number),
            ("add", Number),
            ("placement", List(PLACEMENTS)),
            ("selectivity", Word(SELECTIVITIES)),
            ("inline", Flag),
            ("unsignaled", Flag),
            ("solicited", Flag),
            ("fence", Flag),
        ],
    }
}

pub(super) const fn of_call(verb: CallVerb) -> &'static [Parameter] {
    match verb {
        CallVerb::Modify => &[
            ("state", Word(STATES)),
            ("notify-drained", Flag),
            ("access", List(RIGHTS)),
            ("retry", Number),
            ("rnr-retry", Number),
            ("timeout", Number),
            ("min-rnr-timer", Number),
            ("max-rd-atomic", Number),
            ("max-dest-rd-atomic", Number),
            ("expect-psn", Number),
            ("send-psn", Number),
            ("path-mtu", Number),
            ("peer", Number),
            ("to", Address),
            ("gid", Number),
            ("qkey", Number),
            ("pkey", Number),
            ("without", List(ATTRIBUTES)),
            ("limit", Number),
            ("depth", Number),
        ],
        CallVerb::Destroy | CallVerb::Lose | CallVerb::Hold | CallVerb::Release => &[],
        CallVerb::AddGid | CallVerb::RemoveGid => {
            &[("address", Address), ("vlan", Number), ("gid", Number)]
        }
        CallVerb::Reregister => {
            &[("pd", Name), ("access", List(RIGHTS)), ("va", Number), ("len", Number)]
        }
        CallVerb::Attach | CallVerb::Detach => &[("group", Address)],
        CallVerb::Notify => &[("solicited", Flag)],
        CallVerb::Resize => &[("depth", Number)],
    }
}

pub(super) const COMPLETION: &[Parameter] = &[
    ("id", Number),
    ("len", Number),
    ("imm", Number),
    ("inv", Number),
    ("op", Word(OPERATIONS)),
    ("source-qp", Number),
    ("grh", Flag),
];

macro_rules! frame {
    ($($extra:expr),* $(,)?) => {
        &[
            ("psn", Number),
            ("ack-req", Flag),
            ("solicited", Flag),
            ("qpn", Number),
            ("pkey", Number),
            ("mig", Number),
            ("fecn", Number),
            ("becn", Number),
            ("reserved-6", Number),
            ("reserved-7", Number),
            ("pad", Number),
            ("va", Number),
            ("rkey", Number),
            ("len", Number),
            ("compare", Number),
            ("swap", Number),
            ("add", Number),
            ("value", Number),
            ("imm", Number),
            ("inv", Number),
            ("credits", Number),
            ("msn", Number),
            ("timer", Number),
            ("code", Word(NAK_CODES)),
            ("qkey", Number),
            ("source-qp", Number),
            ("placement", List(PLACEMENTS)),
            ("selectivity", Word(SELECTIVITIES)),
            ("from", Address),
            ("to", Address),
            ("sport", Number),
            ("tclass", Number),
            ("hop", Number),
            ("vlan", Number),
            ("pcp", Number),
            $($extra,)*
        ]
    };
}

/// What a frame into the device may say.
pub(super) const FRAME_IN: &[Parameter] = frame![
    ("tver", Number),
    ("syndrome", Number),
    ("icrc", Word(&["bad", "big-endian", "without-pad"])),
    ("cut", Number),
    ("split", Number),
    ("padding", Number),
    ("udp-length", Number),
    ("checksum", Word(&["right", "bad"])),
    ("fragment", Flag),
    ("untagged", Flag),
    ("outer-vlan", Number),
];

/// What a frame out of the device may say.
pub(super) const FRAME_OUT: &[Parameter] = frame![];
