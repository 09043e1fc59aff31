use roxe_transport::qp_state::QpState;
use roxe_wire::Mtu;

use super::*;
use crate::Context;

const PATIENCE: Duration = Duration::from_secs(30);

fn queue_pair(context: &Context, service: ServiceType) -> QueuePair {
    let cq = context.create_cq(16).unwrap();
    context.default_pd().create_qp(service, &cq).build().unwrap()
}

/// A queue pair that waits at the address, and what becomes of it.
fn listening(
    qp: &QueuePair,
    user: &'static [u8],
    patience: Duration,
) -> (SocketAddr, thread::JoinHandle<Result<Peer, ConnectError>>) {
    let listener = Listener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_address().unwrap();
    let qp = qp.clone();
    let options = ConnectOptions::default();
    (address, thread::spawn(move || listener.accept(&qp, &options, user, patience)))
}

/// What a queue pair says of somebody who answers like that.
fn answered(answer: &[u8]) -> ConnectError {
    let [one, _] = Context::memory_pair(Mtu::B1024).unwrap();
    let (address, server) =
        listening(&queue_pair(&one, ServiceType::Rc), b"", Duration::from_secs(1));
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(answer).unwrap();
    if answer.is_empty() {
        stream.shutdown(std::net::Shutdown::Write).unwrap();
    }
    server.join().unwrap().unwrap_err()
}

#[test]
fn both_sides_are_connected_when_it_returns() {
    let contexts = Context::memory_pair(Mtu::B1024).unwrap();
    for service in [ServiceType::Rc, ServiceType::Uc, ServiceType::Ud] {
        let [a, b] = contexts.each_ref().map(|context| queue_pair(context, service));
        let (address, server) = listening(&b, &[0, 0xff, 0x10], PATIENCE);
        let options = ConnectOptions { path_mtu: Mtu::B512, ..ConnectOptions::default() };
        let peer = connect(address, &a, &options, b"hello", PATIENCE).unwrap();
        assert_eq!(peer, Peer { endpoint: b.endpoint().unwrap(), user: vec![0, 0xff, 0x10] });
        let state = if service == ServiceType::Ud { QpState::Reset } else { QpState::Rts };
        assert_eq!((a.query().state, b.query().state), (state, state));
        let peer = server.join().unwrap().unwrap();
        assert_eq!(peer, Peer { endpoint: a.endpoint().unwrap(), user: b"hello".to_vec() });
    }
}

/// Each side knows why it did not work, also where the other one found out.
#[test]
fn a_failure_is_told_to_both() {
    let [one, other] = Context::memory_pair(Mtu::B1024).unwrap();
    let (a, b) = (queue_pair(&one, ServiceType::Rc), queue_pair(&other, ServiceType::Rc));
    let options = ConnectOptions { max_rd_atomic: 200, ..ConnectOptions::default() };
    let (address, server) = listening(&b, b"", PATIENCE);
    let here = connect(address, &a, &options, b"", PATIENCE).unwrap_err();
    let ConnectError::Here { peer, .. } = &here else { panic!("{here}") };
    assert_eq!(*peer, b.endpoint().unwrap());
    let there = server.join().unwrap().unwrap_err().to_string();
    assert_eq!(there, "the peer cannot connect with us: max_rd_atomic is out of range");
}

#[test]
fn somebody_else_is_recognised() {
    let said = answered(b"GET / HTTP/1.1\r\n").to_string();
    assert_eq!(said, "the peer is no roxe program: it says `GET / HTTP/1.1`");
    let said = answered(&[b'x'; MAX_LINE]).to_string();
    assert!(said.ends_with(&format!("`{}`", "x".repeat(60))), "{said}");
    let said = answered(b"roxe 2 something new\n").to_string();
    assert_eq!(said, "the peer speaks version 2 of the exchange, this program version 1");
    let said = answered(b"roxe 1 address=192.0.2.2,qpn=1,psn=x,mtu=1024 -\n").to_string();
    assert_eq!(said, "the peer's endpoint has `psn=x`, which cannot be read");
    let said = answered(b"roxe 1 address=192.0.2.2,qpn=2,psn=1,mtu=1024 0g\n");
    assert!(matches!(said, ConnectError::User));
    let said = answered(b"roxe 1 address=224.0.0.1,qpn=2,psn=1,mtu=1024 -\n").to_string();
    assert!(said.starts_with("the peer's address 224.0.0.1 is no single host's"), "{said}");
    assert!(matches!(answered(b""), ConnectError::Closed));
    let mapped = answered(b"roxe 1 address=::ffff:224.0.0.1,qpn=2,psn=1,mtu=1024 -\n").to_string();
    assert!(mapped.contains("is no single host's"), "{mapped}");
    assert!(matches!(answered(b"roxe 1"), ConnectError::Closed | ConnectError::Silent(_)));
}

/// Nobody is connected with himself.
#[test]
fn who_only_repeats_is_no_peer() {
    let [one, _] = Context::memory_pair(Mtu::B1024).unwrap();
    let echo = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = echo.local_addr().unwrap();
    let repeats = thread::spawn(move || {
        let (stream, _) = echo.accept().unwrap();
        let _ = io::copy(&mut &stream, &mut &stream);
    });
    let qp = queue_pair(&one, ServiceType::Rc);
    let error = connect(address, &qp, &ConnectOptions::default(), b"", PATIENCE).unwrap_err();
    assert_eq!(error.to_string(), "the peer is no roxe program: it only repeats what it hears");
    assert_eq!(qp.query().state, QpState::Reset);
    repeats.join().unwrap();
}

/// What a peer says may be shown, and commands nobody's terminal.
#[test]
fn nothing_that_a_peer_says_commands_the_terminal() {
    for said in [
        &b"GET \x1b[2J\xc2\x9b / \"it's\"\n"[..],
        b"roxe \x1b[2J\n",
        b"roxe 1 address=\x1b[2J,qpn=2,psn=1,mtu=1024 -\n",
        b"roxe 1 address=192.0.2.2,qpn=2,psn=\xe2\x80\xae\x07,mtu=1024 -\n",
        b"roxe 1 address=192.0.2.1,qpn=2,psn=1,mtu=1024 -\nfailed \x1b]0;title\x07 \xc2\xb5\n",
        b"roxe 1 address=192.0.2.1,qpn=2,psn=1,mtu=1024 -\n\x1b[2J\n",
        &[0x1b; MAX_LINE],
    ] {
        let told = answered(said).to_string();
        let is_raw = |c: char| c.is_control() || c == '\u{202e}';
        assert!(!told.contains(is_raw) && told.contains('.'), "{told:?}");
    }
    assert_eq!(visible("it's \"5 µs\" \\ größer\r".as_bytes()), "it's \"5 µs\" \\ größer");
}

#[test]
fn nobody_is_waited_for_no_longer_than_patience() {
    let [one, _] = Context::memory_pair(Mtu::B1024).unwrap();
    let qp = queue_pair(&one, ServiceType::Rc);
    let address = Listener::bind("127.0.0.1:0").unwrap().local_address().unwrap();
    let options = ConnectOptions::default();
    let error = connect(address, &qp, &options, b"", Duration::from_millis(50)).unwrap_err();
    assert!(error.to_string().starts_with(&format!("nobody listens at {address}: ")), "{error}");
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = silent.local_addr().unwrap();
    let error = connect(address, &qp, &options, b"", Duration::from_millis(50)).unwrap_err();
    assert!(matches!(error, ConnectError::Silent(_)), "{error}");
    let long = vec![0; MAX_USER + 1];
    let error = connect(address, &qp, &options, &long, PATIENCE).unwrap_err();
    assert!(matches!(error, ConnectError::User), "{error}");
}

#[test]
fn bytes_are_read_as_they_are_written() {
    for bytes in [&b""[..], b"\x00", b"\xff\x10a"] {
        assert_eq!(from_hexadecimal(&to_hexadecimal(bytes).unwrap()).as_deref(), Some(bytes));
    }
    assert_eq!(from_hexadecimal("0"), None);
    assert_eq!(from_hexadecimal(&"00".repeat(MAX_USER + 1)), None);
}

/// A connection goes to one host.
#[test]
fn an_address_of_none_or_many_is_refused() {
    let [one, _] = Context::memory_pair(Mtu::B1024).unwrap();
    let qp = queue_pair(&one, ServiceType::Rc);
    for (address, what) in [
        ("0.0.0.0", "is no host's"),
        ("::", "is no host's"),
        ("255.255.255.255", "is no single host's"),
        ("ff02::1", "is no single host's"),
    ] {
        let peer = Endpoint { address: address.parse().unwrap(), ..qp.endpoint().unwrap() };
        let refused = qp.connect(&peer, &ConnectOptions::default()).unwrap_err();
        assert!(refused.to_string().starts_with(&format!("{address} {what}")), "{refused}");
        assert_eq!(qp.query().state, QpState::Reset);
    }
}

#[test]
fn loopback_reaches_a_peer_on_this_host_only() {
    let address = "127.0.0.2".parse().unwrap();
    assert_eq!(why_unreachable(address, true), None);
    let what = why_unreachable(address, false).unwrap();
    assert_eq!(what, "is loopback, by which no other host is reached");
    let listener = Listener::bind("127.0.0.1:0").unwrap();
    let stream = TcpStream::connect(listener.local_address().unwrap()).unwrap();
    assert!(is_this_host(&stream));
}
