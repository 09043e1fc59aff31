//! An open adapter.

use std::net::{IpAddr, SocketAddr};
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use roxe_device::address_handle::AddressVector;
use roxe_device::gid_table::GidEntry;
use roxe_device::protection_domain::Pd;
use roxe_device::{Congestion, CqId, Device, Limits, QueuePairStory, Resources};
use roxe_net::capture::{Live, Recorder};
use roxe_net::host::HostPort;
use roxe_net::{Capabilities, memory, udp};
use roxe_transport::conduct::Conduct;
use roxe_transport::work::{AccessFlags, Completion};
use roxe_wire::{Gid, Grh, LKey, Mtu};

use crate::address_handle::to_sender;
use crate::cm::{Manager, Obstacle};
use crate::completion_channel::CompletionChannel;
use crate::completion_queue::CompletionQueue;
use crate::device_string::{DEFAULT_CONGESTION, DeviceString};
use crate::driver::Driver;
use crate::engine::Engine;
use crate::error::Error;
use crate::events::{AsyncEvent, AsyncEvents, Mailbox, Router};
use crate::memory_region::MemoryRegion;
use crate::opened::{Opened, wall_clock};
use crate::protection_domain::ProtectionDomain;
use crate::registered_memory::{Buffer, RegisteredMemory};
use crate::resolver::{Link, Resolver};
use crate::stalled::Stalled;
use crate::status;

/// An open adapter: `ibv_context`. Clones are the same adapter; it closes when the last one is
/// gone, and everything that was made with it.
///
/// Programs that the process starts have nothing of it. A child of `fork` has no thread that moves
/// it, and shares rings with its parent: it may start another program or `_exit`, and must neither
/// touch an adapter nor drop one. The parent goes on; its interface is free when the child has
/// ended too.
#[derive(Clone)]
pub struct Context {
    inner: Arc<Inner>,
    /// Where objects tell what happens to them that are made by this handle.
    events: AsyncEvents,
}

/// Queue pairs of an adapter that shares the host's network with others: their numbers too.
const QUEUE_PAIRS_ON_A_SEAT: u32 = 1 << 14;

/// By which all of them number their queue pairs.
const SEED_OF_ALL_SEATS: u64 = 47911;

struct Inner {
    name: String,
    engine: Arc<Engine>,
    thread: Option<JoinHandle<()>>,
    events: AsyncEvents,
    /// Who sees to connections; it has a thread, which has the engine too.
    cm: Option<Manager>,
    /// The domain of whoever does not care.
    pd: Pd,
    resolver: Arc<Resolver>,
    limits: Limits,
    capabilities: Capabilities,
    /// Regions that nobody has any more, but on which windows are bound.
    left: Mutex<Vec<LKey>>,
    /// What other processes ask, or why they cannot.
    status: Result<status::Server, std::io::Error>,
    recorder: Option<Recorder>,
}

/// The port of an adapter: `ibv_port_attr`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortAttr {
    /// Whether packets can come and go.
    pub state: PortState,
    /// The largest path MTU.
    pub active_mtu: Mtu,
    /// Bytes that a message may have.
    pub max_msg_sz: u32,
    /// Entries of the GID table.
    pub gid_tbl_len: u32,
    /// Entries of the P_Key table.
    pub pkey_tbl_len: u16,
    /// What carries the packets, and how.
    pub capabilities: Capabilities,
}

/// Whether packets can come and go: `ibv_port_state`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PortState {
    /// The interface is off or gone, or its cable ends nowhere.
    Down,
    /// They can.
    Active,
}

impl Context {
    /// Two adapters joined inside this process, with addresses 192.0.2.1 and 192.0.2.2.
    ///
    /// # Errors
    /// [`Error::System`].
    pub fn memory_pair(path_mtu: Mtu) -> Result<[Self; 2], Error> {
        let segment = memory::Segment::new(path_mtu);
        let open = || Self::open("memory", Opened::memory(&segment)?);
        Ok([open()?, open()?])
    }

    /// An adapter on an address of this host, through a UDP socket: without any privilege, a few
    /// times slower than AF_XDP.
    ///
    /// # Errors
    /// [`Error::OpenUdp`] says what is missing.
    pub fn open_udp(address: IpAddr, settings: udp::Settings) -> Result<Self, Error> {
        Self::open(&address.to_string(), Opened::udp(address, settings)?)
    }

    /// An adapter on a network interface by AF_XDP, with the interface's addresses.
    ///
    /// # Errors
    /// [`Error::OpenXdp`] says what is missing.
    #[cfg(feature = "af_xdp")]
    pub fn open_xdp(interface: &str, settings: roxe_net::af_xdp::Settings) -> Result<Self, Error> {
        let own = roxe_net::owned::Own::default();
        Self::open(interface, Opened::xdp(interface, settings, &own)?)
    }

    /// The adapter that a device string says, under a name for people.
    ///
    /// # Errors
    /// [`Error`] says what is missing.
    pub fn open_device(name: &str, device: &DeviceString) -> Result<Self, Error> {
        let context = Self::open(name, Opened::device(name, device)?)?;
        context.set_congestion(device.congestion)?;
        Ok(context)
    }

    fn open(name: &str, opened: Opened) -> Result<Self, Error> {
        let Opened { port, addresses, resolver, note, interface, active, changes, .. } = opened;
        let (recorder, seat) = (opened.recorder, opened.seat);
        let mut capabilities = port.capabilities().clone();
        capabilities.summary += &note;
        let mut limits = Limits::DEFAULT;
        limits.port_mtu = capabilities.path_mtu;
        if seat.is_some() {
            limits.max_qp = QUEUE_PAIRS_ON_A_SEAT;
        }
        let mut device = Device::new(limits, seed(), RegisteredMemory::default());
        if let Some(seat) = seat {
            // Who has the same address must not have the same numbers.
            device.share_numbers(SEED_OF_ALL_SEATS, seat, HostPort::SEATS, seed());
        }
        device.set_conduct(Conduct::ADAPTER);
        device.set_congestion(DEFAULT_CONGESTION);
        let pd = device.alloc_pd()?;
        let router = Router::new()?;
        let events = AsyncEvents(Arc::clone(&router.events));
        let port = Live::new(port, wall_clock());
        let tap = port.tap();
        let mut driver = Driver::with_router(device, Box::new(port), router);
        driver.set_addresses(addresses.into_iter());
        let engine = Arc::new(Engine::new(driver, active, interface)?);
        let shared = Arc::clone(&engine);
        let thread = std::thread::Builder::new()
            .name("roxe-engine".to_owned())
            .spawn(move || shared.run(changes))?;
        let resolver = Arc::new(resolver);
        let cm = Manager::open(&engine, &resolver, pd, &limits, seat.is_some());
        let cm = cm.inspect_err(|_| engine.close())?;
        let about = status::About {
            name: name.to_owned(),
            mode: capabilities.summary.clone(),
            active_mtu: capabilities.path_mtu.bytes(),
        };
        let manager = Arc::clone(cm.shared());
        let listeners = Box::new(move || manager.listeners());
        // Who cannot be looked at can work all the same.
        let status = status::Server::open(about, Arc::clone(&engine), listeners, tap);
        let inner = Inner {
            name: name.to_owned(),
            engine,
            thread: Some(thread),
            events,
            cm: Some(cm),
            pd,
            resolver,
            limits,
            capabilities,
            left: Mutex::default(),
            status,
            recorder,
        };
        let events = inner.events.clone();
        Ok(Self { inner: Arc::new(inner), events })
    }

    /// A handle of the same adapter with a queue of events of its own: what happens to objects made
    /// by it is told there and nowhere else, what happens to the adapter there too.
    ///
    /// # Errors
    /// [`Error::System`].
    pub fn with_own_events(&self) -> Result<Self, Error> {
        let events = AsyncEvents(Arc::new(Mailbox::new()?));
        self.with(|driver| driver.router.add_listener(&events.0));
        Ok(Self { inner: Arc::clone(&self.inner), events })
    }

    pub(crate) const fn events(&self) -> &Arc<Mailbox<AsyncEvent>> {
        &self.events.0
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.inner.name
    }

    /// How much of everything there can be: `ibv_query_device`.
    pub fn query_device(&self) -> &Limits {
        &self.inner.limits
    }

    /// What the port is like now: `ibv_query_port`.
    pub fn query_port(&self) -> PortAttr {
        let Inner { engine, limits, capabilities, .. } = &*self.inner;
        PortAttr {
            state: if engine.is_active() { PortState::Active } else { PortState::Down },
            active_mtu: capabilities.path_mtu,
            max_msg_sz: limits.max_message_len(),
            gid_tbl_len: limits.gid_table_len,
            pkey_tbl_len: limits.max_pkeys,
            capabilities: capabilities.clone(),
        }
    }

    /// How the adapter takes part in congestion control.
    pub fn congestion(&self) -> Congestion {
        self.with(|driver| *driver.device.congestion())
    }

    /// How it takes part from now on. Queue pairs that there are stay as they are: see
    /// [`QueuePair::set_congestion_control`](crate::QueuePair::set_congestion_control).
    ///
    /// # Errors
    /// [`Error::NoTelemetry`]; [`Error::Parameter`]: one is out of its range, or there is no
    /// `line_rate` for what is to be controlled.
    pub fn set_congestion(&self, congestion: Congestion) -> Result<(), Error> {
        check_congestion(&congestion)?;
        self.with(|driver| driver.set_congestion(congestion));
        Ok(())
    }

    /// Sets a parameter of congestion control by name, for queue pairs that are made from now on
    /// and for how marked packets are answered: `rp_ai_rate` to `5M`. Names are those of mlx5 with
    /// DCQCN, those of the papers with others. A number without unit is in Mb/s, µs or bytes.
    ///
    /// # Errors
    /// [`Error::Parameter`]: there is no such one, or the value is none or out of range.
    pub fn set_congestion_parameter(&self, name: &str, value: &str) -> Result<(), Error> {
        self.with(|driver| {
            let mut congestion = *driver.device.congestion();
            congestion.set(name, value)?;
            driver.set_congestion(congestion);
            Ok(())
        })
    }

    /// Whether who has this address is told when its packets come marked. It is unless said
    /// otherwise; Linux rxe cannot do with notifications.
    pub fn set_notifies(&self, peer: IpAddr, notifies: bool) {
        self.with(|driver| driver.device.set_notifies(peer, notifies));
    }

    /// The address with this GID index: `ibv_query_gid_ex`.
    ///
    /// # Errors
    /// [`Error::NoSuchGid`].
    pub fn query_gid(&self, index: u32) -> Result<GidEntry, Error> {
        let found = self.with(|driver| driver.device.gids().get(index).copied());
        found.ok_or(Error::NoSuchGid(index))
    }

    /// The adapter's addresses with their GID indices: `ibv_query_gid_table`. An index stays with
    /// its address, so that there may be holes.
    pub fn gids(&self) -> Vec<(u32, GidEntry)> {
        self.with(|driver| driver.device.gids().iter().map(|(at, entry)| (at, *entry)).collect())
    }

    /// The adapter's addresses.
    pub fn addresses(&self) -> impl Iterator<Item = IpAddr> {
        self.gids().into_iter().map(|(_, entry)| entry.gid.to_ip())
    }

    /// The largest path MTU of the port.
    pub fn path_mtu(&self) -> Mtu {
        self.inner.capabilities.path_mtu
    }

    /// The name of the network interface under the port, if there is one.
    pub fn interface(&self) -> Option<&str> {
        self.inner.engine.interface()
    }

    /// The port in words.
    pub fn summary(&self) -> &str {
        &self.inner.capabilities.summary
    }

    /// Every counter of engine and port, with its name.
    pub fn counters(&self) -> Vec<(&'static str, u64)> {
        self.with(|driver| {
            let mut all: Vec<_> = driver.device.counters().iter().collect();
            all.extend(driver.port_counters());
            all
        })
    }

    /// What became of management datagrams.
    pub fn cm_counters(&self) -> roxe_cm::Counters {
        self.cm().shared().look(|state| state.agent.counters().clone())
    }

    /// Has `tell` hear what stands between who connects by this adapter and its peer, and nobody
    /// who heard of it before. The connection manager calls it and goes on when it returns: it must
    /// not wait, nor use the adapter.
    pub fn on_obstacle(&self, tell: impl Fn(SocketAddr, Obstacle) + Send + 'static) {
        self.cm().shared().set_witness(tell);
    }

    /// Has `tell` hear of connections that have stood still for about 5 s because a side has no
    /// receives, each once, and nobody who heard of them before. The engine's thread calls it and
    /// goes on when it returns: it must not wait, nor use the adapter.
    pub fn on_stalled(&self, tell: impl Fn(Stalled) + Send + 'static) {
        self.inner.engine.set_witness(Box::new(tell));
    }

    /// Why other processes cannot look at the adapter (see [`status`]), if they cannot.
    pub fn status_trouble(&self) -> Option<&std::io::Error> {
        self.inner.status.as_ref().err()
    }

    /// What speaks with the recording that the device string asks for, if it asks for one. When the
    /// adapter is closed, it knows whether all that was recorded is in the file.
    pub fn recorder(&self) -> Option<&Recorder> {
        self.inner.recorder.as_ref()
    }

    /// Takes in what has arrived until now, answers it, and sends what is to be sent: before a
    /// process ends that leaves the adapter open.
    pub fn catch_up(&self) {
        let mut turns = 0..MOST_TURNS;
        while turns.next().is_some() && self.with(Driver::drive) {}
        self.cm().shared().catch_up();
    }

    /// How many connections of the RDMA CM were disconnected by this side, or given up, and wait
    /// for the peer's answer.
    pub fn partings(&self) -> usize {
        self.cm().shared().look(|state| state.agent.partings())
    }

    /// How many objects there are now.
    pub fn resources(&self) -> Resources {
        self.with(|driver| driver.device.resources())
    }

    /// What happens to the adapter and its objects: `ibv_get_async_event`. All clones of a handle
    /// share one queue of events.
    pub fn async_events(&self) -> AsyncEvents {
        self.events.clone()
    }

    /// Where the sender of a datagram is: `ibv_init_ah_from_wc`. The area is that before the
    /// datagram, the first 40 bytes of its receive's memory.
    ///
    /// # Errors
    /// [`Error::NoSender`].
    pub fn sender(&self, area: &Grh) -> Result<AddressVector, Error> {
        to_sender(&self.gids(), area)
    }

    /// A protection domain: `ibv_alloc_pd`.
    ///
    /// # Errors
    /// [`Error::Verb`].
    pub fn alloc_pd(&self) -> Result<ProtectionDomain, Error> {
        ProtectionDomain::alloc(self)
    }

    /// The protection domain that the adapter has from the beginning.
    pub fn default_pd(&self) -> ProtectionDomain {
        ProtectionDomain::of(self, self.inner.pd)
    }

    /// A completion queue for `depth` completions: `ibv_create_cq`.
    ///
    /// # Errors
    /// [`Error::Verb`].
    pub fn create_cq(&self, depth: u32) -> Result<CompletionQueue, Error> {
        CompletionQueue::create(self, depth, None)
    }

    /// A completion queue that tells `channel` of completions when it is asked to.
    ///
    /// # Errors
    /// [`Error::OtherAdapter`]; [`Error::Verb`].
    pub fn create_cq_on(
        &self,
        channel: &CompletionChannel,
        depth: u32,
    ) -> Result<CompletionQueue, Error> {
        CompletionQueue::create(self, depth, Some(channel))
    }

    /// A completion channel: `ibv_create_comp_channel`.
    ///
    /// # Errors
    /// [`Error::System`].
    pub fn create_comp_channel(&self) -> Result<CompletionChannel, Error> {
        Ok(CompletionChannel::new(self)?)
    }

    /// Registers a buffer with the default domain and all rights but window binding.
    ///
    /// # Errors
    /// [`Error::Verb`].
    pub fn register(&self, buffer: &Arc<Buffer>) -> Result<MemoryRegion, Error> {
        let access = AccessFlags::LOCAL_WRITE
            | AccessFlags::REMOTE_WRITE
            | AccessFlags::REMOTE_READ
            | AccessFlags::REMOTE_ATOMIC;
        self.default_pd().register(buffer, access)
    }

    /// Runs a call with the engine in hand.
    pub(crate) fn with<R>(&self, call: impl FnOnce(&mut Driver) -> R) -> R {
        self.inner.engine.with(call)
    }

    /// Runs a call that posts requests, and sends them.
    pub(crate) fn post<R>(&self, call: impl FnOnce(&mut Driver) -> R) -> R {
        self.inner.engine.post(call)
    }

    /// Runs a call of an application that asks for an event.
    pub(crate) fn arm<R>(&self, call: impl FnOnce(&mut Driver) -> R) -> R {
        self.inner.engine.arm(call)
    }

    /// Waits for what `take` takes; `ready` is readable while it is there.
    pub(crate) fn wait_for<T>(
        &self,
        take: impl FnMut() -> Option<T>,
        ready: BorrowedFd<'_>,
        timeout: Duration,
        interrupts: impl Fn() -> bool,
    ) -> Option<T> {
        self.inner.engine.wait_for(take, ready, timeout, interrupts)
    }

    /// Takes completions for an application that polls.
    pub(crate) fn poll(&self, cq: CqId, room: &mut [Completion]) -> usize {
        self.inner.engine.poll(cq, room)
    }

    /// Whether both are the same adapter.
    pub(crate) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.inner, &other.inner)
    }

    /// A sentence about a queue pair, behind what became of the port, if that is why.
    pub(crate) fn with_port(&self, story: &QueuePairStory, sentence: String) -> String {
        self.inner.engine.with_port(story, sentence)
    }

    /// Who sees to connections.
    pub(crate) fn cm(&self) -> &Manager {
        self.inner.cm.as_ref().expect("it is there as long as the adapter")
    }

    /// How packets of a path leave. May take seconds.
    pub(crate) fn link(&self, vector: &AddressVector) -> Result<Link, Error> {
        let (addressing, is_own) = self.with(|driver| {
            let gids = driver.device.gids();
            let addressing = vector.resolve(gids, 0);
            let is_own = addressing.as_ref().is_ok_and(|to| {
                let destination = Gid::from_ip(to.destination);
                gids.iter().any(|(_, entry)| entry.gid == destination)
            });
            (addressing, is_own)
        });
        let addressing = addressing.map_err(roxe_device::VerbError::from)?;
        let drive = || {
            self.with(Driver::drive);
        };
        self.inner.resolver.link(&addressing, is_own, drive)
    }

    /// Deregisters a region that nobody has any more, at once or when its last window has gone.
    pub(crate) fn deregister(&self, key: Option<LKey>) {
        let mut left = self.inner.left.lock().unwrap_or_else(PoisonError::into_inner);
        left.extend(key);
        self.with(|driver| left.retain(|&key| driver.device.deregister_memory(key).is_err()));
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.cm = None;
        // Its thread has the engine too, and would be the last one.
        self.status = Err(std::io::ErrorKind::NotConnected.into());
        self.engine.close();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// After so many turns all has been taken in that a port can hold: what comes then is new.
const MOST_TURNS: u32 = 1024;

/// Keys and numbers of an adapter cannot be guessed: they come from here.
pub(crate) fn seed() -> u64 {
    use std::hash::{BuildHasher, Hasher, RandomState};
    RandomState::new().build_hasher().finish()
}

/// Whether an algorithm works on a network, with parameters that are in their ranges.
pub(crate) fn check_congestion(congestion: &Congestion) -> Result<(), Error> {
    let control = &congestion.control;
    if control.needs_telemetry() {
        return Err(Error::NoTelemetry(control.name()));
    }
    Ok(congestion.check()?)
}
