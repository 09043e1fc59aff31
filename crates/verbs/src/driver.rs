//! The loop: the only reader of the clock, the only caller of the engine's five calls in
//! production.

use std::io;
use std::time::Duration;

use roxe_device::gid_table::GidEntry;
use roxe_device::{Congestion, CqId, Device, VerbError};
use roxe_net::{FramePort, Outgoing, Seal, Wake};
use roxe_transport::Outlet;
use roxe_transport::congestion::CongestionControl;
use roxe_transport::work::{Completion, PathId};
use roxe_wire::{
    Addressing, FrameTemplate, Gid, GidType, ICRC_LEN, Instant, MacAddress, Path, Qpn, VlanTag,
};
use rustix::time::{ClockId, clock_gettime};

use crate::changes::Place;
use crate::events::{Affected, Router};
use crate::loopback::Loopback;
use crate::registered_memory::RegisteredMemory;
use crate::resolver::Link;

/// An engine, its port, and the clock that moves both.
pub struct Driver {
    /// The engine.
    pub device: Device<RegisteredMemory>,
    /// Where its packets come from and go to.
    pub port: Box<dyn FramePort + Send>,
    /// Where the packets of each path go, by its number.
    paths: Vec<Way>,
    loopback: Loopback,
    /// Where events of the engine go.
    pub(crate) router: Router,
    /// Until when the engine's thread sleeps; it is awake without.
    pub(crate) alarm: Option<Instant>,
    /// Packets wait that the last batch had no room for.
    more: bool,
    /// A poll handed out what was there, and nothing was moved since.
    handed_out: bool,
    /// Polls since one that looked at the clock.
    idle_polls: u32,
    /// When everything was moved last, not only what was posted.
    driven: Instant,
    /// What the clock said when the engine's time began.
    start: u64,
}

impl Driver {
    /// Joins an engine and a port. The engine's time begins now.
    ///
    /// # Errors
    /// When the process has no file descriptor left.
    pub fn new(
        device: Device<RegisteredMemory>,
        port: Box<dyn FramePort + Send>,
    ) -> io::Result<Self> {
        Ok(Self::with_router(device, port, Router::new()?))
    }

    pub(crate) fn with_router(
        device: Device<RegisteredMemory>,
        port: Box<dyn FramePort + Send>,
        router: Router,
    ) -> Self {
        Self {
            device,
            port,
            paths: Vec::new(),
            loopback: Loopback::default(),
            router,
            alarm: None,
            more: false,
            handed_out: false,
            idle_polls: 0,
            driven: Instant::ZERO,
            start: clock(),
        }
    }

    /// The engine's time.
    pub fn now(&self) -> Instant {
        Instant::from_nanos(clock().wrapping_sub(self.start))
    }

    /// Makes known how frames of a path begin.
    pub fn set_path(&mut self, path: PathId, template: FrameTemplate) {
        let notification = self.notification_on(&template);
        self.set_way(path, Way::Port { packets: template, notifications: notification });
    }

    /// How notifications of congestion begin where packets begin so.
    fn notification_on(&self, packets: &FrameTemplate) -> FrameTemplate {
        let point = self.device.congestion().notification_point.unwrap_or_default();
        packets.with_traffic_class(point.traffic_class())
    }

    /// How the adapter takes part in congestion control from now on.
    pub(crate) fn set_congestion(&mut self, congestion: Congestion) {
        self.device.set_congestion(congestion);
        let point = congestion.notification_point.unwrap_or_default();
        for way in &mut self.paths {
            if let Way::Port { packets, notifications } = way {
                *notifications = packets.with_traffic_class(point.traffic_class());
            }
        }
    }

    /// What controls how fast a queue pair sends from now on.
    ///
    /// # Errors
    /// There is no such queue pair.
    pub(crate) fn set_congestion_control(
        &mut self,
        qpn: Qpn,
        control: CongestionControl,
    ) -> Result<(), VerbError> {
        self.device.set_congestion_control(qpn, control)?;
        // Its packets say now whether they may be marked.
        let Some(id) = self.device.query_queue_pair(qpn)?.path else { return Ok(()) };
        let Some(path) = self.device.paths().get(id) else { return Ok(()) };
        let class = path.addressing.traffic_class;
        if let Some(Way::Port { packets, .. } | Way::Loopback(packets)) =
            self.paths.get_mut(id.0 as usize)
        {
            *packets = packets.with_traffic_class(class);
        }
        Ok(())
    }

    fn set_way(&mut self, path: PathId, way: Way) {
        let index = path.0 as usize;
        if self.paths.len() <= index {
            self.paths.resize_with(index + 1, || Way::Nowhere);
        }
        self.paths[index] = way;
    }

    /// Makes known how packets of a path of the engine leave.
    pub(crate) fn set_link(&mut self, id: PathId, link: Link) {
        let Some(path) = self.device.paths().get(id) else { return };
        // An address vector whose addresses do not go together is refused before.
        let Some(path) = path.addressing.path() else { return };
        match link {
            Link::Ethernet(destination, source) => {
                let ethernet = (destination, source);
                self.set_path(id, FrameTemplate::new(&Path { ethernet, ..path }));
            }
            Link::Loopback => self.set_way(id, Way::Loopback(FrameTemplate::new(&path))),
        }
    }

    /// Frames to a destination have these link addresses from now on, destination and source.
    pub(crate) fn move_to(&mut self, to: Place, ethernet: (MacAddress, MacAddress)) {
        for index in 0..self.paths.len() {
            let id = PathId(u32::try_from(index).expect("paths have numbers of 32 bits"));
            let path = self.device.paths().get(id);
            let goes_there = path.is_some_and(|it| {
                let Addressing { destination, vlan, .. } = it.addressing;
                Place { address: destination, vlan: vlan.map(VlanTag::id) } == to
            });
            if goes_there && matches!(self.paths[index], Way::Port { .. }) {
                self.set_link(id, Link::Ethernet(ethernet.0, ethernet.1));
            }
        }
    }

    /// Every counter of the port, and `loopback_packets`: those that the adapter sent to itself.
    pub(crate) fn port_counters(&self) -> Vec<(&'static str, u64)> {
        let mut counters = self.port.counters();
        counters.push(("loopback_packets", self.loopback.packets()));
        counters
    }

    /// Makes these the engine's addresses. Those that stay keep their GID indices. Says whether
    /// anything changed.
    pub(crate) fn set_addresses(&mut self, addresses: impl Iterator<Item = Place>) -> bool {
        let entry = |Place { address, vlan }| GidEntry {
            gid: Gid::from_ip(address),
            gid_type: GidType::RoceV2,
            vlan,
        };
        let wanted: Vec<_> = addresses.map(entry).collect();
        let gids = self.device.gids();
        let old: Vec<_> = gids.iter().filter(|(_, entry)| !wanted.contains(entry)).collect();
        let old: Vec<_> = old.into_iter().map(|(index, _)| index).collect();
        let mut changed = !old.is_empty();
        for index in old {
            self.device.remove_gid(index);
        }
        for entry in wanted {
            // One that is there, or for which there is no room, changes nothing.
            changed |= self.device.add_gid(entry).is_ok();
        }
        changed
    }

    /// Hands on what the application should hear about. Says whether that wakes somebody who waits
    /// for completions.
    pub(crate) fn route_events(&mut self) -> bool {
        let mut wakes = false;
        while let Some(event) = self.device.poll_event() {
            wakes |= self.router.route(event);
        }
        wakes
    }

    /// Takes back the asynchronous events of an object that is destroyed.
    pub(crate) fn forget_events(&mut self, of: Affected) {
        self.route_events();
        self.router.forget(of);
    }

    /// Moves what can be moved now: packets in, timers, packets out. Says whether anything moved.
    pub fn drive(&mut self) -> bool {
        let now = self.now();
        let received = self.receive(now);
        let sent = self.transmit(now);
        received + sent > 0
    }

    /// Takes completions for an application that polls. What is there already it has once without
    /// anything being moved: most programs answer it at once, and then the acknowledgement leaves
    /// together with the answer. Who polls one queue for what it sent and another for what it
    /// received may have taken in both with the first poll.
    pub(crate) fn poll(&mut self, cq: CqId, room: &mut [Completion]) -> usize {
        if !self.handed_out {
            let found = self.device.poll_completions(cq, room);
            self.handed_out = found > 0;
            if self.handed_out {
                return found;
            }
        }
        self.drive_for_poll();
        self.device.poll_completions(cq, room)
    }

    /// The same as [`drive`](Self::drive) for an application that polls: packets out first, those
    /// that what came in the last time asks for. So nothing stands between what comes in and what
    /// the application does with it; it has until its next poll to answer before the adapter
    /// acknowledges, or until the engine's thread takes over where it polls no more.
    pub(crate) fn drive_for_poll(&mut self) {
        self.handed_out = false;
        let sends = self.device.has_to_send() || self.port.due().is_some();
        self.idle_polls += 1;
        // Most polls find nothing, and need not even know what time it is.
        if !sends && self.idle_polls < BLIND_POLLS && !self.port.may_receive() {
            return;
        }
        self.idle_polls = 0;
        let now = self.now();
        if sends {
            self.transmit(now);
        }
        self.receive(now);
    }

    /// Sends what has just been posted, behind the acknowledgements of what the application has
    /// seen, without asking what arrived. But whoever only posts must not keep that waiting.
    pub(crate) fn send_posted(&mut self) {
        self.transmit(self.now());
        // What was sent may have taken longer than all before it.
        let now = self.now();
        if now.since(self.driven) > POSTS_ALONE {
            self.receive(now);
            self.acknowledge();
        }
    }

    /// Sends the acknowledgements of what the application has seen already, before a queue pair
    /// that owes them changes or goes.
    pub(crate) fn acknowledge(&mut self) {
        if self.device.has_response() {
            let now = self.now();
            self.transmit(now);
        }
    }

    fn receive(&mut self, now: Instant) -> usize {
        self.driven = now;
        let Self { device, port, .. } = self;
        let received = port.receive(now, &mut |packet| device.handle_packet(now, packet));
        device.handle_timeout(now);
        received
    }

    fn transmit(&mut self, now: Instant) -> usize {
        self.handed_out = false;
        let mut packets = self.transmit_batch(now);
        let mut rounds = 0;
        while !self.loopback.is_empty() {
            let Self { device, loopback, .. } = self;
            loopback.deliver(|packet| device.handle_packet(now, packet));
            // What it leads to goes out too, but not for ever: others want the engine.
            rounds += 1;
            if rounds == LOOPBACK_ROUNDS {
                self.more = true;
                break;
            }
            packets += self.transmit_batch(now);
        }
        packets
    }

    fn transmit_batch(&mut self, now: Instant) -> usize {
        let Self { device, port, paths, loopback, .. } = self;
        let mut looped = 0;
        let sent = port.transmit(now, &mut |room| {
            loop {
                let lent = roxe_wire::Room { first: &mut *room.first, second: &mut *room.second };
                let next = device.poll_transmit(now, Outlet { room: lent, elide: false })?;
                match paths.get(next.path.0 as usize) {
                    Some(Way::Port { packets, notifications }) => {
                        let path = match next.traffic_class {
                            None => packets,
                            Some(_) => notifications,
                        };
                        let len = next.packet.len + ICRC_LEN;
                        return Some(Outgoing { path, len, seal: Seal::Compute });
                    }
                    Some(Way::Loopback(path)) => {
                        loopback.put(path, &room, next.packet.len);
                        looped += 1;
                        if loopback.is_full() {
                            return None;
                        }
                    }
                    // A path that is not resolved loses its packets, as a network would.
                    Some(Way::Nowhere) | None => {}
                }
            }
        });
        self.more = sent.more;
        sent.packets + looped
    }

    /// Makes ready for a sleep without the engine in hand, of `most` at most: until a timer runs
    /// out, or the port wants to be driven. Says how long; [`Err`] when there is no need to sleep.
    pub(crate) fn settle(&mut self, most: Duration) -> Result<Duration, Wake> {
        let most = self.device.poll_timeout().map_or(most, |at| most.min(at - self.now()));
        if most.is_zero() { Err(Wake::TimedOut) } else { self.port.settle(most) }
    }

    /// The engine's thread is about to sleep for so long, as [`settle`](Self::settle) said. Time
    /// has passed since: a timer that ends the sleep is not the earlier for that.
    pub(crate) fn set_alarm(&mut self, after: Duration) {
        let alarm = self.now() + after;
        self.alarm = Some(self.device.poll_timeout().map_or(alarm, |at| at.min(alarm)));
    }

    /// Whether the thread that sleeps has to be awake earlier than it wanted. A poll that took a
    /// packet leaves its acknowledgement to the next one, which may never be; and a thread that was
    /// to be woken by the packet may have found it taken, and sleeps on.
    pub(crate) fn is_alarm_late(&self) -> bool {
        let Some(alarm) = self.alarm else { return false };
        self.more
            || self.device.has_to_send()
            || self.device.poll_timeout().is_some_and(|at| at < alarm)
            || self.port.due().is_some_and(|due| self.now() + due < alarm)
    }
}

/// Where packets of a path go.
#[derive(Debug)]
enum Way {
    /// Nowhere: it is not resolved.
    Nowhere,
    /// To the network.
    Port {
        /// What packets have in front.
        packets: FrameTemplate,
        /// What notifications of congestion have.
        notifications: FrameTemplate,
    },
    /// Back to the adapter, behind these headers.
    Loopback(FrameTemplate),
}

/// Nanoseconds of a clock that never goes back: 64 bits of them last for centuries.
fn clock() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec.cast_unsigned().wrapping_mul(1_000_000_000).wrapping_add(now.tv_nsec.cast_unsigned())
}

/// So many polls that find nothing may go by between two looks at the clock.
const BLIND_POLLS: u32 = 16;

/// So often what an adapter sent to itself is answered at once.
const LOOPBACK_ROUNDS: u32 = 16;

/// For how long an application may only post before everything else is seen to.
const POSTS_ALONE: Duration = Duration::from_micros(100);

#[cfg(test)]
mod tests {
    use roxe_transport::work::{Data, ReceiveRequest, SendOperation, SendRequest};
    use roxe_wire::Mtu;

    use super::*;
    use crate::{ConnectOptions, Connection, Context, ServiceType};

    const REQUEST: SendRequest<'_> = SendRequest {
        wr_id: 1,
        operation: SendOperation::Send,
        data: Data::Regions(&[]),
        signaled: true,
        solicited: false,
        fence: false,
        target: None,
    };

    #[test]
    fn what_is_left_to_be_sent_wakes_the_thread_that_sleeps() {
        let [one, other] = Context::memory_pair(Mtu::B1024).unwrap();
        let (mut here, there) = (Connection::new(&one).unwrap(), Connection::new(&other).unwrap());
        here.connect(&there.endpoint().unwrap()).unwrap();
        let qpn = here.queue_pair().qpn();
        one.with(|driver| {
            driver.set_alarm(Duration::from_secs(1));
            assert!(!driver.is_alarm_late());
            driver.device.post_send(qpn, &REQUEST).unwrap();
            assert!(driver.is_alarm_late());
        });
    }

    #[test]
    fn a_timer_that_ends_the_sleep_wakes_nobody_before() {
        let [one, other] = Context::memory_pair(Mtu::B1024).unwrap();
        let (mut here, there) = (Connection::new(&one).unwrap(), Connection::new(&other).unwrap());
        here.connect(&there.endpoint().unwrap()).unwrap();
        let qpn = here.queue_pair().qpn();
        one.with(|driver| {
            driver.device.post_send(qpn, &REQUEST).unwrap();
            driver.drive();
            let until = driver.device.poll_timeout().expect("it may have to be sent again");
            driver.set_alarm(until - driver.now());
            assert!(!driver.is_alarm_late());
        });
    }

    #[test]
    fn what_is_there_is_handed_out_before_its_acknowledgement_leaves() {
        let [one, other] = Context::memory_pair(Mtu::B1024).unwrap();
        let mut there = Connection::new(&other).unwrap();
        let cq = one.create_cq(2).unwrap();
        let here = one.default_pd().create_qp(ServiceType::Rc, &cq).build().unwrap();
        here.connect(&there.endpoint().unwrap(), &ConnectOptions::default()).unwrap();
        there.connect(&here.endpoint().unwrap()).unwrap();
        here.post_receive(&[ReceiveRequest { wr_id: 2, sges: &[] }; 2]).unwrap();
        one.with(|driver| {
            there.queue_pair().post_send(&[REQUEST; 2]).unwrap();
            let now = driver.now();
            driver.receive(now);
            let mut room = [Completion::BLANK];
            assert_eq!(driver.poll(cq.id(), &mut room), 1);
            assert!(driver.device.has_response(), "the application may answer first");
            assert_eq!(driver.poll(cq.id(), &mut room), 1);
            assert!(!driver.device.has_response(), "but does not keep the peer waiting for long");
        });
    }
}
