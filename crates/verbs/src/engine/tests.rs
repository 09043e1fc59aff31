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
            engine.wait_for(take, never.as_fd(), Duration::from_secs(20))
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
