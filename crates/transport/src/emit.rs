//! Writing one packet to where the caller lends room.

use roxe_wire::{Headers, ICRC_LEN, PacketWriter, Room, pad_for};

use crate::adapter::Place;
use crate::work::PathId;

/// Where a packet goes: frame memory, or only its headers when payload bytes are elided.
#[derive(Debug)]
pub struct Outlet<'a> {
    /// The memory. The first piece has room for all headers; both together for the largest packet
    /// of the path MTU, pad and ICRC. With `elide` set, for the headers alone.
    pub room: Room<'a>,
    /// Whether the payload is represented by its digest.
    pub elide: bool,
}

impl Outlet<'_> {
    /// The same outlet, for a while.
    pub fn reborrow(&mut self) -> Outlet<'_> {
        Outlet { room: self.room.reborrow(), elide: self.elide }
    }
}

/// A packet that was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Emitted {
    /// Bytes from the BTH to the last pad byte, the elided ones counted. The ICRC is to follow.
    pub len: usize,
    /// Bytes of payload.
    pub payload: usize,
    /// The digest of elided payload; 0 when the bytes are there.
    pub digest: u32,
    /// The path of a datagram; `None` when the queue pair's own path is meant.
    pub path: Option<PathId>,
}

/// Writes headers and pad, and lets `fill` write `payload` bytes between them. Sets the pad count.
///
/// `None` when the room is too small: then nothing is sent, and what was to be is owed still.
//= BC-058
pub(crate) fn emit<E>(
    outlet: Outlet<'_>,
    headers: &mut Headers,
    payload: usize,
    fill: impl FnOnce(Place<'_>) -> Result<(), E>,
) -> Option<Result<Emitted, E>> {
    headers.bth.pad = pad_for(payload);
    let mut emitted = Emitted { len: 0, payload, digest: 0, path: None };
    if outlet.elide {
        let headers_len = headers.emit(outlet.room.first).ok()?;
        emitted.len = headers_len + payload + usize::from(headers.bth.pad);
        let place = Place::Elided { len: payload, digest: &mut emitted.digest };
        return Some(fill(place).map(|()| emitted));
    }
    let mut writer = PacketWriter::start(headers, payload, outlet.room).ok()?;
    let fill = |[first, second]: [&mut [u8]; 2]| fill(Place::Bytes { first, second });
    let filled = writer.fill(payload, fill).ok()?;
    emitted.len = writer.finish_unsealed().ok()? - ICRC_LEN;
    Some(filled.map(|()| emitted))
}
