//! Whatever comes, nothing panics, and nothing grows beyond its limit.

use proptest::collection::vec;
use proptest::prelude::*;
use roxe_wire::Instant;
use roxe_wire::mad::{Mad, MadHeader};

use super::pair::{Pair, connect, events, sent, turned};
use crate::{Accept, Answer, Event, Listen, PortSpace, RejectReason, Resolve};

/// Which message, which IDs, what is in it, and which bytes are changed then.
type Datagram = (u16, [u8; 2], Vec<u8>, Vec<(usize, u8)>);

/// A well-formed header with any message behind it, whose IDs are near those in use.
fn datagram() -> impl Strategy<Value = Datagram> {
    let ids = any::<[u8; 2]>();
    (0..12_u16, ids, vec(any::<u8>(), 232), vec((0..256_usize, any::<u8>()), 0..3))
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 200,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]
    #[test]
    fn no_datagram_does_harm(steps in vec((datagram(), 0..40_u8, any::<bool>()), 1..60)) {
        let mut pair = Pair::new();
        pair.server.listen(Listen::port(PortSpace::Udp, 9, 2)).unwrap();
        pair.establish();
        let _ = pair.client.resolve(pair.now, &Resolve::port(connect().path, 5, 9));
        for ((kind, ids, data, flips), act, to_client) in steps {
            let ours: Vec<u32> = pair.client.connections.keys().map(|id| id.0).collect();
            let theirs: Vec<u32> = pair.server.connections.keys().map(|id| id.0).collect();
            let near = |known: &[u32], byte: u8| {
                let known = known.get(usize::from(byte) % (known.len() + 1)).copied();
                known.unwrap_or_else(|| byte.into())
            };
            let header = MadHeader {
                base_version: 1,
                class: MadHeader::CLASS_CM,
                class_version: MadHeader::CLASS_VERSION_CM,
                method: MadHeader::METHOD_SEND,
                status: 0,
                class_specific: 0,
                transaction_id: 1,
                attribute_id: 0x10 + kind,
                attribute_modifier: 0,
            };
            let mut bytes = [0; Mad::LEN];
            bytes[..24].copy_from_slice(&header.emit());
            bytes[24..].copy_from_slice(&data);
            let (local, remote) = if to_client { (&theirs, &ours) } else { (&ours, &theirs) };
            bytes[24..28].copy_from_slice(&near(local, ids[0]).to_be_bytes());
            bytes[28..32].copy_from_slice(&near(remote, ids[1]).to_be_bytes());
            for (at, value) in flips {
                bytes[at] = value;
            }
            let path = connect().path;
            let (agent, from) = if to_client {
                (&mut pair.client, path)
            } else {
                (&mut pair.server, turned(path))
            };
            sent(agent);
            agent.handle_mad(pair.now, from, &bytes);
            prop_assert!(sent(agent).len() <= 2, "one datagram is answered by two at most");
            prop_assert!(agent.len() <= agent.config.max_connections);
            for event in events(agent) {
                react(agent, pair.now, event, act);
            }
            if act % 8 == 0 {
                pair.wait();
            }
        }
        finish(&mut pair);
    }
}

/// An application that does something with whatever it hears.
fn react(agent: &mut crate::Agent, now: Instant, event: Event, act: u8) {
    // Whether a call has a meaning is the agent's to say.
    let _ = match event {
        Event::Request { connection, .. } => match act % 4 {
            0 => Ok(()),
            1 => agent.reject(now, connection, RejectReason::NoQp, &[]),
            2 => agent.destroy(now, connection),
            _ => agent.accept(now, connection, &Accept::new(super::pair::SERVER_QPN)).map(drop),
        },
        Event::Reply { connection, .. } => match act % 3 {
            0 => agent.disconnect(now, connection, &[]),
            1 => agent.destroy(now, connection),
            _ => agent.ready(connection, &[]),
        },
        Event::Question { question, .. } => {
            let answer = Answer::Serve { qpn: super::pair::SERVER_QPN, q_key: None };
            agent.answer(now, question, answer, &[])
        }
        _ => Ok(()),
    };
}

/// Applications go away; what is left goes by itself.
fn finish(pair: &mut Pair) {
    for agent in [&mut pair.client, &mut pair.server] {
        let connections: Vec<_> = agent.connections.keys().copied().collect();
        for id in connections {
            let _ = agent.destroy(pair.now, crate::ConnectionId(id));
        }
    }
    while pair.wait() {
        sent(&mut pair.client);
        sent(&mut pair.server);
        events(&mut pair.client);
        events(&mut pair.server);
    }
    pair.is_clean();
}
