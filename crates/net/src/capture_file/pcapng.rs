//! The pcapng format: blocks, each with its type and length in front and its length again behind.
//!
//!   | type (32) | length of all (32) | body, padded to 32 bits | length of all (32) |
//!
//! A section header says in which byte order the blocks of its section are; interface descriptions
//! say how to read the packets that follow. Blocks of other types are skipped.

use super::{
    CaptureError, Direction, Interface, LinkType, MAX_PACKET_LEN, Timestamp,
    byte_order::ByteOrder,
    error::BlockProblem,
    reader::{Found, Step},
    time::Clock,
    window::{CAPACITY, Span, Window},
};

/// Where in a file the reader is.
pub(super) struct Pcapng {
    /// The byte order of this section.
    order: ByteOrder,
    /// How many interfaces earlier sections described.
    first_interface: usize,
    /// One for each interface of this section.
    clocks: Vec<Clock>,
    /// Of the last packet that has any.
    comments: String,
}

/// What is next in a file.
enum Next {
    /// A block that must be looked into, complete and already consumed.
    Block {
        kind: u32,
        body: Span,
    },
    /// A block that is skipped.
    Skipped {
        kind: u32,
    },
    End,
    Cut,
}

impl Pcapng {
    /// Reads the first section header. `None` when the input does not begin with one.
    pub(super) fn begin(window: &mut Window) -> Option<Result<Self, CaptureError>> {
        if !window.rest().starts_with(&SECTION_HEADER.to_le_bytes()) {
            return None;
        }
        let file = Self {
            order: ByteOrder::Little,
            first_interface: 0,
            clocks: Vec::new(),
            comments: String::new(),
        };
        Some(file.first_section(window))
    }

    fn first_section(mut self, window: &mut Window) -> Result<Self, CaptureError> {
        let Next::Block { body, .. } = self.next_block(window).map_err(|error| *error)? else {
            return Err(CaptureError::NoHeader { len: window.rest().len() as u64 });
        };
        self.section(0, window.get(body), 0)?;
        Ok(self)
    }

    /// Finds the next packet. Interfaces on the way are added to `interfaces`.
    #[inline]
    pub(super) fn step(
        &mut self,
        window: &mut Window,
        interfaces: &mut Vec<Interface>,
    ) -> Result<Step, Box<CaptureError>> {
        loop {
            let offset = window.offset();
            let (kind, body) = match self.next_block(window)? {
                Next::Block { kind, body } => (kind, body),
                Next::Skipped { kind: JOURNAL | CUSTOM | CUSTOM_NO_COPY | SYSTEM_CALL } => {
                    return Ok(Step::Other);
                }
                Next::Skipped { .. } => continue,
                Next::End => return Ok(Step::End),
                Next::Cut => return Ok(Step::Cut { offset }),
            };
            let bytes = window.get(body);
            let packet = match kind {
                ENHANCED_PACKET => self.enhanced_packet(bytes),
                SIMPLE_PACKET => self.simple_packet(bytes, interfaces),
                PACKET => self.packet(bytes),
                SECTION_HEADER => {
                    self.section(offset, bytes, interfaces.len())?;
                    continue;
                }
                _ => match self.interface(bytes, interfaces) {
                    Ok(()) => continue,
                    Err(problem) => Err(problem),
                },
            };
            let mut packet = packet.map_err(|problem| CaptureError::Block { offset, problem })?;
            packet.data.from += body.from;
            return Ok(Step::Packet(packet));
        }
    }

    /// The comments of the last packet, if it is [`commented`](Found::commented).
    pub(super) fn comments(&self) -> &str {
        &self.comments
    }

    /// Moves the window behind the next block.
    #[inline]
    fn next_block(&mut self, window: &mut Window) -> Result<Next, Box<CaptureError>> {
        let offset = window.offset();
        let unreadable = |reason| CaptureError::Read { offset, reason };
        let damaged = |problem| Box::new(CaptureError::Block { offset, problem });
        if !window.fill(FRAME_LEN).map_err(unreadable)? {
            return Ok(if window.rest().is_empty() { Next::End } else { Next::Cut });
        }
        let Some([kind, len, magic]) = self.order.words(window.rest()) else {
            return Ok(Next::Cut);
        };
        // The type of a section header reads the same in both byte orders; what follows does not.
        let mut len = len;
        if kind == SECTION_HEADER {
            if magic.swap_bytes() == BYTE_ORDER_MAGIC {
                self.order = self.order.other();
                len = len.swap_bytes();
            } else if magic != BYTE_ORDER_MAGIC {
                return Err(damaged(BlockProblem::ByteOrder { magic }));
            }
        }
        let Some(body_len) = (len as usize).checked_sub(FRAME_LEN) else {
            return Err(damaged(BlockProblem::TooShort { len: len as usize }));
        };
        let body = match kind {
            ENHANCED_PACKET | SIMPLE_PACKET | PACKET | SECTION_HEADER | INTERFACE => {
                if len as usize > CAPACITY {
                    return Err(damaged(BlockProblem::TooLong { len }));
                }
                if !window.fill(len as usize).map_err(unreadable)? {
                    return Ok(Next::Cut);
                }
                let body = window.span(8, body_len);
                window.consume(len as usize - 4);
                Some(body)
            }
            // However long it is: no more than its end has to be in memory.
            _ => {
                if !window.skip(u64::from(len) - 4).map_err(unreadable)?
                    || !window.fill(4).map_err(unreadable)?
                {
                    return Ok(Next::Cut);
                }
                None
            }
        };
        let Some([back]) = self.order.words(window.rest()) else {
            return Ok(Next::Cut);
        };
        if back != len {
            return Err(damaged(BlockProblem::LengthsDiffer { front: len, back }));
        }
        window.consume(4);
        Ok(match body {
            Some(body) => Next::Block { kind, body },
            None => Next::Skipped { kind },
        })
    }

    /// Section header block: a new byte order, and interfaces are counted anew.
    ///   | byte order magic (32) | major (16) | minor (16) | section length (64) | options |
    fn section(&mut self, offset: u64, body: &[u8], interfaces: usize) -> Result<(), CaptureError> {
        let Some(&[_, _, _, _, major_1, major_0, minor_1, minor_0]) = body.first_chunk() else {
            return Err(CaptureError::Block { offset, problem: too_short(body) });
        };
        let major = self.order.u16([major_1, major_0]);
        let minor = self.order.u16([minor_1, minor_0]);
        // Version 1.2 was written by mistake, and is 1.0.
        if major != 1 || !matches!(minor, 0 | 2) {
            return Err(CaptureError::Version { format: "pcapng", major, minor, offset });
        }
        self.first_interface = interfaces;
        self.clocks.clear();
        Ok(())
    }

    /// Interface description block.
    ///   | link type (16) | reserved (16) | snap length (32) | options |
    fn interface(
        &mut self,
        body: &[u8],
        interfaces: &mut Vec<Interface>,
    ) -> Result<(), BlockProblem> {
        let (fixed, options) = body.split_first_chunk::<8>().ok_or_else(|| too_short(body))?;
        let [link_1, link_0, _, _, snap_len @ ..] = *fixed;
        if interfaces.len() == MAX_INTERFACES {
            return Err(BlockProblem::TooManyInterfaces { limit: MAX_INTERFACES });
        }
        let mut name = None;
        let mut clock = Clock::MICROSECONDS;
        for Opt { code, value } in self.options(options) {
            match (code, value) {
                (IF_NAME, _) => {
                    let kept = &value[..value.len().min(MAX_NAME_LEN)];
                    name = Some(String::from_utf8_lossy(kept).trim_end_matches('\0').to_owned());
                }
                (IF_TSRESOL, &[resolution, ..]) => clock.set_resolution(resolution),
                (IF_TSOFFSET, _) => {
                    if let Some(seconds) = value.first_chunk() {
                        clock.set_offset(self.order.u64(*seconds).cast_signed());
                    }
                }
                _ => {}
            }
        }
        self.clocks.push(clock);
        interfaces.push(Interface {
            name,
            link_type: LinkType(self.order.u16([link_1, link_0])),
            snap_len: self.order.u32(snap_len),
            skipped: 0,
        });
        Ok(())
    }

    /// Enhanced packet block.
    ///   | interface (32) | ticks (64, upper half first) | captured (32) | on the wire (32) |
    ///   | packet, padded to 32 bits | options |
    #[inline]
    fn enhanced_packet(&mut self, body: &[u8]) -> Result<Found, BlockProblem> {
        let [interface, high, low, len, wire_len] =
            self.order.words(body).ok_or_else(|| too_short(body))?;
        self.timed_packet(body, interface, [high, low], len, wire_len)
    }

    /// Packet block, which the enhanced packet block replaced.
    ///   | interface (16) | drops (16) | … as above |
    fn packet(&mut self, body: &[u8]) -> Result<Found, BlockProblem> {
        let [_, high, low, len, wire_len] =
            self.order.words(body).ok_or_else(|| too_short(body))?;
        let interface = self.order.u16([body[0], body[1]]);
        self.timed_packet(body, interface.into(), [high, low], len, wire_len)
    }

    #[inline]
    fn timed_packet(
        &mut self,
        body: &[u8],
        interface: u32,
        [high, low]: [u32; 2],
        len: u32,
        wire_len: u32,
    ) -> Result<Found, BlockProblem> {
        const FIXED_LEN: usize = 20;
        let clock = self
            .clocks
            .get(interface as usize)
            .ok_or(BlockProblem::NoSuchInterface { interface, known: self.clocks.len() })?;
        let end = FIXED_LEN + len as usize;
        if len as usize > MAX_PACKET_LEN || end > body.len() {
            return Err(BlockProblem::PacketTooLong { len });
        }
        let mut found = Found {
            time: clock.at(u64::from(high) << 32 | u64::from(low)),
            interface: self.first_interface + interface as usize,
            data: Span { from: FIXED_LEN, len: len as usize },
            wire_len,
            direction: None,
            commented: false,
        };
        let options_at = end.next_multiple_of(4);
        if options_at < body.len() {
            self.packet_options(&body[options_at..], &mut found);
        }
        Ok(found)
    }

    #[cold]
    fn packet_options(&mut self, options: &[u8], found: &mut Found) {
        for Opt { code, value } in self.options(options) {
            match code {
                COMMENT => {
                    if !found.commented {
                        self.comments.clear();
                        found.commented = true;
                    }
                    add_comment(&mut self.comments, value);
                }
                PACKET_FLAGS => {
                    found.direction = match self.order.words(value) {
                        Some([flags]) if flags & 0b11 == FLAG_INBOUND => Some(Direction::Inbound),
                        Some([flags]) if flags & 0b11 == FLAG_OUTBOUND => Some(Direction::Outbound),
                        _ => None,
                    };
                }
                _ => {}
            }
        }
    }

    /// Simple packet block: no time, always the section's first interface.
    ///   | on the wire (32) | packet, padded to 32 bits |
    fn simple_packet(&self, body: &[u8], interfaces: &[Interface]) -> Result<Found, BlockProblem> {
        const FIXED_LEN: usize = 4;
        let [wire_len] = self.order.words(body).ok_or_else(|| too_short(body))?;
        let interface = interfaces
            .get(self.first_interface)
            .ok_or(BlockProblem::NoSuchInterface { interface: 0, known: 0 })?;
        let snap_len = if interface.snap_len == 0 { u32::MAX } else { interface.snap_len };
        let len = wire_len.min(snap_len);
        if len as usize > MAX_PACKET_LEN || FIXED_LEN + len as usize > body.len() {
            return Err(BlockProblem::PacketTooLong { len });
        }
        Ok(Found {
            time: Timestamp::default(),
            interface: self.first_interface,
            data: Span { from: FIXED_LEN, len: len as usize },
            wire_len,
            direction: None,
            commented: false,
        })
    }

    /// The options in `bytes`, up to the first that does not fit in.
    ///   | code (16) | length (16) | value, padded to 32 bits |
    fn options<'a>(&self, bytes: &'a [u8]) -> impl Iterator<Item = Opt<'a>> + use<'a> {
        let order = self.order;
        let mut at = 0;
        std::iter::from_fn(move || {
            let &[code_1, code_0, len_1, len_0] = bytes.get(at..)?.first_chunk()?;
            let code = order.u16([code_1, code_0]);
            let len = usize::from(order.u16([len_1, len_0]));
            let value = bytes.get(at + 4..)?.get(..len)?;
            let option = Opt { code, value };
            at = (at + 4 + len).next_multiple_of(4);
            (code != END_OF_OPTIONS).then_some(option)
        })
    }
}

/// An option of a block.
struct Opt<'a> {
    code: u16,
    value: &'a [u8],
}

/// Puts another comment behind those that are there, as long as there is room: what is no UTF-8 is
/// replaced, and an ellipsis stands for what is left out. Comments may be padded with zeros, as
/// some programs write C strings.
fn add_comment(comments: &mut String, comment: &[u8]) {
    const CUT: &str = "…";
    let end = comment.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
    let is_cut = comments.len() >= MAX_COMMENTS_LEN && comments.ends_with(CUT);
    if end == 0 || is_cut {
        return;
    }
    if !comments.is_empty() {
        comments.push_str("; ");
    }
    for chunk in comment[..end].utf8_chunks() {
        comments.push_str(chunk.valid());
        if !chunk.invalid().is_empty() {
            comments.push(char::REPLACEMENT_CHARACTER);
        }
        if comments.len() > MAX_COMMENTS_LEN {
            comments.truncate(comments.floor_char_boundary(MAX_COMMENTS_LEN));
            comments.push_str(CUT);
            return;
        }
    }
}

fn too_short(body: &[u8]) -> BlockProblem {
    BlockProblem::TooShort { len: FRAME_LEN + body.len() }
}

/// A block's type and two lengths.
pub(super) const FRAME_LEN: usize = 12;

pub(super) const SECTION_HEADER: u32 = 0x0a0d_0d0a;
pub(super) const INTERFACE: u32 = 1;
const PACKET: u32 = 2;
const SIMPLE_PACKET: u32 = 3;
pub(super) const ENHANCED_PACKET: u32 = 6;
// No packets, but Wireshark gives each a number of its own.
const JOURNAL: u32 = 9;
const SYSTEM_CALL: u32 = 0x204;
const CUSTOM: u32 = 0x0bad;
const CUSTOM_NO_COPY: u32 = 0x4000_0bad;

pub(super) const BYTE_ORDER_MAGIC: u32 = 0x1a2b_3c4d;

const END_OF_OPTIONS: u16 = 0;
pub(super) const COMMENT: u16 = 1;
pub(super) const APPLICATION: u16 = 4;
pub(super) const IF_NAME: u16 = 2;
pub(super) const IF_DESCRIPTION: u16 = 3;
pub(super) const IF_TSRESOL: u16 = 9;
const IF_TSOFFSET: u16 = 14;
pub(super) const PACKET_FLAGS: u16 = 2;
pub(super) const FLAG_INBOUND: u32 = 0b01;
pub(super) const FLAG_OUTBOUND: u32 = 0b10;

/// The most interfaces a file may describe. `mergecap` writes one for each file it merges, so there
/// may be many; but they are kept, so there must be an end.
const MAX_INTERFACES: usize = 65_536;

/// How many bytes of a packet's comments are kept: room for the longest that there can be.
const MAX_COMMENTS_LEN: usize = 65_535;

/// The longest interface name that is kept. Linux has 15 bytes, Windows a GUID.
pub(super) const MAX_NAME_LEN: usize = 256;
