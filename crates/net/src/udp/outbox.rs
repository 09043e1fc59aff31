//! Packets on their way into the socket: written one behind the other, joined where the kernel may
//! take them apart again, and kept until it has taken them.

use std::net::{IpAddr, SocketAddr};
use std::os::fd::BorrowedFd;

use roxe_wire::{ROCE_PORT, Room, TrafficClass, icrc};
use rustix::io::Errno;

use super::message::{self, AT_ONCE, ToSend};
use crate::port::{BATCH, Outgoing, Seal, Traffic};

/// The packets of one batch.
#[derive(Debug)]
pub(super) struct Outbox {
    memory: Box<[u8]>,
    /// Bytes that the next packet may take.
    room: usize,
    /// Bytes that are taken.
    used: usize,
    packets: Vec<Packet>,
    /// Packets that the kernel took, or that it will never take.
    done: usize,
    /// Packets before this one are not joined.
    alone_until: usize,
    /// What the next call gives to the kernel, and how many packets each message has.
    messages: Vec<ToSend>,
    joined: Vec<usize>,
    pub(super) counts: Counts,
}

/// What became of messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    /// System calls.
    pub(super) calls: u64,
    /// Packets that were joined with others.
    pub(super) joined: u64,
    /// Messages of several packets that the kernel refused to take apart.
    pub(super) join_refused: u64,
    /// Packets that the kernel refused.
    pub(super) refused: u64,
    /// Errors of the socket that are no packet's.
    pub(super) socket_errors: u64,
}

/// A packet to be sent.
#[derive(Clone, Copy, Debug)]
struct Packet {
    at: usize,
    len: usize,
    to: SocketAddr,
    traffic_class: TrafficClass,
    hop_limit: u8,
    /// Whether it may be joined with others.
    joins: bool,
}

/// What an error means for the packet that it is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// Nothing: the error is about something earlier.
    Again,
    /// It has to wait.
    Full,
    /// It is longer than the network takes.
    TooLong,
    /// The kernel does not want it.
    Refused,
}

impl Outbox {
    /// Room for a batch of packets of at most `room` bytes.
    pub(super) fn new(room: usize) -> Self {
        Self {
            memory: vec![0; BATCH * room].into(),
            room,
            used: 0,
            packets: Vec::with_capacity(BATCH),
            done: 0,
            alone_until: 0,
            messages: Vec::with_capacity(AT_ONCE),
            joined: Vec::with_capacity(AT_ONCE),
            counts: Counts::default(),
        }
    }

    /// Whether packets wait that the kernel did not take.
    pub(super) fn is_full(&self) -> bool {
        !self.packets.is_empty()
    }

    /// Room for a packet, if the last batch is gone.
    pub(super) fn room(&mut self) -> Room<'_> {
        Room::whole(&mut self.memory[self.used..self.used + self.room])
    }

    /// Takes the packet that was written into the room. Says whether it can be sent at all: not if
    /// its path has another source than `from`, or a destination of the other family.
    pub(super) fn take(
        &mut self,
        outgoing: Outgoing<'_>,
        from: SocketAddr,
        joins: impl FnOnce(IpAddr) -> bool,
    ) -> bool {
        let Outgoing { path, len, seal } = outgoing;
        let ip = path.ip_header();
        let (Some(bytes), Ok(packet_len)) =
            (self.memory[self.used..][..self.room].get_mut(..len), u16::try_from(len))
        else {
            return false;
        };
        if ip.source() != from.ip() {
            return false;
        }
        if seal == Seal::Compute {
            let path = path.with_source_port(ROCE_PORT);
            let Some(cover) = path.icrc_cover(packet_len, 0) else { return false };
            if !icrc::seal(&cover, Room::whole(bytes)) {
                return false;
            }
        }
        let mut to = SocketAddr::new(ip.destination(), ROCE_PORT);
        if let (SocketAddr::V6(to), SocketAddr::V6(from)) = (&mut to, from) {
            // A link-local address says nothing without its link, which is ours.
            if to.ip().is_unicast_link_local() {
                to.set_scope_id(from.scope_id());
            }
        }
        self.packets.push(Packet {
            at: self.used,
            len,
            to,
            traffic_class: ip.traffic_class(),
            hop_limit: ip.hop_limit().max(1),
            joins: len > 0 && joins(to.ip()),
        });
        self.used += len;
        true
    }

    /// Gives the kernel all that it takes. Says whether that was everything.
    pub(super) fn flush(&mut self, socket: BorrowedFd<'_>, traffic: &mut Traffic) -> bool {
        while self.done < self.packets.len() {
            self.join();
            self.counts.calls += 1;
            match message::send(socket, &self.messages, &self.memory) {
                Ok(sent) => {
                    for &packets in &self.joined[..sent] {
                        let end = self.done + packets;
                        self.packets[self.done..end].iter().for_each(|it| traffic.sent(it.len));
                        self.counts.joined += if packets > 1 { packets as u64 } else { 0 };
                        self.done = end;
                    }
                }
                Err(error) => match (Fate::of(error), self.joined[0]) {
                    (Fate::Again, _) => {
                        self.counts.socket_errors += u64::from(error != Errno::INTR);
                    }
                    (Fate::Full, _) => return false,
                    // It may be about one of them, or about joining.
                    (_, packets) if packets > 1 => {
                        self.counts.join_refused += 1;
                        self.alone_until = self.done + packets;
                    }
                    (Fate::TooLong, _) => {
                        traffic.tx_unsendable += 1;
                        self.done += 1;
                    }
                    (Fate::Refused, _) => {
                        self.counts.refused += 1;
                        self.done += 1;
                    }
                },
            }
        }
        self.packets.clear();
        (self.used, self.done, self.alone_until) = (0, 0, 0);
        true
    }

    /// Makes messages of the packets that are not done.
    fn join(&mut self) {
        self.messages.clear();
        self.joined.clear();
        let mut rest = &self.packets[self.done..];
        let mut number = self.done;
        while let Some(first) = rest.first().filter(|_| self.messages.len() < AT_ONCE) {
            let count = if number < self.alone_until { 1 } else { joinable(rest) };
            let (these, behind) = rest.split_at(count);
            let end = these.last().map_or(first.at, |last| last.at + last.len);
            let segment = u16::try_from(first.len).ok().filter(|_| count > 1);
            self.messages.push(ToSend::new(
                first.at..end,
                first.to,
                first.traffic_class,
                first.hop_limit,
                segment,
            ));
            self.joined.push(count);
            rest = behind;
            number += count;
        }
    }
}

/// How many packets from the first on can be one message: they go the same way, and all are as long
/// as the first, but the last, which may be shorter.
fn joinable(packets: &[Packet]) -> usize {
    let Some((first, others)) = packets.split_first().filter(|(first, _)| first.joins) else {
        return 1;
    };
    let mut total = first.len;
    let mut last_len = first.len;
    let alike = others.iter().take(MAX_SEGMENTS - 1).take_while(|next| {
        let fits = last_len == first.len
            && next.len <= first.len
            && next.len > 0
            && total + next.len <= MAX_MESSAGE
            && (next.to, next.traffic_class, next.hop_limit)
                == (first.to, first.traffic_class, first.hop_limit);
        total += next.len;
        last_len = next.len;
        fits
    });
    1 + alike.count()
}

impl Fate {
    pub(super) fn of(error: Errno) -> Self {
        match error {
            // An answer that something came back, reported to whoever sends next.
            Errno::INTR | Errno::CONNREFUSED => Self::Again,
            Errno::AGAIN | Errno::NOBUFS | Errno::NOMEM => Self::Full,
            Errno::MSGSIZE => Self::TooLong,
            _ => Self::Refused,
        }
    }
}

/// The most datagrams that Linux takes in one message, and the most bytes.
const MAX_SEGMENTS: usize = 64;
const MAX_MESSAGE: usize = u16::MAX as usize - 20 - 8;
