//! In-band network telemetry: what switches say of their links, beside packets.
//!
//! Each switch tells of the port on which a packet of data leaves; who receives it gives that back
//! with its next acknowledgement. It stands beside the packets, which are RoCEv2 as ever, and takes
//! no room on the wire. Nothing is kept when nobody wants it.

use roxe_transport::congestion::hpcc::{Hop, MAX_HOPS};

/// What one packet was told.
#[derive(Clone, Copy, Debug, Default)]
struct Told {
    hops: [Hop; MAX_HOPS],
    count: usize,
}

/// What all packets on their way were told, and the newest of each flow.
#[derive(Debug)]
pub(super) struct Telemetry {
    wanted: bool,
    packets: Vec<Told>,
    flows: Vec<Told>,
}

/// Which packet: its place, the flow, and whether it carries data.
#[derive(Clone, Copy, Debug)]
pub(super) struct Which {
    pub(super) id: u32,
    pub(super) flow: u32,
    pub(super) data: bool,
}

impl Telemetry {
    pub(super) fn new(wanted: bool, flows: usize) -> Self {
        let flows = if wanted { vec![Told::default(); flows] } else { Vec::new() };
        Self { wanted, packets: Vec::new(), flows }
    }

    pub(super) const fn is_wanted(&self) -> bool {
        self.wanted
    }

    /// A host sends a packet: of data with nothing, an answer with what data brought.
    pub(super) fn send(&mut self, Which { id, flow, data }: Which) {
        let id = id as usize;
        if self.packets.len() <= id {
            self.packets.resize(id + 1, Told::default());
        }
        self.packets[id] = match self.flows.get(flow as usize) {
            Some(told) if !data => *told,
            _ => Told::default(),
        };
    }

    /// A switch sends it on.
    pub(super) fn pass(&mut self, Which { id, data, .. }: Which, hop: Hop) {
        let Some(told) = self.packets.get_mut(id as usize).filter(|_| data) else { return };
        if let Some(place) = told.hops.get_mut(told.count) {
            *place = hop;
            told.count += 1;
        }
    }

    /// It arrives. Says what an answer brings.
    pub(super) fn arrive(&mut self, Which { id, flow, data }: Which) -> Option<&[Hop]> {
        let told = self.packets.get(id as usize)?;
        if data {
            *self.flows.get_mut(flow as usize)? = *told;
            return None;
        }
        Some(&told.hops[..told.count])
    }
}

#[cfg(test)]
mod tests {
    use roxe_transport::congestion::Rate;

    use super::*;

    #[test]
    fn an_answer_brings_what_the_newest_packet_of_data_was_told() {
        let mut telemetry = Telemetry::new(true, 2);
        let hop = |at_ps| Hop { at_ps, sent: 1, waiting: 2, rate: Rate::from_mbps(1) };
        let data = |id| Which { id, flow: 1, data: true };
        for id in [5, 3] {
            telemetry.send(data(id));
            telemetry.pass(data(id), hop(id.into()));
            telemetry.pass(data(id), hop(10));
            assert_eq!(telemetry.arrive(data(id)), None);
        }
        let answer = Which { id: 5, flow: 1, data: false };
        telemetry.send(answer);
        telemetry.pass(answer, hop(99));
        assert_eq!(telemetry.arrive(answer), Some(&[hop(3), hop(10)][..]));
        // The place is used again, by another flow.
        let other = Which { flow: 0, ..answer };
        telemetry.send(other);
        assert_eq!(telemetry.arrive(other), Some(&[][..]));
        for _ in 0..20 {
            telemetry.pass(data(5), hop(7));
        }
        assert_eq!(telemetry.packets[5].count, MAX_HOPS, "there is room for so many");
    }
}
