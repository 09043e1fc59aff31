use std::net::UdpSocket;
use std::os::fd::AsFd as _;
use std::sync::Arc;

use roxe_device::Device;
use roxe_device::limits::Limits;
use roxe_net::udp::{Settings, Udp};
use rustix::event::{EventfdFlags, eventfd};

use super::*;

/// While the engine's thread asks the port what is wrong, a wait does not look at it; but it
/// does again when nothing was.
#[test]
fn a_wait_sees_what_arrives_behind_trouble_that_was_none() {
    let port = Udp::open([127, 203, 0, 1].into(), Settings::default()).unwrap();
    let device = Device::new(Limits::DEFAULT, 1, Default::default());
    let driver = Driver::new(device, Box::new(port)).unwrap();
    let engine = Arc::new(Engine::new(driver, true, None).unwrap());
    engine.troubled.store(true, Ordering::SeqCst);
    let waiter = {
        let engine = Arc::clone(&engine);
        thread::spawn(move || {
            let never = eventfd(0, EventfdFlags::CLOEXEC).unwrap();
            let take = || {
                let counters = engine.with(|driver| driver.port.counters());
                counters.contains(&("rx_packets", 1)).then_some(())
            };
            engine.wait_for(take, never.as_fd(), Duration::from_secs(20), || false)
        })
    };
    // It has looked for a while, and sleeps, before the trouble is over.
    while engine.vain.load(Ordering::Relaxed) == 0 {
        thread::yield_now();
    }
    thread::sleep(Duration::from_millis(20));
    engine.troubled.store(false, Ordering::SeqCst);
    let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
    sender.send_to(&[0; 20], "127.203.0.1:4791").unwrap();
    assert_eq!(waiter.join().unwrap(), Some(()));
}

/// A call that takes longer than a rest of the engine's thread is no reason to take over.
#[test]
fn a_call_has_the_engine_in_hand_until_it_ends() {
    let port = Udp::open([127, 203, 0, 2].into(), Settings::default()).unwrap();
    let device = Device::new(Limits::DEFAULT, 1, Default::default());
    let driver = Driver::new(device, Box::new(port)).unwrap();
    let engine = Engine::new(driver, true, None).unwrap();
    let seen_beside = || thread::scope(|scope| scope.spawn(|| engine.is_in_hand()).join().unwrap());
    assert!(!seen_beside());
    assert!(engine.with(|_| seen_beside()));
    assert!(!seen_beside());
}

/// Waits that take half a millisecond each end one rest of that length, not four that grow to it.
#[test]
fn rests_beside_waits_stay_as_long_as_they_have_grown() {
    let grown = TAKE_OVER * 8;
    let (polls, waits) = ((true, false), (false, true));
    let rest = |(goes_on, waits), last| rest_beside(goes_on, waits, last);
    assert_eq!(rest(waits, grown), grown);
    assert_eq!(rest(waits, LONGEST_SLEEP), TAKE_OVER_LATE);
    assert_eq!(rest(waits, TAKE_OVER), TAKE_OVER);
    assert_eq!(rest(polls, grown), grown * 2);
    assert_eq!(rest(polls, TAKE_OVER_LATE), TAKE_OVER_LATE);
    // Who only now and then does something gets no longer rest from what was before.
    assert_eq!(rest((false, false), grown), TAKE_OVER);
}
