//! What a conversation's requests were left with, and how long was waited before they came again.

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use roxe_trace::{IcrcVerdict, Observation, Outside, Seen, Tracer};
use roxe_wire::{
    Aeth, Bth, Credits, Headers, Msn, NakCode, Opcode, Packet, Payload, Psn, Qpn, RKey, Reth,
    RnrTimer, Syndrome, TrafficClass,
};

/// Frames of one connection, each so many microseconds after the first.
#[derive(Default)]
struct Capture {
    tracer: Tracer,
    frames: u64,
}

const DATA: &str = "RC_SEND_ONLY";

impl Capture {
    /// Shows a packet; gives what it means, in words.
    fn show(&mut self, us: u64, opcode: &str, psn: u32, headers: Headers) -> String {
        self.frames += 1;
        self.show_between([1, 2], us, opcode, psn, headers)
    }

    /// Time passes, as others' packets show.
    fn elsewhere(&mut self, us: u64) {
        self.show_between([3, 4], us, "UC_SEND_ONLY", 0, Headers::default());
    }

    fn show_between(
        &mut self,
        hosts: [u8; 2],
        us: u64,
        opcode: &str,
        psn: u32,
        headers: Headers,
    ) -> String {
        let opcode = Opcode::by_name(opcode).expect(opcode);
        let [a, b] = hosts.map(|host| IpAddr::V4(Ipv4Addr::new(192, 0, 2, host)));
        let is_request = opcode.operation.is_request();
        let (source, destination) = if is_request { (a, b) } else { (b, a) };
        let dest_qp = Qpn::new(if is_request { 0x201 } else { 0x101 });
        let bth = Bth { opcode: opcode.code, dest_qp, psn: Psn::new(psn), ..Bth::default() };
        let headers = Headers { bth, ..headers };
        let packet = Packet { opcode, headers, payload: Payload::EMPTY };
        let outside = Outside {
            source,
            destination,
            identification: 0,
            traffic_class: TrafficClass(0),
            source_port: 0xc000,
            udp_checksum: None,
            icrc: None,
        };
        let time_ns = u64::try_from(Duration::from_micros(us).as_nanos()).unwrap();
        let (number, icrc) = (self.frames, IcrcVerdict::Good);
        let seen = Seen { number, time_ns, outside: &outside, packet: &packet, icrc };
        let mut observation = Observation::default();
        self.tracer.observe(&seen, &mut observation);
        assert_eq!(observation.findings, []);
        let told: Vec<String> = observation.notes.iter().map(ToString::to_string).collect();
        told.join("; ")
    }

    fn request(&mut self, us: u64, psn: u32) -> String {
        self.show(us, DATA, psn, Headers::default())
    }

    fn answer(&mut self, us: u64, psn: u32, syndrome: Syndrome, msn: u32) -> String {
        let aeth = Some(Aeth { syndrome, msn: Msn::new(msn) });
        self.show(us, "RC_ACKNOWLEDGE", psn, Headers { aeth, ..Headers::default() })
    }

    fn ends(&self) -> Vec<String> {
        let conversations = self.tracer.conversations();
        conversations.iter().flat_map(|it| &it.endings).map(ToString::to_string).collect()
    }
}

const ACK: Syndrome = Syndrome::Ack(Credits::INVALID);

#[test]
fn a_request_that_came_again_and_was_not_answered_is_told() {
    let mut capture = Capture::default();
    capture.request(0, 10);
    assert!(capture.ends().is_empty(), "the capture may just stop");
    let told = capture.request(17_120, 10);
    assert_eq!(told, "retransmission of frame 1 (after 17.1 ms, no NAK seen: ACK timeout?)");
    let twice =
        "the request with PSN 10 (frame 1) was sent 2 times over 17.1 ms and no answer was seen";
    assert_eq!(capture.ends(), [format!("{twice}: the capture ends")]);
    capture.elsewhere(34_240);
    assert_eq!(capture.ends(), [twice]);
    capture.request(38_158, 10);
    let often =
        "the request with PSN 10 (frame 1) was sent 3 times over 38.2 ms and no answer was seen";
    assert_eq!(capture.ends(), [format!("{often}: the capture ends")]);
    // The longest time between two of them is 21.038 ms.
    capture.elsewhere(59_195);
    assert_eq!(capture.ends(), [format!("{often}: the capture ends")]);
    capture.elsewhere(59_196);
    assert_eq!(capture.ends(), [format!("{often}: retries exhausted?")]);
    capture.answer(60_000, 10, ACK, 1);
    assert!(capture.ends().is_empty());
}

#[test]
fn only_tries_since_the_last_progress_use_up_retries() {
    let mut capture = Capture::default();
    capture.request(0, 10);
    capture.request(0, 11);
    for us in [1000, 2000, 3000] {
        capture.request(us, 11);
    }
    capture.answer(3500, 10, ACK, 1);
    let sent = |times, ms| {
        format!(
            "the request with PSN 11 (frame 2) was sent {times} times over {ms} and not \
             acknowledged, last answer in frame 6"
        )
    };
    capture.request(4000, 11);
    capture.request(5000, 11);
    capture.elsewhere(1_000_000);
    assert_eq!(capture.ends(), [sent(6, "5.00 ms")]);
    capture.request(6000, 11);
    assert_eq!(capture.ends(), [sent(7, "6.00 ms") + ": retries exhausted?"]);
}

#[test]
fn tries_that_a_receiver_was_not_ready_for_use_up_no_retries() {
    let not_ready = Syndrome::RnrNak(RnrTimer::new(16).unwrap());
    let mut capture = Capture::default();
    for us in [0, 5_000, 10_000, 15_000] {
        capture.request(us, 10);
        capture.answer(us + 100, 10, not_ready, 0);
    }
    capture.request(20_000, 10);
    let sent = "the request with PSN 10 (frame 1) was sent 5 times over 20.0 ms and not \
                acknowledged, last answer in frame 8";
    assert_eq!(capture.ends(), [format!("{sent}: the capture ends")]);
    capture.elsewhere(1_000_000);
    assert_eq!(capture.ends(), [sent]);
}

#[test]
fn what_came_again_after_an_answer_did_not_wait_for_one() {
    let mut capture = Capture::default();
    capture.request(0, 10);
    capture.request(10, 11);
    capture.answer(20, 10, ACK, 1);
    let told = capture.request(700, 11);
    assert_eq!(told, "retransmission of frame 2 (after 690 µs, no NAK seen)");
}

#[test]
fn an_answer_is_told_though_it_acknowledged_nothing() {
    let mut capture = Capture::default();
    capture.request(0, 10);
    capture.answer(20, 10, Syndrome::Nak(NakCode::PsnSequenceError), 0);
    capture.request(700, 10);
    let sent = "the request with PSN 10 (frame 1) was sent 2 times over 700 µs and not \
                acknowledged, last answer in frame 2: the capture ends";
    assert_eq!(capture.ends(), [sent]);
}

#[test]
fn a_receiver_that_is_never_ready_is_told_until_it_is() {
    let not_ready = Syndrome::RnrNak(RnrTimer::new(16).unwrap());
    let mut capture = Capture::default();
    capture.request(0, 10);
    capture.answer(1_592, 10, not_ready, 0);
    let once = "RNR NAK for PSN 10 (frame 2), which was not sent again";
    assert_eq!(capture.ends(), [format!("{once}: the capture ends")]);
    capture.elsewhere(1_592 + 2_560);
    assert_eq!(capture.ends(), [once]);
    let told = capture.request(9_142, 10);
    let waited = "retransmission of frame 1 (RNR NAK in frame 2: after 7.55 ms, asked for 2.56 ms)";
    assert_eq!(told, waited);
    capture.answer(10_000, 10, not_ready, 0);
    capture.request(17_500, 10);
    capture.answer(18_408, 10, not_ready, 0);
    let again = "3 RNR NAKs in a row for PSN 10 (the last in frame 6), which was not sent again";
    assert_eq!(capture.ends(), [format!("{again}: the capture ends")]);
    // The longest time between two of them is 8.408 ms.
    capture.elsewhere(26_816);
    assert_eq!(capture.ends(), [format!("{again}: rnr_retry exhausted?")]);
    capture.request(30_000, 10);
    capture.answer(30_100, 10, ACK, 1);
    assert!(capture.ends().is_empty());
}

#[test]
fn a_refusal_names_the_memory() {
    let reth = Some(Reth { va: 0x1000, r_key: RKey(0x77e6), dma_len: 64 });
    let mut capture = Capture::default();
    capture.show(0, "RC_READ_REQUEST", 10, Headers { reth, ..Headers::default() });
    capture.answer(20, 10, Syndrome::Nak(NakCode::RemoteAccessError), 0);
    let refused = "NAK remote access error (frame 2) to frame 1 (rkey 0x77e6, va 0x1000)";
    assert_eq!(capture.ends(), [refused]);
}

#[test]
fn nothing_is_said_to_be_unanswered_where_answers_could_not_be_placed() {
    let mut capture = Capture::default();
    // To something from before the capture, perhaps of this connection.
    capture.answer(0, 500, ACK, 1);
    capture.request(10, 10);
    capture.request(20, 10);
    assert!(capture.ends().is_empty(), "{:?}", capture.ends());
}

const REFUSED: Syndrome = Syndrome::Nak(NakCode::RemoteAccessError);
const ANEW: &str = "PSNs start anew: a new connection; message 2: SEND of 0 B";

/// A WRITE with this PSN is refused, and a second later come SENDs from another one on. What is
/// said of the first SEND, of its acknowledgement, and of the end.
fn used_anew(refused: u32, from: u32) -> (String, String, Vec<String>) {
    let reth = Some(Reth { va: 0x1000, r_key: RKey(0x77), dma_len: 0 });
    let mut capture = Capture::default();
    capture.show(0, "RC_WRITE_ONLY", refused, Headers { reth, ..Headers::default() });
    capture.answer(20, refused, REFUSED, 0);
    let first = capture.request(1_000_000, from);
    let acknowledged = capture.answer(1_000_010, from, ACK, 1);
    for more in 1..4 {
        let us = 1_000_000 + 100 * u64::from(more);
        capture.request(us, from + more);
        let told = capture.answer(us + 10, from + more, ACK, 1 + more);
        assert_eq!(told, format!("acknowledges frame {}", 3 + 2 * more));
    }
    (first, acknowledged, capture.ends())
}

#[test]
fn behind_a_refusal_psns_start_anew_wherever_that_is() {
    for from in [100, 50, 99, 101, 600] {
        let (first, acknowledged, ends) = used_anew(100, from);
        assert_eq!(first, ANEW, "{from}");
        assert_eq!(acknowledged, "acknowledges frame 3", "{from}");
        assert!(ends.is_empty(), "{from}: {ends:?}");
    }
}

#[test]
fn what_was_on_its_way_is_no_new_connection_until_it_is_acknowledged() {
    let mut capture = Capture::default();
    capture.request(0, 10);
    capture.answer(20, 10, REFUSED, 0);
    assert_eq!(capture.request(25, 11), "message 2: SEND of 0 B");
    assert_eq!(capture.request(30, 13), "gap of 1 PSN before; message 3: SEND of 0 B");
    let again = "retransmission of frame 1 (after 1.00 ms, no NAK seen)";
    assert_eq!(capture.request(1_000, 10), again);
    assert_eq!(capture.ends(), ["NAK remote access error (frame 2) to frame 5"]);
    let told = capture.answer(1_100, 11, ACK, 1);
    assert_eq!(told, "acknowledges frame 3", "and not what was refused");
    assert!(capture.ends().is_empty());
}

#[test]
fn psns_before_what_was_tried_in_vain_start_anew() {
    let not_ready = Syndrome::RnrNak(RnrTimer::new(16).unwrap());
    let mut capture = Capture::default();
    capture.request(0, 500);
    capture.answer(20, 500, not_ready, 0);
    assert_eq!(capture.request(1_000_000, 400), ANEW);
    assert_eq!(capture.answer(1_000_010, 400, ACK, 1), "acknowledges frame 3");
    assert!(capture.ends().is_empty());

    let mut capture = Capture::default();
    for us in [0, 100, 200] {
        capture.request(us, 500);
    }
    assert_eq!(capture.request(1_000_000, 400), ANEW);
    assert_eq!(capture.answer(1_000_010, 400, ACK, 1), "acknowledges frame 4");
}

#[test]
fn a_refusal_of_what_was_acknowledged_ends_nothing() {
    let mut capture = Capture::default();
    capture.request(0, 10);
    capture.answer(1_000, 10, ACK, 1);
    capture.answer(6_000, 10, REFUSED, 1);
    assert!(capture.ends().is_empty(), "{:?}", capture.ends());
}
