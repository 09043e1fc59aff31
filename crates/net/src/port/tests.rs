//! The trait has the shape that a port around a port needs: it sees each packet on its way, keeps
//! it back, sends it twice, breaks it.

use roxe_wire::{Body, IpPair, MacAddress, Path, TrafficClass, icrc};

use super::*;
use crate::memory;

/// Of every four packets: loses the first, sends the second twice, breaks the third behind its
/// ICRC, and lets the fourth pass.
struct Around<P> {
    inner: P,
    number: usize,
    again: Option<(FrameTemplate, Vec<u8>)>,
}

impl<P: FramePort> Around<P> {
    fn transmit(&mut self, source: &mut dyn FnMut(Room<'_>) -> Option<Outgoing<'static>>) -> Sent {
        let Self { inner, number, again } = self;
        inner.transmit(Instant::ZERO, &mut |room| {
            let Room { first, second } = room;
            if let Some((_, packet)) = again.take() {
                first[..packet.len()].copy_from_slice(&packet);
                return Some(Outgoing { path: path(), len: packet.len(), seal: Seal::Compute });
            }
            loop {
                let outgoing = source(Room { first: &mut *first, second: &mut *second })?;
                *number += 1;
                let len = outgoing.len;
                match *number % 4 {
                    1 => {}
                    2 => {
                        *again = Some((outgoing.path.clone(), first[..len].to_vec()));
                        return Some(outgoing);
                    }
                    3 => {
                        let mut headers = [0; FrameTemplate::MAX];
                        let cover = outgoing.path.write(len as u16, 0, &mut headers)?;
                        assert!(icrc::seal(&cover, Room::whole(&mut first[..len])));
                        first[12] ^= 1;
                        return Some(Outgoing { seal: Seal::AsWritten, ..outgoing });
                    }
                    _ => return Some(outgoing),
                }
            }
        })
    }
}

fn path() -> &'static FrameTemplate {
    static PATH: std::sync::LazyLock<FrameTemplate> = std::sync::LazyLock::new(|| {
        FrameTemplate::new(&Path {
            ethernet: (MacAddress([2; 6]), MacAddress([4; 6])),
            vlan: None,
            ip: IpPair::V4 { source: [192, 0, 2, 1].into(), destination: [192, 0, 2, 2].into() },
            traffic_class: TrafficClass(0),
            hop_limit: 64,
            flow_label: 0,
            source_port: 0xc000,
        })
    });
    &PATH
}

#[test]
fn a_port_can_be_wrapped() {
    let [inner, mut peer] = memory::pair(Mtu::B256).expect("a pair");
    let mut around = Around { inner, number: 0, again: None };
    let mut numbers = 1..=4_u8;
    around.transmit(&mut |room| {
        room.first[..20].fill(numbers.next()?);
        Some(Outgoing { path: path(), len: 20, seal: Seal::Compute })
    });
    let mut arrived = Vec::new();
    peer.receive(Instant::ZERO, &mut |packet| {
        let cover = packet.cover.expect("a whole frame arrived");
        let Body::Whole { first, .. } = packet.body else { panic!("all bytes came") };
        arrived.push((first[0], icrc::check(&cover, packet.body).is_ok()));
    });
    assert_eq!(arrived, [(2, true), (2, true), (3, false), (4, true)]);
}
