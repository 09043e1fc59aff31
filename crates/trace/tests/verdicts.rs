//! Which connection an answer belongs to, and what of a connection must be seen before a rule
//! counts as broken: captures begin in the middle of traffic, and lose frames themselves.

use std::net::{IpAddr, Ipv4Addr};

use roxe_trace::{IcrcVerdict, Note, Observation, Outside, Rule, Seen, Tracer};
use roxe_wire::{
    Aeth, AtomicAckEth, AtomicEth, Bth, Credits, Headers, Msn, NakCode, Opcode, Packet, Payload,
    Psn, Qpn, RKey, Reth, RnrTimer, Syndrome, TrafficClass,
};

/// The queue pairs of a connection: that of the requester, and that of the responder.
#[derive(Clone, Copy)]
struct Connection(u32, u32);

const X: Connection = Connection(0x101, 0x201);
const Y: Connection = Connection(0x102, 0x202);

/// A packet to be observed.
#[derive(Clone)]
struct Shown {
    is_request: bool,
    headers: Headers,
    opcode: &'static Opcode,
    len: usize,
    identification: u16,
}

impl Connection {
    fn packet(self, opcode: &str, psn: u32, len: usize, headers: Headers) -> Shown {
        let opcode = Opcode::by_name(opcode).expect(opcode);
        let is_request = !opcode.operation.is_response();
        let dest_qp = Qpn::new(if is_request { self.1 } else { self.0 });
        let bth = Bth { opcode: opcode.code, dest_qp, psn: Psn::new(psn), ..Bth::default() };
        Shown { is_request, headers: Headers { bth, ..headers }, opcode, len, identification: 0 }
    }

    fn send(self, psn: u32) -> Shown {
        self.packet("RC_SEND_ONLY", psn, 8, Headers::default())
    }

    fn part(self, opcode: &str, psn: u32, len: usize) -> Shown {
        self.packet(opcode, psn, len, Headers::default())
    }

    fn rdma(self, opcode: &str, psn: u32, (va, dma_len): (u64, u32), len: usize) -> Shown {
        let reth = Some(Reth { va, r_key: RKey(3), dma_len });
        self.packet(opcode, psn, len, Headers { reth, ..Headers::default() })
    }

    fn read(self, psn: u32, va: u64, dma_len: u32) -> Shown {
        self.rdma("RC_READ_REQUEST", psn, (va, dma_len), 0)
    }

    fn atomic(self, psn: u32) -> Shown {
        let atomic_eth = Some(AtomicEth { va: 8, r_key: RKey(3), swap_add: 1, compare: 0 });
        self.packet("RC_FETCH_ADD", psn, 0, Headers { atomic_eth, ..Headers::default() })
    }

    fn answer(self, opcode: &str, psn: u32, syndrome: Syndrome, msn: u32, len: usize) -> Shown {
        let aeth = Some(Aeth { syndrome, msn: Msn::new(msn) });
        let atomic_ack_eth =
            (opcode == "RC_ATOMIC_ACKNOWLEDGE").then_some(AtomicAckEth { original: 5 });
        self.packet(opcode, psn, len, Headers { aeth, atomic_ack_eth, ..Headers::default() })
    }

    fn ack(self, psn: u32, msn: u32) -> Shown {
        self.answer("RC_ACKNOWLEDGE", psn, Syndrome::Ack(Credits::INVALID), msn, 0)
    }

    fn nak(self, code: NakCode, psn: u32, msn: u32) -> Shown {
        self.answer("RC_ACKNOWLEDGE", psn, Syndrome::Nak(code), msn, 0)
    }

    fn atomic_ack(self, psn: u32, msn: u32) -> Shown {
        self.answer("RC_ATOMIC_ACKNOWLEDGE", psn, Syndrome::Ack(Credits::INVALID), msn, 0)
    }

    fn data(self, position: &str, psn: u32, len: usize, msn: u32) -> Shown {
        let opcode = format!("RC_READ_RESPONSE_{position}");
        if position == "MIDDLE" {
            return self.part(&opcode, psn, len);
        }
        self.answer(&opcode, psn, Syndrome::Ack(Credits::INVALID), msn, len)
    }
}

/// What a tracer says of each packet.
fn observe(shown: &[Shown]) -> (Vec<Vec<Note>>, Vec<(u64, Rule)>) {
    let [a, b] = [1, 2].map(|host| IpAddr::V4(Ipv4Addr::new(192, 0, 2, host)));
    let mut tracer = Tracer::default();
    let mut observation = Observation::default();
    let (mut notes, mut broken) = (Vec::new(), Vec::new());
    for (number, shown) in (1..).zip(shown) {
        let payload = vec![7; shown.len];
        let packet = Packet {
            opcode: shown.opcode,
            headers: shown.headers,
            payload: Payload::bytes(&payload),
        };
        let (source, destination) = if shown.is_request { (a, b) } else { (b, a) };
        let outside = Outside {
            source,
            destination,
            identification: shown.identification,
            traffic_class: TrafficClass(0),
            source_port: 0xc000,
            udp_checksum: None,
            icrc: Some(shown.headers.bth.psn.get()),
        };
        let icrc = IcrcVerdict::Good;
        tracer.observe(
            &Seen { number, time_ns: 0, outside: &outside, packet: &packet, icrc },
            &mut observation,
        );
        notes.push(observation.notes.clone());
        broken.extend(observation.findings.iter().map(|finding| (number, finding.rule)));
    }
    (notes, broken)
}

fn broken(shown: &[Shown]) -> Vec<(u64, Rule)> {
    observe(shown).1
}

fn notes(shown: &[Shown]) -> Vec<Vec<Note>> {
    observe(shown).0
}

const MISSING: NakCode = NakCode::PsnSequenceError;

#[test]
fn a_nak_of_a_missing_packet_proves_no_connection() {
    // Y's packet 7 was lost on the way here; X has sent one with that PSN.
    let frames = [
        X.send(7),
        Y.read(8, 0, 10),
        Y.nak(MISSING, 7, 0),
        Y.atomic(7),
        Y.read(8, 0, 10),
        Y.atomic_ack(7, 1),
        Y.data("ONLY", 8, 10, 2),
        X.send(8),
        X.ack(8, 2),
    ];
    let (notes, broken) = observe(&frames);
    assert_eq!(broken, []);
    assert_eq!(notes[2], [Note::RequestUnclear]);
    assert!(matches!(notes[8][..], [Note::Acknowledges { first: 1, last: 8, packets: 2 }]));
}

#[test]
fn where_requests_went_by_before_the_capture_one_answer_proves_no_connection() {
    // Y has asked before the first frame.
    let other_kind = [
        X.read(7, 0, 10),
        Y.atomic_ack(7, 900),
        X.data("ONLY", 7, 10, 3),
        Y.send(8),
        Y.ack(8, 901),
        X.send(8),
        X.ack(8, 4),
    ];
    assert_eq!(broken(&other_kind), []);
    let same_kind = [
        X.send(7),
        Y.ack(7, 900),
        X.ack(7, 3),
        Y.read(8, 0, 10),
        Y.data("ONLY", 8, 10, 901),
        X.atomic(8),
        X.atomic_ack(8, 4),
    ];
    let (notes, broken) = observe(&same_kind);
    assert_eq!(broken, []);
    assert!(matches!(notes[4][..], [Note::AnswersRead { frame: 4, .. }]), "{:?}", notes[4]);
    assert!(matches!(notes[6][..], [Note::Answers { frame: 6, .. }]), "{:?}", notes[6]);
}

/// Each kind of answer in turn, so often that it is proven who answers whom.
fn rounds(connection: Connection, from: u32, count: u32) -> Vec<Shown> {
    (from..from + count)
        .flat_map(|psn| [connection.send(psn), connection.ack(psn, psn + 1)])
        .collect()
}

#[test]
fn what_contradicts_a_proven_connection_breaks_a_rule_whoever_else_there_is() {
    let mut frames = vec![Y.send(700_000)];
    frames.extend(rounds(X, 0, 4));
    frames.extend([X.send(4), X.ack(4, 17)]);
    let at = frames.len() as u64;
    assert_eq!(broken(&frames), [(at, Rule::Msn)]);
    // After two rounds, which may be chance where the beginning was not seen, it says more about
    // who belongs to whom.
    let early = [Y.send(700_000), X.send(0), X.ack(0, 900), X.send(1), X.ack(1, 917)];
    assert_eq!(broken(&early), []);
}

#[test]
fn a_proven_pair_parts_when_another_direction_asks_for_its_answers() {
    // The queue pair of the requester is connected anew, to another one.
    let anew = Connection(X.0, 0x203);
    let mut frames = rounds(X, 0, 5);
    frames.extend(rounds(anew, 300, 2));
    frames.extend([anew.read(302, 0, 10), anew.data("ONLY", 302, 10, 303)]);
    let (notes, broken) = observe(&frames);
    assert_eq!(broken, []);
    assert_eq!(notes[11], [Note::RequestUnclear]);
    assert!(matches!(notes[13][..], [Note::Acknowledges { .. }]), "{:?}", notes[13]);
    assert!(matches!(notes[15][..], [Note::AnswersRead { frame: 15, .. }]), "{:?}", notes[15]);
}

#[test]
fn the_span_of_a_read_is_a_guess_until_the_path_mtu_is_known() {
    // The PSN after the READ was lost; two PSNs are what a path MTU of 512 gives.
    let frames = [
        X.read(0, 0, 1024),
        X.send(2),
        X.data("ONLY", 0, 1024, 1),
        X.nak(MISSING, 1, 1),
        X.send(1),
        X.send(2),
        X.ack(2, 3),
    ];
    let (notes, broken) = observe(&frames);
    assert_eq!(broken, []);
    assert!(
        matches!(notes[2][..], [Note::AnswersRead { part: 1, of: Some(1), .. }]),
        "{:?}",
        notes[2]
    );
    // The missing packet comes before the answer does.
    let earlier = [X.read(0, 0, 1024), X.send(2), X.send(1), X.data("ONLY", 0, 1024, 1)];
    assert_eq!(self::broken(&earlier), []);
    // No path MTU makes a READ of 8192 B take one PSN.
    let within = [X.read(0, 0, 8192), X.send(4), X.send(1)];
    assert_eq!(self::broken(&within), [(3, Rule::Retransmission)]);
    let short = [X.send(0), X.ack(0, 1), X.read(1, 0, 8192), X.send(5), X.data("ONLY", 1, 1024, 2)];
    assert_eq!(self::broken(&short), [(5, Rule::ReadResponse)]);
}

#[test]
fn an_answer_before_its_request_breaks_a_rule_if_the_responder_lacks_it() {
    let lost_here = [X.send(4), X.ack(4, 1), X.ack(6, 3), X.send(5), X.send(6), X.ack(6, 3)];
    assert_eq!(broken(&lost_here), []);
    let cut = [X.send(58), X.send(59), X.ack(59, 5), X.ack(62, 8), X.send(60), X.send(61)];
    assert_eq!(broken(&cut), []);
    // A capture on a host may have the two in another order.
    let swapped = [X.send(0), X.ack(0, 1), X.ack(1, 2), X.send(1)];
    assert_eq!(broken(&swapped), []);
    let swapped = [X.send(0), X.ack(0, 1), X.ack(1, 1), X.part("RC_SEND_FIRST", 1, 256)];
    assert_eq!(broken(&swapped), []);

    let lacking = [X.send(0), X.ack(0, 1), X.ack(2, 2), X.send(1), X.send(2)];
    assert_eq!(broken(&lacking), [(5, Rule::AckPsn)]);
    let refused = [X.send(0), X.ack(0, 1), X.nak(MISSING, 2, 1), X.send(1)];
    assert_eq!(broken(&refused), [(4, Rule::AckPsn)]);
}

/// The capture begins when a READ is asked for again, and all behind it was answered already.
#[test]
fn a_responder_may_have_counted_what_comes_again_only_now() {
    let frames = [
        X.ack(3, 9),
        X.read(0, 0, 8),
        X.data("ONLY", 0, 8, 9),
        X.send(1),
        X.read(2, 0, 8),
        X.data("ONLY", 2, 8, 9),
        X.send(3),
        X.ack(3, 9),
        X.send(4),
        X.ack(4, 10),
    ];
    assert_eq!(broken(&frames), []);
    // From there on the count is judged.
    let more = [X.send(5), X.ack(5, 12)];
    assert_eq!(broken(&[&frames[..], &more].concat()), [(12, Rule::Msn)]);
}

#[test]
fn a_read_may_be_asked_again_in_more_ways_than_a_capture_shows() {
    let rest_first = [
        X.read(103, 3072, 1024),
        X.data("ONLY", 103, 1024, 1),
        X.read(100, 0, 4096),
        X.data("FIRST", 100, 1024, 1),
        X.data("MIDDLE", 101, 1024, 1),
        X.data("MIDDLE", 102, 1024, 1),
        X.data("LAST", 103, 1024, 1),
    ];
    assert_eq!(broken(&rest_first), []);
    let not_captured = [
        X.read(100, 0, 4096),
        X.data("FIRST", 100, 1024, 1),
        X.data("MIDDLE", 101, 1024, 1),
        X.data("FIRST", 102, 1024, 1),
        X.data("LAST", 103, 1024, 1),
    ];
    let (notes, broken) = observe(&not_captured);
    assert_eq!(broken, []);
    assert_eq!(notes[3][1], Note::RequestNotSeen, "{:?}", notes[3]);
    let less = [X.read(0, 0, 100), X.read(0, 0, 60), X.data("ONLY", 0, 60, 1)];
    assert_eq!(self::broken(&less), []);
    let neither = [X.read(0, 0, 100), X.data("ONLY", 0, 60, 1)];
    assert_eq!(self::broken(&neither), [(2, Rule::ReadResponse)]);
}

#[test]
fn a_connection_anew_may_begin_with_a_read_of_another_path_mtu() {
    let mut frames =
        vec![X.read(0, 0, 2048), X.data("FIRST", 0, 1024, 1), X.data("LAST", 1, 1024, 1)];
    for psn in [100, 0x50_0000] {
        let answers = [X.data("FIRST", psn, 2048, 1), X.data("LAST", psn + 1, 2048, 1)];
        let anew = [frames.clone(), vec![X.read(psn, 0, 4096)], answers.to_vec()].concat();
        assert_eq!(broken(&anew), [], "{psn}");
    }
    // Right behind the one before it is the same connection.
    frames.extend([X.read(2, 0, 4096), X.data("FIRST", 2, 2048, 2)]);
    assert_eq!(broken(&frames), [(5, Rule::PathMtu)]);
}

#[test]
fn a_refused_message_is_not_complete() {
    let refused =
        |msn| [X.send(0), X.ack(0, 1), X.send(1), X.nak(NakCode::RemoteAccessError, 1, msn)];
    assert_eq!(broken(&refused(1)), []);
    assert_eq!(broken(&refused(2)), [(4, Rule::Msn)]);
    // A READ is accepted before its memory goes away: what is behind it may be complete.
    let refused = |msn| {
        let nak = X.nak(NakCode::RemoteAccessError, 1, msn);
        [X.send(0), X.ack(0, 1), X.read(1, 0, 100), X.send(2), nak]
    };
    assert_eq!(broken(&refused(3)), []);
    assert_eq!(broken(&refused(4)), [(5, Rule::Msn)]);
}

#[test]
fn a_write_is_measured_when_its_missing_middle_comes() {
    let write = |announced| {
        [
            X.rdma("RC_WRITE_FIRST", 0, (0, announced), 1024),
            X.part("RC_WRITE_LAST", 2, 100),
            X.part("RC_WRITE_MIDDLE", 1, 1024),
            X.part("RC_WRITE_LAST", 2, 100),
        ]
    };
    assert_eq!(broken(&write(2148)), []);
    assert_eq!(broken(&write(2000)), [(3, Rule::WriteLength)]);
}

#[test]
fn one_packet_out_of_sequence_is_found_once() {
    let wrong = [
        X.part("RC_SEND_FIRST", 1, 256),
        X.part("RC_WRITE_MIDDLE", 2, 256),
        X.part("RC_SEND_LAST", 3, 5),
        X.part("RC_SEND_LAST", 4, 5),
    ];
    assert_eq!(broken(&wrong), [(2, Rule::OpcodeSequence), (4, Rule::OpcodeSequence)]);
}

#[test]
fn whoever_gives_packets_two_identifications_in_turn_says_nothing_by_them() {
    let send = |psn, identification| Shown { identification, ..X.send(psn) };
    let again = |frames: &[Shown]| notes(frames).pop().unwrap_or_default();
    let in_turn = again(&[send(0, 5), send(1, 6), send(0, 5)]);
    assert!(matches!(in_turn[..], [Note::Retransmission { of: 1, .. }]), "{in_turn:?}");
    let counted = again(&[send(0, 5), send(1, 6), send(2, 7), send(0, 5)]);
    assert_eq!(counted, [Note::Doubled { of: 1 }]);
}

#[test]
fn another_request_under_a_psn_is_wrong_until_the_connection_has_failed() {
    let refused = X.nak(NakCode::RemoteAccessError, 1, 0);
    let other = X.part("RC_SEND_ONLY", 1, 16);
    let wrong = |frame| vec![(frame, Rule::Retransmission)];
    let after = |before: &[Shown]| broken(&[before, &[other.clone(), X.ack(1, 1)]].concat());
    assert_eq!(after(&[X.send(1)]), wrong(2));
    assert_eq!(after(&[X.send(1), X.send(1)]), wrong(3));
    assert_eq!(after(&[X.send(1), X.send(1), X.send(1)]), []);
    let missing = X.nak(MISSING, 1, 0);
    assert_eq!(after(&[X.send(1), X.send(1), X.send(1), missing]), wrong(5), "it is answered");
    assert_eq!(after(&[X.send(1), refused]), []);
    let not_ready = Syndrome::RnrNak(RnrTimer::new(1).unwrap());
    let try_it = [X.send(1), X.answer("RC_ACKNOWLEDGE", 1, not_ready, 0, 0)];
    let tried = |times| vec![try_it.clone(); times].concat();
    assert_eq!(after(&tried(2)), wrong(5));
    assert_eq!(after(&tried(3)), []);
}

#[test]
fn behind_a_refusal_nothing_of_a_read_or_of_a_message_is_continued() {
    let denied = NakCode::RemoteAccessError;
    let read = [X.read(1, 0, 600), X.data("FIRST", 1, 256, 1), X.nak(denied, 2, 1)];
    for other in [X.send(2), X.read(2, 8192, 64)] {
        assert_eq!(broken(&[&read[..], std::slice::from_ref(&other)].concat()), []);
        let alive = [&read[..2], &[other]].concat();
        assert_eq!(broken(&alive), [(3, Rule::Retransmission)]);
    }
    let message = [X.part("RC_SEND_FIRST", 1, 256), X.nak(denied, 1, 0)];
    assert_eq!(broken(&[&message[..], &[X.send(2)]].concat()), []);
    assert_eq!(broken(&[&message[..1], &[X.send(2)]].concat()), [(2, Rule::OpcodeSequence)]);
}
