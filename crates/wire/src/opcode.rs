//! The opcode table: what each value of the BTH's first byte means, as data.
//!
//! IBA vol 1 §9.2 (the table of opcodes), annex A14 (XRC), annex A17 §A17.9.3 (CNP), annex A19
//! (FLUSH and ATOMIC WRITE). Everything that follows from a row (lengths, who may answer what) is
//! computed from it.

use core::fmt;

use Header::{
    Aeth, AtomicAckEth, AtomicEth, CnpReserved, Deth, Feth, Ieth, ImmDt, Rdeth, Reth, Xrceth,
};
use Operation::{
    Acknowledge, AtomicAcknowledge, AtomicWrite, CompareSwap, FetchAdd, Flush, Notify, ReadRequest,
    ReadResponse, Resync, Send, Write,
};
use PayloadRule::{Any, Eight, Empty, Full, Rest};
use Position::{First, Last, Middle, Only};
use Service::{Cnp, Rc, Rd, Uc, Ud, Xrc};

/// A transport service: the top three bits of an opcode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Service {
    /// Reliable Connection, bits 000.
    Rc,
    /// Unreliable Connection, bits 001.
    Uc,
    /// Reliable Datagram, bits 010. Recognised; no adapter implements it.
    Rd,
    /// Unreliable Datagram, bits 011.
    Ud,
    /// Congestion notification, bits 100.
    Cnp,
    /// Extended Reliable Connection, bits 101.
    Xrc,
}

impl Service {
    /// The service that the top three bits of an opcode name; `None` for 110 (reserved) and 111
    /// (manufacturer specific).
    pub const fn from_code(code: u8) -> Option<Self> {
        match code >> 5 {
            0b000 => Some(Rc),
            0b001 => Some(Uc),
            0b010 => Some(Rd),
            0b011 => Some(Ud),
            0b100 => Some(Cnp),
            0b101 => Some(Xrc),
            _ => None,
        }
    }

    /// The usual abbreviation: `RC`, `UC`, `RD`, `UD`, `CNP`, `XRC`.
    pub const fn name(self) -> &'static str {
        match self {
            Rc => "RC",
            Uc => "UC",
            Rd => "RD",
            Ud => "UD",
            Cnp => "CNP",
            Xrc => "XRC",
        }
    }
}

/// What a packet does, whatever its service and its place in the message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operation {
    /// Part of a message to a receive buffer.
    Send,
    /// Part of a message to an address in the peer's memory.
    Write,
    /// Asks for a piece of the peer's memory.
    ReadRequest,
    /// A part of that piece.
    ReadResponse,
    /// An ACK or NAK.
    Acknowledge,
    /// The answer to an atomic: the value from before.
    AtomicAcknowledge,
    /// Swaps a 64-bit value if it equals another.
    CompareSwap,
    /// Adds to a 64-bit value.
    FetchAdd,
    /// Reliable Datagram: start afresh with this PSN.
    Resync,
    /// Makes earlier writes visible or persistent.
    Flush,
    /// Writes eight bytes at once.
    AtomicWrite,
    /// Congestion was seen on the way here.
    Notify,
}

impl Operation {
    /// How it is called in a sentence: `SEND`, `READ`, `ATOMIC WRITE`.
    pub const fn name(self) -> &'static str {
        match self {
            Send => "SEND",
            Write => "WRITE",
            ReadRequest => "READ",
            ReadResponse => "READ response",
            Acknowledge => "ACK",
            AtomicAcknowledge => "atomic ACK",
            CompareSwap => "CMP_SWAP",
            FetchAdd => "FETCH_ADD",
            Resync => "RESYNC",
            Flush => "FLUSH",
            AtomicWrite => "ATOMIC WRITE",
            Notify => "CNP",
        }
    }

    /// Whether a responder sends this, to the requester of an earlier packet.
    pub const fn is_response(self) -> bool {
        matches!(self, ReadResponse | Acknowledge | AtomicAcknowledge)
    }

    /// Whether a requester sends this, to a responder.
    pub const fn is_request(self) -> bool {
        !self.is_response() && !matches!(self, Notify)
    }

    /// Whether this is one of the two fetching atomics.
    pub const fn is_atomic(self) -> bool {
        matches!(self, CompareSwap | FetchAdd)
    }
}

/// Where in its message a packet stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Position {
    /// The first of several packets.
    First,
    /// Neither first nor last.
    Middle,
    /// The last of several packets.
    Last,
    /// The whole message.
    Only,
}

impl Position {
    /// That of a packet with which the message starts, ends, both or neither.
    pub const fn of(starts: bool, ends: bool) -> Self {
        match (starts, ends) {
            (true, false) => First,
            (false, false) => Middle,
            (false, true) => Last,
            (true, true) => Only,
        }
    }

    /// Whether the message starts here.
    pub const fn starts(self) -> bool {
        matches!(self, First | Only)
    }

    /// Whether the message ends here.
    pub const fn ends(self) -> bool {
        matches!(self, Last | Only)
    }
}

/// An extension header that may stand behind the BTH.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Header {
    /// Reliable Datagram extended transport header.
    Rdeth,
    /// Datagram extended transport header.
    Deth,
    /// XRC extended transport header.
    Xrceth,
    /// RDMA extended transport header.
    Reth,
    /// Atomic extended transport header.
    AtomicEth,
    /// ACK extended transport header.
    Aeth,
    /// Atomic ACK extended transport header.
    AtomicAckEth,
    /// Immediate data.
    ImmDt,
    /// Invalidate extended transport header.
    Ieth,
    /// Flush extended transport header.
    Feth,
    /// The 16 reserved bytes of a congestion notification.
    CnpReserved,
}

impl Header {
    /// Bytes.
    #[expect(clippy::len_without_is_empty, reason = "no header is empty")]
    pub const fn len(self) -> usize {
        match self {
            Rdeth | Xrceth | Aeth | ImmDt | Ieth | Feth => 4,
            Deth | AtomicAckEth => 8,
            Reth | CnpReserved => 16,
            AtomicEth => 28,
        }
    }
}

/// How much payload a packet carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PayloadRule {
    /// None.
    Empty,
    /// Exactly the path MTU.
    Full,
    /// 1 byte up to the path MTU.
    Rest,
    /// 0 bytes up to the path MTU.
    Any,
    /// Exactly eight bytes.
    Eight,
}

impl PayloadRule {
    /// Whether `len` bytes are right at path MTU `mtu` (both in bytes).
    //= IBA C9-92
    pub const fn allows(self, len: usize, mtu: usize) -> bool {
        match self {
            Empty => len == 0,
            Full => len == mtu,
            Rest => 0 < len && len <= mtu,
            Any => len <= mtu,
            Eight => len == 8,
        }
    }

    /// Whether some path MTU makes `len` bytes right.
    pub const fn allows_for_some_mtu(self, len: usize) -> bool {
        match self {
            Full => matches!(len, 256 | 512 | 1024 | 2048 | 4096),
            _ => self.allows(len, 4096),
        }
    }
}

/// A row of the opcode table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Opcode {
    /// The byte itself.
    pub code: u8,
    /// The name with the service, as in `RC_SEND_ONLY`.
    pub name: &'static str,
    /// Which service it belongs to.
    pub service: Service,
    /// What it does.
    pub operation: Operation,
    /// Where in its message it stands.
    pub position: Position,
    /// The extension headers behind the BTH, in order.
    pub headers: &'static [Header],
    /// How much payload it carries.
    pub payload: PayloadRule,
    /// Bytes of BTH and extension headers together.
    pub headers_len: usize,
}

impl Opcode {
    /// The row of a code; `None` when the specification does not define it.
    pub const fn from_code(code: u8) -> Option<&'static Self> {
        match BY_CODE[code as usize] {
            0 => None,
            row => Some(&OPCODES[row as usize - 1]),
        }
    }

    /// The row for a packet of `service` with these properties. `variant` is the header that tells
    /// rows apart which are alike otherwise: [`Header::ImmDt`], [`Header::Ieth`] or none.
    pub fn find(
        service: Service,
        operation: Operation,
        position: Position,
        variant: Option<Header>,
    ) -> Option<&'static Self> {
        let variant = match variant {
            None => 0,
            Some(ImmDt) => 1,
            Some(Ieth) => 2,
            Some(_) => return None,
        };
        match BY_MEANING[service as usize][operation as usize][position as usize][variant] {
            0 => None,
            row => Some(&OPCODES[row as usize - 1]),
        }
    }

    /// The row of this name, with its service (`RC_SEND_ONLY`).
    pub fn by_name(name: &str) -> Option<&'static Self> {
        OPCODES.iter().find(|row| row.name == name)
    }

    /// The name without the service, as in `SEND_ONLY`.
    pub fn short_name(&self) -> &'static str {
        self.name.get(self.service.name().len() + 1..).unwrap_or(self.name)
    }

    /// Whether `header` is among the extension headers.
    pub fn has(&self, header: Header) -> bool {
        self.headers.contains(&header)
    }

    /// Whether the last packet of such a message gives the receiver a completion: SENDs, and WRITEs
    /// with immediate data.
    pub fn completes_a_receive(&self) -> bool {
        self.position.ends()
            && (self.operation == Send || self.operation == Write && self.has(ImmDt))
    }
}

impl fmt::Display for Opcode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name)
    }
}

/// Every opcode that the specification defines, in order.
//= 02-2.1, 02-2.2
#[rustfmt::skip]
pub const OPCODES: &[Opcode] = &[
    //  code  name                         service operation       position headers                      payload
    row(0x00, "RC_SEND_FIRST",             Rc,  Send,              First,  &[],                              Full),
    row(0x01, "RC_SEND_MIDDLE",            Rc,  Send,              Middle, &[],                              Full),
    row(0x02, "RC_SEND_LAST",              Rc,  Send,              Last,   &[],                              Rest),
    row(0x03, "RC_SEND_LAST_IMM",          Rc,  Send,              Last,   &[ImmDt],                         Rest),
    row(0x04, "RC_SEND_ONLY",              Rc,  Send,              Only,   &[],                              Any),
    row(0x05, "RC_SEND_ONLY_IMM",          Rc,  Send,              Only,   &[ImmDt],                         Any),
    row(0x06, "RC_WRITE_FIRST",            Rc,  Write,             First,  &[Reth],                          Full),
    row(0x07, "RC_WRITE_MIDDLE",           Rc,  Write,             Middle, &[],                              Full),
    row(0x08, "RC_WRITE_LAST",             Rc,  Write,             Last,   &[],                              Rest),
    row(0x09, "RC_WRITE_LAST_IMM",         Rc,  Write,             Last,   &[ImmDt],                         Rest),
    row(0x0a, "RC_WRITE_ONLY",             Rc,  Write,             Only,   &[Reth],                          Any),
    row(0x0b, "RC_WRITE_ONLY_IMM",         Rc,  Write,             Only,   &[Reth, ImmDt],                   Any),
    row(0x0c, "RC_READ_REQUEST",           Rc,  ReadRequest,       Only,   &[Reth],                          Empty),
    row(0x0d, "RC_READ_RESPONSE_FIRST",    Rc,  ReadResponse,      First,  &[Aeth],                          Full),
    row(0x0e, "RC_READ_RESPONSE_MIDDLE",   Rc,  ReadResponse,      Middle, &[],                              Full),
    row(0x0f, "RC_READ_RESPONSE_LAST",     Rc,  ReadResponse,      Last,   &[Aeth],                          Rest),
    row(0x10, "RC_READ_RESPONSE_ONLY",     Rc,  ReadResponse,      Only,   &[Aeth],                          Any),
    row(0x11, "RC_ACKNOWLEDGE",            Rc,  Acknowledge,       Only,   &[Aeth],                          Empty),
    row(0x12, "RC_ATOMIC_ACKNOWLEDGE",     Rc,  AtomicAcknowledge, Only,   &[Aeth, AtomicAckEth],            Empty),
    row(0x13, "RC_CMP_SWAP",               Rc,  CompareSwap,       Only,   &[AtomicEth],                     Empty),
    row(0x14, "RC_FETCH_ADD",              Rc,  FetchAdd,          Only,   &[AtomicEth],                     Empty),
    row(0x16, "RC_SEND_LAST_INV",          Rc,  Send,              Last,   &[Ieth],                          Rest),
    row(0x17, "RC_SEND_ONLY_INV",          Rc,  Send,              Only,   &[Ieth],                          Any),
    row(0x1c, "RC_FLUSH",                  Rc,  Flush,             Only,   &[Feth, Reth],                    Empty),
    row(0x1d, "RC_ATOMIC_WRITE",           Rc,  AtomicWrite,       Only,   &[Reth],                          Eight),
    row(0x20, "UC_SEND_FIRST",             Uc,  Send,              First,  &[],                              Full),
    row(0x21, "UC_SEND_MIDDLE",            Uc,  Send,              Middle, &[],                              Full),
    row(0x22, "UC_SEND_LAST",              Uc,  Send,              Last,   &[],                              Rest),
    row(0x23, "UC_SEND_LAST_IMM",          Uc,  Send,              Last,   &[ImmDt],                         Rest),
    row(0x24, "UC_SEND_ONLY",              Uc,  Send,              Only,   &[],                              Any),
    row(0x25, "UC_SEND_ONLY_IMM",          Uc,  Send,              Only,   &[ImmDt],                         Any),
    row(0x26, "UC_WRITE_FIRST",            Uc,  Write,             First,  &[Reth],                          Full),
    row(0x27, "UC_WRITE_MIDDLE",           Uc,  Write,             Middle, &[],                              Full),
    row(0x28, "UC_WRITE_LAST",             Uc,  Write,             Last,   &[],                              Rest),
    row(0x29, "UC_WRITE_LAST_IMM",         Uc,  Write,             Last,   &[ImmDt],                         Rest),
    row(0x2a, "UC_WRITE_ONLY",             Uc,  Write,             Only,   &[Reth],                          Any),
    row(0x2b, "UC_WRITE_ONLY_IMM",         Uc,  Write,             Only,   &[Reth, ImmDt],                   Any),
    row(0x40, "RD_SEND_FIRST",             Rd,  Send,              First,  &[Rdeth, Deth],                   Full),
    row(0x41, "RD_SEND_MIDDLE",            Rd,  Send,              Middle, &[Rdeth, Deth],                   Full),
    row(0x42, "RD_SEND_LAST",              Rd,  Send,              Last,   &[Rdeth, Deth],                   Rest),
    row(0x43, "RD_SEND_LAST_IMM",          Rd,  Send,              Last,   &[Rdeth, Deth, ImmDt],            Rest),
    row(0x44, "RD_SEND_ONLY",              Rd,  Send,              Only,   &[Rdeth, Deth],                   Any),
    row(0x45, "RD_SEND_ONLY_IMM",          Rd,  Send,              Only,   &[Rdeth, Deth, ImmDt],            Any),
    row(0x46, "RD_WRITE_FIRST",            Rd,  Write,             First,  &[Rdeth, Deth, Reth],             Full),
    row(0x47, "RD_WRITE_MIDDLE",           Rd,  Write,             Middle, &[Rdeth, Deth],                   Full),
    row(0x48, "RD_WRITE_LAST",             Rd,  Write,             Last,   &[Rdeth, Deth],                   Rest),
    row(0x49, "RD_WRITE_LAST_IMM",         Rd,  Write,             Last,   &[Rdeth, Deth, ImmDt],            Rest),
    row(0x4a, "RD_WRITE_ONLY",             Rd,  Write,             Only,   &[Rdeth, Deth, Reth],             Any),
    row(0x4b, "RD_WRITE_ONLY_IMM",         Rd,  Write,             Only,   &[Rdeth, Deth, Reth, ImmDt],      Any),
    row(0x4c, "RD_READ_REQUEST",           Rd,  ReadRequest,       Only,   &[Rdeth, Deth, Reth],             Empty),
    row(0x4d, "RD_READ_RESPONSE_FIRST",    Rd,  ReadResponse,      First,  &[Rdeth, Aeth],                   Full),
    row(0x4e, "RD_READ_RESPONSE_MIDDLE",   Rd,  ReadResponse,      Middle, &[Rdeth],                         Full),
    row(0x4f, "RD_READ_RESPONSE_LAST",     Rd,  ReadResponse,      Last,   &[Rdeth, Aeth],                   Rest),
    row(0x50, "RD_READ_RESPONSE_ONLY",     Rd,  ReadResponse,      Only,   &[Rdeth, Aeth],                   Any),
    row(0x51, "RD_ACKNOWLEDGE",            Rd,  Acknowledge,       Only,   &[Rdeth, Aeth],                   Empty),
    row(0x52, "RD_ATOMIC_ACKNOWLEDGE",     Rd,  AtomicAcknowledge, Only,   &[Rdeth, Aeth, AtomicAckEth],     Empty),
    row(0x53, "RD_CMP_SWAP",               Rd,  CompareSwap,       Only,   &[Rdeth, Deth, AtomicEth],        Empty),
    row(0x54, "RD_FETCH_ADD",              Rd,  FetchAdd,          Only,   &[Rdeth, Deth, AtomicEth],        Empty),
    row(0x55, "RD_RESYNC",                 Rd,  Resync,            Only,   &[Rdeth, Deth],                   Empty),
    row(0x64, "UD_SEND_ONLY",              Ud,  Send,              Only,   &[Deth],                          Any),
    row(0x65, "UD_SEND_ONLY_IMM",          Ud,  Send,              Only,   &[Deth, ImmDt],                   Any),
    row(0x81, "CNP",                       Cnp, Notify,            Only,   &[CnpReserved],                   Empty),
    row(0xa0, "XRC_SEND_FIRST",            Xrc, Send,              First,  &[Xrceth],                        Full),
    row(0xa1, "XRC_SEND_MIDDLE",           Xrc, Send,              Middle, &[Xrceth],                        Full),
    row(0xa2, "XRC_SEND_LAST",             Xrc, Send,              Last,   &[Xrceth],                        Rest),
    row(0xa3, "XRC_SEND_LAST_IMM",         Xrc, Send,              Last,   &[Xrceth, ImmDt],                 Rest),
    row(0xa4, "XRC_SEND_ONLY",             Xrc, Send,              Only,   &[Xrceth],                        Any),
    row(0xa5, "XRC_SEND_ONLY_IMM",         Xrc, Send,              Only,   &[Xrceth, ImmDt],                 Any),
    row(0xa6, "XRC_WRITE_FIRST",           Xrc, Write,             First,  &[Xrceth, Reth],                  Full),
    row(0xa7, "XRC_WRITE_MIDDLE",          Xrc, Write,             Middle, &[Xrceth],                        Full),
    row(0xa8, "XRC_WRITE_LAST",            Xrc, Write,             Last,   &[Xrceth],                        Rest),
    row(0xa9, "XRC_WRITE_LAST_IMM",        Xrc, Write,             Last,   &[Xrceth, ImmDt],                 Rest),
    row(0xaa, "XRC_WRITE_ONLY",            Xrc, Write,             Only,   &[Xrceth, Reth],                  Any),
    row(0xab, "XRC_WRITE_ONLY_IMM",        Xrc, Write,             Only,   &[Xrceth, Reth, ImmDt],           Any),
    row(0xac, "XRC_READ_REQUEST",          Xrc, ReadRequest,       Only,   &[Xrceth, Reth],                  Empty),
    row(0xad, "XRC_READ_RESPONSE_FIRST",   Xrc, ReadResponse,      First,  &[Aeth],                          Full),
    row(0xae, "XRC_READ_RESPONSE_MIDDLE",  Xrc, ReadResponse,      Middle, &[],                              Full),
    row(0xaf, "XRC_READ_RESPONSE_LAST",    Xrc, ReadResponse,      Last,   &[Aeth],                          Rest),
    row(0xb0, "XRC_READ_RESPONSE_ONLY",    Xrc, ReadResponse,      Only,   &[Aeth],                          Any),
    row(0xb1, "XRC_ACKNOWLEDGE",           Xrc, Acknowledge,       Only,   &[Aeth],                          Empty),
    row(0xb2, "XRC_ATOMIC_ACKNOWLEDGE",    Xrc, AtomicAcknowledge, Only,   &[Aeth, AtomicAckEth],            Empty),
    row(0xb3, "XRC_CMP_SWAP",              Xrc, CompareSwap,       Only,   &[Xrceth, AtomicEth],             Empty),
    row(0xb4, "XRC_FETCH_ADD",             Xrc, FetchAdd,          Only,   &[Xrceth, AtomicEth],             Empty),
    row(0xb6, "XRC_SEND_LAST_INV",         Xrc, Send,              Last,   &[Xrceth, Ieth],                  Rest),
    row(0xb7, "XRC_SEND_ONLY_INV",         Xrc, Send,              Only,   &[Xrceth, Ieth],                  Any),
];

const fn row(
    code: u8,
    name: &'static str,
    service: Service,
    operation: Operation,
    position: Position,
    headers: &'static [Header],
    payload: PayloadRule,
) -> Opcode {
    let mut headers_len = crate::Bth::LEN;
    let mut i = 0;
    while i < headers.len() {
        headers_len += headers[i].len();
        i += 1;
    }
    Opcode { code, name, service, operation, position, headers, payload, headers_len }
}

/// For each code its row in [`OPCODES`], counted from 1; 0 for none. A code given twice, or out of
/// order, does not compile.
static BY_CODE: [u8; 256] = {
    let mut table = [0; 256];
    let mut i = 0;
    while i < OPCODES.len() {
        let code = OPCODES[i].code as usize;
        assert!(i == 0 || OPCODES[i - 1].code < OPCODES[i].code, "ascending, each code once");
        i += 1;
        #[expect(clippy::cast_possible_truncation, reason = "fewer than 256 rows")]
        {
            table[code] = i as u8;
        }
    }
    table
};

/// For each service, operation, position and variant (none, immediate data, invalidate) the row in
/// [`OPCODES`], counted from 1; 0 for none.
static BY_MEANING: [[[[u8; 3]; 4]; 12]; 6] = {
    let mut table = [[[[0; 3]; 4]; 12]; 6];
    let mut i = 0;
    while i < OPCODES.len() {
        let Opcode { service, operation, position, headers, .. } = OPCODES[i];
        let mut variant = 0;
        let mut h = 0;
        while h < headers.len() {
            match headers[h] {
                ImmDt => variant = 1,
                Ieth => variant = 2,
                _ => {}
            }
            h += 1;
        }
        i += 1;
        #[expect(clippy::cast_possible_truncation, reason = "fewer than 256 rows")]
        {
            table[service as usize][operation as usize][position as usize][variant] = i as u8;
        }
    }
    table
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_begin_with_the_service_and_codes_with_its_bits() {
        for row in OPCODES {
            assert!(row.name.starts_with(row.service.name()), "{row}");
            assert_eq!(Service::from_code(row.code), Some(row.service), "{row}");
            assert_eq!(Opcode::from_code(row.code), Some(row));
            assert_eq!(Opcode::by_name(row.name), Some(row));
        }
        assert_eq!(OPCODES.len(), 25 + 12 + 22 + 2 + 1 + 23);
        assert_eq!(Opcode::from_code(0x15), None);
        assert_eq!(Opcode::from_code(0x80), None, "CNP is 0x81");
        assert_eq!(Service::from_code(0xc0), None);
    }

    /// UC, RD and XRC repeat the low five bits of RC.
    #[test]
    fn services_share_the_low_five_bits() {
        for row in OPCODES.iter().filter(|row| matches!(row.service, Uc | Rd | Xrc)) {
            let Some(rc) = Opcode::from_code(row.code & 0x1f) else {
                assert_eq!(row.operation, Resync);
                continue;
            };
            assert_eq!(
                (row.operation, row.position, row.payload, row.short_name()),
                (rc.operation, rc.position, rc.payload, rc.short_name())
            );
            let own = [Rdeth, Deth, Xrceth];
            let rest = row.headers.iter().filter(|h| !own.contains(h));
            assert!(rest.eq(rc.headers), "{row}: same headers behind its own");
        }
    }

    //= 02-2.1, 02-2.2 test
    #[test]
    fn the_payload_follows_from_the_position() {
        for row in OPCODES {
            let rule = match row.operation {
                Send | Write | ReadResponse => match row.position {
                    First | Middle => Full,
                    Last => Rest,
                    Only => Any,
                },
                AtomicWrite => Eight,
                _ => Empty,
            };
            assert_eq!(row.payload, rule, "{row}");
        }
    }

    #[test]
    fn rows_are_found_by_what_they_mean() {
        for row in OPCODES {
            let variant = row.headers.iter().copied().find(|h| matches!(h, ImmDt | Ieth));
            let found = Opcode::find(row.service, row.operation, row.position, variant);
            assert_eq!(found, Some(row));
        }
        assert_eq!(Opcode::find(Uc, Send, Last, Some(Ieth)), None);
        assert_eq!(Opcode::find(Rc, Write, Only, Some(Reth)), None, "that tells no rows apart");
    }

    //= IBA C9-92 test
    #[test]
    fn payload_rules_know_their_limits() {
        assert!(Full.allows(1024, 1024) && !Full.allows(1023, 1024) && !Full.allows(1025, 1024));
        assert!(Rest.allows(1, 256) && !Rest.allows(0, 256) && !Rest.allows(257, 256));
        assert!(Any.allows(0, 256) && Any.allows(256, 256) && !Any.allows(257, 256));
        assert!(Eight.allows(8, 256) && !Eight.allows(0, 256));
        assert!(Full.allows_for_some_mtu(2048) && !Full.allows_for_some_mtu(1500));
    }
}
