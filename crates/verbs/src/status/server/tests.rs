use std::io::{BufRead as _, BufReader};
use std::net::Ipv4Addr;

use roxe_net::capture_file::{CaptureReader, Direction};
use roxe_wire::Mtu;

use super::*;
use crate::status::{Running, running};
use crate::{Buffer, Connection, Context, Op, Wait, cm};

/// The endpoints of this process; each test is one.
fn own() -> Vec<Running> {
    let prefix = format!("{PREFIX}{}/", std::process::id());
    let mut all = running().unwrap();
    all.retain(|running| running.endpoint.starts_with(&prefix));
    all
}

fn raw() -> UnixStream {
    let address = SocketAddr::from_abstract_name(&own()[0].endpoint).unwrap();
    let stream = UnixStream::connect_addr(&address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    stream
}

/// All that is answered to this, until the end.
fn said(request: &[u8]) -> String {
    let mut stream = raw();
    stream.write_all(request).unwrap();
    stream.shutdown(std::net::Shutdown::Write).unwrap();
    let mut text = String::new();
    let _ = stream.read_to_string(&mut text);
    text
}

fn transfer(one: &Context, other: &Context) -> [Connection; 2] {
    let (mut a, mut b) = (Connection::new(one).unwrap(), Connection::new(other).unwrap());
    a.connect(&b.endpoint().unwrap()).unwrap();
    b.connect(&a.endpoint().unwrap()).unwrap();
    let (from, to) = (Buffer::new(4096), Buffer::new(4096));
    let (source, target) = (one.register(&from).unwrap(), other.register(&to).unwrap());
    let write = Op::Write { va: target.address(), r_key: target.r_key() };
    a.post(1, write, &source, 0, 4096).unwrap();
    a.wait(Wait::SECOND).unwrap();
    [a, b]
}

#[test]
fn an_adapter_is_found_and_tells_what_it_counts_and_which_queue_pairs_it_has() {
    let [one, other] = Context::memory_pair(Mtu::B4096).unwrap();
    assert!(one.status_trouble().is_none());
    let pair = transfer(&one, &other);
    let pid = std::process::id();
    let found = own();
    let names: Vec<_> = found.iter().map(|it| it.endpoint.clone()).collect();
    assert_eq!(names, [format!("roxe/{pid}/memory"), format!("roxe/{pid}/memory#2")]);

    let mut client = found[0].connect().unwrap();
    let info = client.info().unwrap();
    assert_eq!((info.name.as_str(), info.pid, info.active_mtu), ("memory", pid, 4096));
    assert!(info.active && info.addresses == ["192.0.2.1".parse::<std::net::IpAddr>().unwrap()]);

    let (counters, then) = client.counters().unwrap();
    let told: Vec<_> = counters.iter().map(|it| (it.name.as_str(), it.value)).collect();
    assert_eq!(told, one.counters());
    assert!(told.iter().any(|(name, value)| *name == "rdma_tx_packets" && *value > 0));
    let icrc = counters.iter().find(|it| it.name == "rx_icrc_encapsulated").unwrap();
    assert_eq!((icrc.group.as_str(), icrc.whose.as_str()), ("dropped before", "mlx5"));

    let (queue_pairs, now) = client.queue_pairs().unwrap();
    assert!(now >= then);
    let [queue_pair] = &queue_pairs[..] else { panic!("{queue_pairs:?}") };
    assert_eq!((queue_pair.service.as_str(), queue_pair.state.as_str()), ("RC", "rts"));
    assert_eq!(queue_pair.peer_qpn, Some(pair[1].endpoint().unwrap().qpn.get()));
    assert_eq!(queue_pair.peer, Some("192.0.2.2".parse().unwrap()));
    assert_eq!(queue_pair.why, None);
    let all = counters.iter().find(|it| it.name == "rdma_tx_packets").unwrap().value;
    assert_eq!((queue_pair.counter("rdma_tx_packets"), queue_pair.counter("ack_sent")), (all, 0));
}

#[test]
fn it_says_why_a_queue_pair_ended() {
    let [one, other] = Context::memory_pair(Mtu::B4096).unwrap();
    let [mut a, b] = transfer(&one, &other);
    let buffer = Buffer::new(64);
    let source = one.register(&buffer).unwrap();
    let write = Op::Write { va: 1, r_key: roxe_wire::RKey(7) };
    a.post(1, write, &source, 0, 8).unwrap();
    a.wait(Wait::SECOND).unwrap_err();
    let (queue_pairs, _) = own()[0].connect().unwrap().queue_pairs().unwrap();
    assert_eq!(queue_pairs[0].state, "error");
    let why = queue_pairs[0].why.clone().unwrap();
    assert!(why.contains("remote access"), "{why}");
    drop(b);
}

#[test]
fn it_says_for_how_many_services_it_takes_requests() {
    let [one, _other] = Context::memory_pair(Mtu::B1024).unwrap();
    let mut client = own()[0].connect().unwrap();
    assert_eq!(client.info().unwrap().listeners, 0);
    let listen = |port| cm::Listener::bind(&one, (Ipv4Addr::new(192, 0, 2, 1), port).into(), 1);
    let (first, second) = (listen(7174).unwrap(), listen(7175).unwrap());
    assert_eq!(client.info().unwrap().listeners, 2);
    drop(first);
    assert_eq!(client.info().unwrap().listeners, 1);
    drop(second);
    assert_eq!(client.info().unwrap().listeners, 0);
}

/// More than a page has, some of them gone again.
#[test]
fn however_many_queue_pairs_there_are_each_is_told_once() {
    let [one, _other] = Context::memory_pair(Mtu::B1024).unwrap();
    let cq = one.create_cq(1).unwrap();
    let pd = one.default_pd();
    let mut made: Vec<_> =
        (0..1300).map(|_| pd.create_qp(ServiceType::Rc, &cq).build().unwrap()).collect();
    made.drain(100..700);
    let mut expected: Vec<_> = made.iter().map(|it| it.qpn().get()).collect();
    let (told, _) = own()[0].connect().unwrap().queue_pairs().unwrap();
    let mut told: Vec<_> = told.iter().map(|it| it.qpn).collect();
    expected.sort_unstable();
    told.sort_unstable();
    assert_eq!(told, expected);
}

#[test]
fn what_passes_can_be_recorded_until_the_reader_goes() {
    let [one, other] = Context::memory_pair(Mtu::B4096).unwrap();
    let recorded = own()[0].connect().unwrap().record(1 << 20).unwrap();
    let mut reader = CaptureReader::new(recorded).unwrap();
    let _pair = transfer(&one, &other);
    assert_eq!(reader.next().unwrap().unwrap().direction, Some(Direction::Outbound));
    while reader.next().unwrap().unwrap().direction != Some(Direction::Inbound) {}
    drop(reader);
    let value = |name| one.counters().into_iter().find(|it| it.0 == name).unwrap().1;
    assert!(value("live_frames") >= 2 && value("live_recordings") == 1);
    // It notices by the end of the stream; from then on nothing is kept any more.
    loop {
        let before = value("live_frames");
        transfer(&one, &other);
        if value("live_frames") == before {
            break;
        }
    }
}

#[test]
fn garbage_is_refused_in_words_and_ends_the_connection() {
    let [_one, _other] = Context::memory_pair(Mtu::B1024).unwrap();
    let refused = "{\"kind\":\"error\",\"what\":\"no such request\"}\n";
    assert_eq!(said(b"hello\n"), refused);
    assert_eq!(said(b"queue-pairs -1\n"), refused);
    assert_eq!(said(&[0xff; LONGEST_REQUEST]), refused);
    assert_eq!(said(&[b'x'; 100 * LONGEST_REQUEST]), refused);
    assert_eq!(said(b"inf"), "");
    let twice = said(b"queue-pairs 4000000000\nqueue-pairs 4000000000\n");
    assert_eq!(twice.matches("\"next\":null").count(), 2, "{twice}");
}

/// Whoever asks without end is answered, and keeps neither others nor the adapter's end waiting.
#[test]
fn a_turn_ends_though_there_are_more_requests() {
    let [port, _other] = roxe_net::memory::pair(Mtu::B1024).unwrap();
    let port = roxe_net::capture::Live::new(port, crate::opened::wall_clock());
    let tap = port.tap();
    let device =
        roxe_device::Device::new(roxe_device::limits::Limits::DEFAULT, 1, Default::default());
    let driver = Driver::new(device, Box::new(port)).unwrap();
    let engine = Arc::new(Engine::new(driver, true, None).unwrap());
    let about = About { name: "roxe0".to_owned(), mode: String::new(), active_mtu: 1024 };
    let service = Service { about, engine, listeners: Box::new(|| 0), tap };

    let (mut asker, stream) = UnixStream::pair().unwrap();
    let mut client = Client::new(stream).unwrap();
    asker.set_nonblocking(true).unwrap();
    let mut answers = move || {
        let mut text = Vec::new();
        let _ = asker.read_to_end(&mut text);
        (text.iter().filter(|byte| **byte == b'\n').count(), asker.write_all(b"info\n"))
    };
    let most = STEPS_OF_A_TURN;
    for _ in 0..most {
        answers().1.unwrap();
    }
    assert!(client.turn(&service, 0));
    assert_eq!(answers().0, most - 1, "it has asked once more meanwhile");
    assert_eq!(client.waits_for(), PollFlags::OUT, "it goes on at once");
    assert!(client.turn(&service, 0));
    assert_eq!(answers().0, 2);
    drop(answers);
    assert!(!client.turn(&service, 0), "it has gone");

    // Nor is one forgotten that is refused at the end of its turn.
    let (mut asker, stream) = UnixStream::pair().unwrap();
    let mut client = Client::new(stream).unwrap();
    asker.write_all(&b"info\n".repeat(most - 1)).unwrap();
    asker.write_all(b"hello\n").unwrap();
    assert!(!client.turn(&service, 0));
}

/// Whoever connects and says nothing, or does not take its answer, costs nobody else anything.
#[test]
fn silent_and_slow_clients_are_in_nobodys_way() {
    let [one, other] = Context::memory_pair(Mtu::B1024).unwrap();
    let mut silent: Vec<_> = (0..2000).map(|_| raw()).collect();
    for slow in silent.iter_mut().rev().take(20) {
        // More than the kernel keeps: then whoever asks has to read.
        slow.set_nonblocking(true).unwrap();
        while slow.write_all(&b"counters\n".repeat(100)).is_ok() {}
    }
    let _pair = transfer(&one, &other);
    for _ in 0..100 {
        assert_eq!(own()[0].connect().unwrap().info().unwrap().name, "memory");
    }
    let descriptors = std::fs::read_dir("/proc/self/fd").unwrap().count();
    assert!(descriptors < silent.len() + 2 * MOST_CLIENTS + 64, "{descriptors}");
}

/// A recording that nobody takes loses frames, and nothing else.
#[test]
fn a_recording_that_is_not_taken_does_not_hold_up_traffic() {
    let [one, other] = Context::memory_pair(Mtu::B4096).unwrap();
    let mut recorded = BufReader::new(raw());
    recorded.get_mut().write_all(b"record 1\n").unwrap();
    recorded.fill_buf().unwrap();
    for _ in 0..400 {
        transfer(&one, &other);
    }
    // A slow machine may have sent something again.
    let counters = one.counters();
    let value = |name| counters.iter().find(|it| it.0 == name).unwrap().1;
    assert!(value("live_lost") > 0);
    let passed = value("tx_packets") + value("rx_packets");
    assert_eq!(value("live_lost") + value("live_frames"), passed);
}

/// However many recordings one user begins, it has but some, and everybody else is answered.
#[test]
fn recordings_of_a_user_are_few_enough_for_others_to_be_answered() {
    let [_one, _other] = Context::memory_pair(Mtu::B1024).unwrap();
    let record = || own()[0].connect().unwrap().record(1 << 16);
    let mut all: Vec<_> = (0..MOST_RECORDINGS).map(|_| record().unwrap()).collect();
    for _ in 0..2 * MOST_CLIENTS {
        let error = record().unwrap_err().to_string();
        assert!(error.contains("8 recordings of this user go on: end one of them"), "{error}");
    }
    assert_eq!(own()[0].connect().unwrap().info().unwrap().name, "memory");
    all.pop();
    // It is seen to have ended some time.
    while record().is_err() {}
}

#[test]
fn names_are_harmless_and_cut() {
    let [_one, _two] = ["a b\n\u{1b}é", &"x".repeat(300)]
        .map(|name| Context::open_device(name, &"memory:names".parse().unwrap()).unwrap());
    let names: Vec<_> = own().into_iter().map(|it| it.endpoint).collect();
    let start = format!("roxe/{}/", std::process::id());
    assert_eq!(names[0], format!("{start}a_b___"));
    assert_eq!(names[1].len(), LONGEST_NAME);
}

#[test]
fn the_endpoint_goes_with_the_adapter() {
    let [one, other] = Context::memory_pair(Mtu::B1024).unwrap();
    let mut client = own()[0].connect().unwrap();
    client.info().unwrap();
    drop(other);
    assert_eq!(own().len(), 1);
    drop(one);
    assert_eq!(own().len(), 0);
    client.info().unwrap_err();
}
