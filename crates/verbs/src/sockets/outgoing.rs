//! What may be sent: credits, places at the peer, requests, and the ring that is sent from.

use crate::sockets::wire::{Hello, Place};

/// What is known of what may be sent.
#[derive(Debug)]
pub(super) struct Outgoing {
    /// Messages that were sent, and up to which number they may be; both count around.
    sent: u16,
    upto: u16,
    /// Where the next bytes go, and where those go that follow.
    places: [Place; 2],
    /// Which entry of our table the peer changes next.
    expected: u32,
    /// Requests that may be posted: for the stream, and for what the sockets say to each other.
    requests: Left,
    controls: Left,
    /// The ring.
    ring: Ring,
}

/// How many there are, and how many are left.
#[derive(Clone, Copy, Debug)]
struct Left {
    all: u32,
    left: u32,
}

impl Left {
    const fn new(all: u32) -> Self {
        Self { all, left: all }
    }

    const fn take(&mut self) {
        self.left = self.left.saturating_sub(1);
    }

    fn give_back(&mut self) {
        self.left = self.all.min(self.left + 1);
    }
}

/// Bytes that were posted stay until they are sent, in order.
#[derive(Debug)]
struct Ring {
    size: u32,
    at: u32,
    free: u32,
}

/// Bytes of the ring: where they begin, and how many.
pub(super) type Piece = (u32, u32);

/// Entries of our table of places.
pub(super) const PLACES: u32 = 2;

/// Requests for what the sockets say to each other.
pub(super) const CONTROLS: u32 = 4;

/// Bytes of a message. Larger ones would only wait longer for the first byte.
const MOST: u32 = 1 << 16;

/// Less room in the ring is waited for to grow.
const LEAST_ROOM: u32 = 2048;

impl Outgoing {
    /// Nothing may be sent.
    pub(super) fn new(requests: u32, ring: u32) -> Self {
        Self {
            sent: 0,
            upto: 0,
            places: [Place::default(); 2],
            // The first place comes with the greeting.
            expected: 1 % PLACES,
            requests: Left::new(requests.saturating_sub(CONTROLS)),
            controls: Left::new(CONTROLS),
            ring: Ring { size: ring, at: 0, free: ring },
        }
    }

    /// The peer has said what there is.
    pub(super) fn begin(&mut self, peer: &Hello) {
        self.upto = peer.credits;
        self.places[0] = peer.buffer;
    }

    /// The entry of the table that the peer changes next.
    pub(super) const fn expected(&self) -> u32 {
        self.expected
    }

    /// The peer has told up to which message may be sent.
    pub(super) fn credits(&mut self, upto: u16) {
        self.upto = upto;
    }

    /// The peer has told of a place.
    ///
    /// # Errors
    /// It has told of two, and neither is full.
    pub(super) fn place(&mut self, place: Place) -> Result<(), &'static str> {
        self.settle();
        let empty = self.places.iter_mut().find(|it| it.len == 0);
        *empty.ok_or("it offers a place before the last is full")? = place;
        self.expected = (self.expected + 1) % PLACES;
        Ok(())
    }

    /// The next place comes first when the one before is full.
    const fn settle(&mut self) {
        if self.places[0].len == 0 {
            self.places.swap(0, 1);
        }
    }

    /// How many bytes the next message may have; 0 if there can be none now.
    pub(super) fn room(&mut self) -> u32 {
        self.settle();
        if self.sent == self.upto { 0 } else { self.places[0].len.min(self.direct_room()) }
    }

    /// The same without a credit, for memory of the peer that is no part of the stream.
    pub(super) fn direct_room(&self) -> u32 {
        match self.requests.left {
            0 => 0,
            _ if self.ring.free < LEAST_ROOM.min(self.ring.size) => 0,
            _ => self.ring.free.min(MOST),
        }
    }

    /// Whether a piece of memory may be told of.
    pub(super) const fn may_tell(&self) -> bool {
        self.requests.left != 0 && self.sent != self.upto
    }

    /// A piece of memory is told of: that is a message.
    pub(super) fn tell(&mut self) {
        self.requests.take();
        self.sent = self.sent.wrapping_add(1);
    }

    /// So many bytes, up to [`room`](Self::room), are sent: to where.
    pub(super) fn send(&mut self, len: u32) -> Place {
        self.settle();
        self.tell();
        let place = &mut self.places[0];
        let to = Place { len, ..*place };
        place.address = place.address.wrapping_add(len.into());
        place.len -= len;
        to
    }

    /// Bytes go to memory of the peer that is no part of the stream.
    pub(super) fn send_direct(&mut self) {
        self.requests.take();
    }

    /// A request of the stream is done, which had so many bytes of the ring.
    pub(super) fn done(&mut self, bytes: u32) {
        self.requests.give_back();
        self.ring.free = self.ring.size.min(self.ring.free + bytes);
    }

    /// Takes so many bytes of the ring, of which there are as many: where.
    pub(super) fn take_ring(&mut self, len: u32) -> [Piece; 2] {
        let Ring { size, at, free } = &mut self.ring;
        *free -= len;
        let first = len.min(*size - *at);
        let pieces = [(*at, first), (0, len - first)];
        *at = (*at + len) % *size;
        pieces
    }

    /// Whether the socket may say something.
    pub(super) const fn may_control(&self) -> bool {
        self.controls.left != 0
    }

    pub(super) fn control(&mut self) {
        self.controls.take();
    }

    pub(super) fn control_done(&mut self) {
        self.controls.give_back();
    }

    /// How many requests are under way.
    pub(super) const fn under_way(&self) -> u32 {
        self.requests.all - self.requests.left + self.controls.all - self.controls.left
    }

    /// Whether everything that was posted is done.
    pub(super) const fn is_idle(&self) -> bool {
        self.under_way() == 0
    }
}

#[cfg(test)]
mod tests {
    use roxe_wire::RKey;

    use super::*;
    use crate::sockets::wire::{MapCount, Order};

    fn hello(credits: u16, len: u32) -> Hello {
        let table = Place { address: 0, key: RKey(1), len: 2 };
        let buffer = Place { address: 1000, key: RKey(7), len };
        Hello { order: Order::NATIVE, credits, table, maps: MapCount::default(), buffer }
    }

    fn begun(credits: u16, len: u32) -> Outgoing {
        let mut outgoing = Outgoing::new(20, 8192);
        assert_eq!(outgoing.room(), 0, "nobody has said anything yet");
        outgoing.begin(&hello(credits, len));
        outgoing
    }

    #[test]
    fn credits_are_used_up_and_count_around() {
        let mut outgoing = begun(2, 1 << 20);
        for _ in 0..2 {
            assert_eq!(outgoing.room(), 8192);
            outgoing.send(1);
        }
        assert_eq!(outgoing.room(), 0);
        outgoing.credits(3);
        assert_ne!(outgoing.room(), 0);
        let mut outgoing = begun(0, 1 << 20);
        outgoing.sent = u16::MAX;
        assert_ne!(outgoing.room(), 0);
        outgoing.send(1);
        assert_eq!((outgoing.sent, outgoing.room()), (0, 0));
    }

    #[test]
    fn a_place_is_filled_before_the_next_is_used() {
        let mut outgoing = begun(100, 10);
        assert_eq!((outgoing.room(), outgoing.expected()), (10, 1));
        let next = Place { address: 5000, key: RKey(8), len: 10 };
        outgoing.place(next).unwrap();
        assert_eq!(outgoing.expected(), 0);
        assert!(outgoing.place(next).is_err(), "both are still to be filled");
        assert_eq!(outgoing.send(4), Place { address: 1000, key: RKey(7), len: 4 });
        assert_eq!(outgoing.room(), 6, "no message lies in two places");
        assert_eq!(outgoing.send(6).address, 1004);
        assert_eq!((outgoing.room(), outgoing.send(10)), (10, next));
        assert_eq!(outgoing.room(), 0);
        outgoing.place(next).unwrap();
        assert_eq!(outgoing.room(), 10);
    }

    #[test]
    fn the_ring_is_given_back_in_order() {
        let mut outgoing = begun(100, 1 << 20);
        assert_eq!(outgoing.take_ring(6000), [(0, 6000), (0, 0)]);
        assert_eq!(outgoing.room(), 2192);
        assert_eq!(outgoing.take_ring(200), [(6000, 200), (0, 0)]);
        assert_eq!(outgoing.room(), 0, "so little is not worth a message");
        outgoing.done(6000);
        assert_eq!(outgoing.take_ring(3000), [(6200, 1992), (0, 1008)]);
        outgoing.done(200);
        outgoing.done(3000);
        assert_eq!(outgoing.room(), 8192);
    }

    #[test]
    fn requests_are_never_more_than_the_queue_holds() {
        let mut outgoing = begun(100, 1 << 20);
        for _ in 0..16 {
            assert!(outgoing.may_tell() && outgoing.room() != 0);
            outgoing.send(1);
        }
        assert_eq!((outgoing.room(), outgoing.direct_room(), outgoing.may_tell()), (0, 0, false));
        for _ in 0..CONTROLS {
            assert!(outgoing.may_control());
            outgoing.control();
        }
        assert!(!outgoing.may_control());
        outgoing.control_done();
        outgoing.done(0);
        assert!(outgoing.may_control() && outgoing.room() != 0 && !outgoing.is_idle());
    }
}
