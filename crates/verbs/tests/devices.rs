//! Adapters by name, with a recording and a bad network around them.

use std::time::Duration;

use roxe_verbs::congestion::CongestionControl;
use roxe_verbs::{Buffer, Connection, Context, Error, Op, Wait};

const WAIT: Wait = Wait(Duration::from_secs(30));

/// A message of this many bytes.
fn exchange(one: &Context, other: &Context, len: u32) {
    let (mut a, mut b) = (Connection::new(one).unwrap(), Connection::new(other).unwrap());
    a.connect(&b.endpoint().unwrap()).unwrap();
    b.connect(&a.endpoint().unwrap()).unwrap();
    send(&mut a, &mut b, one, other, len);
}

/// The same between two that are connected.
fn send(a: &mut Connection, b: &mut Connection, one: &Context, other: &Context, len: u32) {
    let (from, to) = (Buffer::new(len as usize), Buffer::new(len as usize));
    let data: Vec<u8> = (0..len).map(|at| (at % 251) as u8).collect();
    from.write(0, &data);
    let (source, target) = (one.register(&from).unwrap(), other.register(&to).unwrap());
    b.post_receive(1, &target, 0, len).unwrap();
    a.post(2, Op::Send, &source, 0, len).unwrap();
    a.wait(WAIT).unwrap();
    assert_eq!(b.wait(WAIT).unwrap().byte_len, len);
    let mut arrived = vec![0; len as usize];
    to.read(0, &mut arrived);
    assert!(arrived == data);
}

fn counter(context: &Context, name: &str) -> u64 {
    let counters = context.counters();
    counters.iter().find(|(known, _)| *known == name).unwrap_or_else(|| panic!("{name}")).1
}

#[test]
fn adapters_of_one_memory_name_reach_each_other() {
    let [one, two, three] = ["memory:a"; 3].map(|name| roxe_verbs::open(name).unwrap());
    let apart = roxe_verbs::open("memory:b").unwrap();
    let addresses = [&one, &two, &three, &apart].map(|it| it.addresses().next().unwrap());
    let expected = ["192.0.2.1", "192.0.2.2", "192.0.2.3", "192.0.2.1"];
    assert_eq!(addresses.map(|address| address.to_string()), expected);
    exchange(&one, &three, 100_000);
    exchange(&three, &two, 10);
    drop(two);
    let again = roxe_verbs::open("memory:a").unwrap();
    assert_eq!(again.addresses().next().unwrap().to_string(), "192.0.2.2");
    exchange(&again, &one, 10);
}

/// Marks on the way slow a sender down, and all arrives. Nobody slows down without `cc`.
#[test]
fn who_is_marked_slows_down() {
    let marked = "memory:marked,cc=dcqcn,rate=1,fault=mark 20%";
    let [one, other] = [marked, "memory:marked"].map(|name| roxe_verbs::open(name).unwrap());
    let (mut a, mut b) = (Connection::new(&one).unwrap(), Connection::new(&other).unwrap());
    a.connect(&b.endpoint().unwrap()).unwrap();
    b.connect(&a.endpoint().unwrap()).unwrap();
    assert!(!a.queue_pair().reaction_point().unwrap().is_limiting());
    assert!(b.queue_pair().reaction_point().is_none());
    send(&mut a, &mut b, &one, &other, 1 << 20);
    let [sent, handled] = [counter(&other, "np_cnp_sent"), counter(&one, "rp_cnp_handled")];
    assert!(sent > 0 && handled > 0, "{sent} sent, {handled} handled");
    assert!(counter(&other, "np_ecn_marked_roce_packets") >= sent);
    let point = a.queue_pair().reaction_point().unwrap();
    assert!(point.is_limiting() && point.alpha() > 0.0, "{point:?}");
    assert_eq!(counter(&one, "retrans_pkts"), 0);
    // What is not controlled any more goes on without.
    a.queue_pair().set_congestion_control(CongestionControl::None).unwrap();
    assert!(a.queue_pair().reaction_point().is_none());
    let handled = counter(&one, "rp_cnp_handled");
    send(&mut a, &mut b, &one, &other, 1 << 20);
    assert_eq!(counter(&one, "rp_cnp_handled"), handled);
    assert!(counter(&one, "rp_cnp_ignored") > 0);
}

/// Both directions at once, by what acknowledgements say of the time: all arrives, also what is
/// READ, and parameters may change meanwhile.
#[test]
fn who_looks_at_round_trips_sends_all_the_same() {
    for (control, parameter) in [("timely", ("delta", "100M")), ("swift", ("max_cwnd", "8"))] {
        let text = format!("memory:{control},cc={control},rate=1,fault=drop 1%");
        let one = roxe_verbs::open(&text).unwrap();
        let other = roxe_verbs::open(&format!("memory:{control},cc={control}")).unwrap();
        let (mut a, mut b) = (Connection::new(&one).unwrap(), Connection::new(&other).unwrap());
        a.connect(&b.endpoint().unwrap()).unwrap();
        b.connect(&a.endpoint().unwrap()).unwrap();
        send(&mut a, &mut b, &one, &other, 1 << 20);
        let (name, value) = parameter;
        a.queue_pair().set_congestion_parameter(name, value).unwrap();
        let now = a.queue_pair().controller().unwrap().control();
        assert_eq!(now.name(), control);
        let shown = now.parameters().into_iter().find(|(known, _)| *known == name).unwrap().1;
        assert_eq!(shown, value);
        send(&mut a, &mut b, &one, &other, 1 << 20);
        send(&mut b, &mut a, &other, &one, 1 << 20);
        assert!(a.queue_pair().reaction_point().is_none());
    }
}

#[test]
fn what_cannot_be_set_is_told_and_hpcc_is_for_simulated_switches() {
    let one = roxe_verbs::open("memory:parameters,cc=timely").unwrap();
    one.set_congestion_parameter("t_low", "30us").unwrap();
    let error = one.set_congestion_parameter("t_low", "soon").unwrap_err();
    let told = "t_low=soon: not a time, such as 55us or 1ms";
    assert_eq!((error.to_string().as_str(), error.errno()), (told, 22));
    let a = Connection::new(&one).unwrap();
    let all = a.queue_pair().controller().unwrap().control().parameters();
    assert!(all.contains(&("t_low", "30us".to_owned())), "{all:?}");
    let hpcc: CongestionControl = "hpcc".parse().unwrap();
    let error = a.queue_pair().set_congestion_control(hpcc).unwrap_err();
    let told = error.to_string();
    assert!(told.starts_with("hpcc needs switches that say how long their queues"), "{told}");
    let congestion = roxe_verbs::Congestion { control: hpcc, ..one.congestion() };
    assert_eq!(one.set_congestion(congestion).unwrap_err().to_string(), told);
    a.queue_pair().set_congestion_control(CongestionControl::None).unwrap();
    let error = a.queue_pair().set_congestion_parameter("delta", "1").unwrap_err();
    assert_eq!(error.to_string(), "none has no parameter `delta`");
}

/// What is lost is sent again, and the recording shows it.
#[test]
fn a_recorded_adapter_behind_a_bad_network() {
    let file = std::env::temp_dir().join(format!("roxe-devices-{}.pcapng", std::process::id()));
    let device = format!("memory:c,fault=drop packets 3,5; dup every 7,capture={}", file.display());
    let one = roxe_verbs::open(&device).unwrap();
    let other = roxe_verbs::open("memory:c").unwrap();
    assert_eq!(one.name(), device);
    exchange(&one, &other, 300_000);
    assert_eq!(counter(&one, "fault_tx_dropped"), 2);
    assert!(counter(&one, "fault_tx_duplicated") > 5);
    let recorded = counter(&one, "capture_frames");
    assert!(recorded >= 300_000 / 4096 + 2, "{recorded} frames");
    drop(one);
    let bytes = std::fs::read(&file).unwrap();
    assert!(bytes.len() > 300_000);
    std::fs::remove_file(file).unwrap();
}

#[test]
fn an_adapter_that_there_is_not_is_told_from_those_there_are() {
    let error = roxe_verbs::open("roxe_nosuch").err().unwrap();
    assert!(matches!(error, Error::NoSuchDevice { .. }), "{error}");
    assert!(error.to_string().starts_with("there is no adapter roxe_nosuch; there are: "));
    let error = roxe_verbs::open("auto:nosuch0").err().unwrap();
    assert!(error.to_string().contains("lo"), "{error}");
    let error = roxe_verbs::open("udp:nowhere").err().unwrap();
    assert_eq!(
        (error.to_string().as_str(), error.errno()),
        ("device `udp:nowhere`: `nowhere` is no IP address", 22)
    );
}

/// An interface that no AF_XDP is possible on is used by a socket, and its summary says so.
#[test]
fn loopback_is_used_by_a_socket() {
    let device = "auto:lo".parse().unwrap();
    match Context::open_device("roxe_lo", &device) {
        Ok(context) => assert!(context.summary().contains("; not by AF_XDP: "), "loopback"),
        // Another program has it.
        Err(error) => assert!(matches!(error, Error::OpenUdp(_)), "{error}"),
    }
}
