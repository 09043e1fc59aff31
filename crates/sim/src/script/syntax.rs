//! What a script says, as data.

use std::net::IpAddr;
use std::rc::Rc;
use std::time::Duration;

use roxe_wire::Opcode;

use super::mad::Message;
use super::mistake::{Mistake, ParseError};
use super::words::{Token, Word};

/// A script: its lines that say something, in order.
#[derive(Debug)]
pub(super) struct Script {
    pub(super) lines: Vec<Line>,
}

/// A line, or one of several statements that share it.
#[derive(Debug)]
pub(super) struct Line {
    /// Counted from 1.
    pub(super) number: usize,
    /// As it stands in the file, without comment, and not longer than can be read.
    pub(super) text: Rc<str>,
    /// The statement's own words.
    pub(super) words: Vec<Word>,
    /// When, counted from the line before.
    pub(super) when: When,
    pub(super) statement: Statement,
}

impl Line {
    /// In characters, from 1 on.
    pub(super) fn column(&self) -> usize {
        self.words.first().map_or(1, |word| word.column)
    }

    /// Where in the file a mistake is.
    pub(super) fn place(&self, file: &str, mistake: Mistake) -> ParseError {
        let Mistake { word, what } = mistake;
        let bare = |place: &&Word| match &place.token {
            Token::Bare(bare) => {
                !word.is_empty() && bare.split(['.', '+', ':', ',']).any(|part| part == word)
            }
            Token::Quoted(_) => false,
        };
        let column = self.words.iter().find(bare).map_or_else(|| self.column(), |word| word.column);
        ParseError { file: file.to_owned(), line: self.number, column, what }
    }
}

/// When something happens or must happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum When {
    /// Exactly so long after the line before.
    After(Duration),
    /// Between these two, both included.
    Between(Duration, Duration),
}

impl When {
    /// At the same time as the line before.
    pub(super) const SAME: Self = Self::After(Duration::ZERO);
}

/// What a line says.
#[derive(Debug)]
pub(super) enum Statement {
    /// The adapter and its surroundings.
    Device(Arguments),
    /// An object is made.
    Make { object: ObjectKind, name: String, arguments: Arguments, fails: Option<String> },
    /// A receive request.
    PostReceive { queue: String, arguments: Arguments, fails: Option<String> },
    /// A send request.
    PostSend { verb: SendVerb, qp: String, arguments: Arguments, fails: Option<String> },
    /// A verb.
    Call { verb: CallVerb, target: String, arguments: Arguments, fails: Option<String> },
    /// The application writes to its memory.
    Fill { place: Place, bytes: Vec<u8> },
    /// A frame reaches the device.
    Into { qp: String, packet: PacketForm },
    /// A frame leaves the device: one of these forms.
    Out { qp: String, forms: Vec<PacketForm> },
    /// The next completion of one kind.
    Completion { qp: Option<String>, receive: bool, arguments: Arguments },
    /// The next event of an object.
    Event { object: String, name: String, arguments: Arguments },
    /// A counter's value: the device's, or a queue pair's.
    Counter { qp: Option<String>, name: String, value: u64 },
    /// The contents of memory.
    Memory { place: Place, bytes: Vec<u8> },
    /// A queue pair's state.
    State { qp: String, name: String },
    /// What a queue pair says of its end.
    Why { qp: String, sentence: String },
    /// The device gets to send.
    Turn,
    /// The device has done nothing else.
    Quiet,
}

/// The kinds of objects that scripts make.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ObjectKind {
    Pd,
    Cq,
    Mr,
    Mw,
    Ah,
    Srq,
    Qp(Service),
    /// The connection manager of the device, with its queue pair 1.
    Cm,
    Listener,
    /// What events and calls make of it, each with a name of its own.
    Connection,
    Resolution,
    Question,
}

/// The services of queue pairs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Service {
    Rc,
    Uc,
    Ud,
    /// Queue pair 1, for management datagrams.
    Gsi,
}

/// What a send request does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SendVerb {
    Send,
    Write,
    Read,
    CompareSwap,
    FetchAdd,
    AtomicWrite,
    Flush,
    Bind,
    Register,
    Invalidate,
}

/// Verbs besides posting and making.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CallVerb {
    Modify,
    Destroy,
    Reregister,
    Attach,
    Detach,
    Notify,
    Resize,
    Lose,
    AddGid,
    RemoveGid,
    Hold,
    Release,
    Connect,
    Accept,
    Establish,
    Reject,
    Disconnect,
    Resolve,
    Answer,
}

impl CallVerb {
    /// Whether the connection manager is called, and the device only then.
    pub(super) const fn is_about_connections(self) -> bool {
        matches!(
            self,
            Self::Connect
                | Self::Accept
                | Self::Establish
                | Self::Reject
                | Self::Disconnect
                | Self::Resolve
                | Self::Answer
        )
    }
}

/// A place in a region: `m1+8`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) region: String,
    pub(super) offset: u64,
}

/// A frame as a script writes it.
#[derive(Clone, Debug)]
pub(super) struct PacketForm {
    pub(super) name: PacketName,
    pub(super) arguments: Arguments,
}

/// How a script calls a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PacketName {
    /// Three of the four things that an ACKNOWLEDGE can be.
    Ack,
    RnrNak,
    Nak,
    /// A row of the opcode table, by its name without the service.
    Short(&'static str),
    /// A row, by its whole name.
    Row(&'static Opcode),
    /// `OPCODE n`: any value at all.
    Raw(u8),
    /// A management datagram that connects, or parts.
    Cm(&'static Message),
}

impl PacketName {
    /// As a script writes it.
    pub(super) const fn text(self) -> &'static str {
        match self {
            Self::Ack => "ACK",
            Self::RnrNak => "RNR_NAK",
            Self::Nak => "NAK",
            Self::Short(short) => short,
            Self::Row(row) => row.name,
            Self::Raw(_) => "OPCODE",
            Self::Cm(message) => message.name,
        }
    }
}

/// What stands behind the words that open a statement.
#[derive(Clone, Debug, Default)]
pub(super) struct Arguments {
    pub(super) named: Vec<(&'static str, Value)>,
    pub(super) payload: Option<Bytes>,
}

/// A payload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Bytes {
    Any,
    These(Vec<u8>),
}

/// An argument's value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Value {
    /// `*`.
    Any,
    /// It is named, and nothing else.
    Flag,
    Number(Expression),
    Word(String),
    /// `a,b,c`.
    List(Vec<String>),
    Address(IpAddr),
    /// `m1+0:64,m2:8`.
    Pieces(Vec<(Place, u32)>),
}

/// A number, or what stands for one and how much to add.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Expression {
    /// `m1.va`: the object and which of its numbers.
    pub(super) symbol: Option<(String, String)>,
    /// Added, modulo 2⁶⁴.
    pub(super) plus: u64,
    /// What it may be at the most.
    pub(super) most: u64,
}

impl Arguments {
    /// The value of an argument, if it is there.
    pub(super) fn get(&self, name: &str) -> Option<&Value> {
        self.named.iter().find(|(known, _)| *known == name).map(|(_, value)| value)
    }

    /// Whether an argument is there at all.
    pub(super) fn has(&self, name: &str) -> bool {
        self.get(name).is_some()
    }

    /// A word.
    pub(super) fn word(&self, name: &str) -> Option<&str> {
        match self.get(name)? {
            Value::Word(word) => Some(word),
            _ => None,
        }
    }

    /// A list of words; empty when it is not there, or `none`.
    pub(super) fn list(&self, name: &str) -> &[String] {
        match self.get(name) {
            Some(Value::List(words)) => words,
            _ => &[],
        }
    }

    /// An address.
    pub(super) fn address(&self, name: &str) -> Option<IpAddr> {
        match self.get(name)? {
            Value::Address(address) => Some(*address),
            _ => None,
        }
    }

    /// The bytes of the payload; `None` when there is none, or any is right.
    pub(super) fn bytes(&self) -> Option<&[u8]> {
        match self.payload.as_ref()? {
            Bytes::These(bytes) => Some(bytes),
            Bytes::Any => None,
        }
    }
}
