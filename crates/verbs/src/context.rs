//! An open adapter, and the thread that makes progress when the application does not.

use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant as Clock};

use roxe_device::gid_table::GidEntry;
use roxe_device::memory::Registration;
use roxe_device::protection_domain::Pd;
use roxe_device::{Device, Limits, VerbError};
use roxe_net::{FramePort, Wake, Waker, memory};
use roxe_transport::work::{AccessFlags, PathId, PostError, Sge};
use roxe_wire::{
    Addressing, FrameTemplate, Gid, GidType, IpPair, LKey, MacAddress, Mtu, Path, RKey,
};

use crate::driver::Driver;
use crate::registered_memory::{Buffer, RegisteredMemory};

/// How long the application may not have polled before the engine's thread takes over.
const TAKE_OVER: Duration = Duration::from_micros(50);

/// The longest sleep of the engine's thread.
const LONGEST_SLEEP: Duration = Duration::from_secs(1);

/// Why a verb failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The engine refused.
    #[error(transparent)]
    Verb(#[from] VerbError),
    /// A request was refused.
    #[error(transparent)]
    Post(#[from] PostError),
    /// The port cannot be opened.
    #[cfg(feature = "af_xdp")]
    #[error(transparent)]
    Open(#[from] roxe_net::af_xdp::OpenError),
    /// The way to a peer cannot be found.
    #[error(transparent)]
    Resolve(#[from] roxe_net::neighbor::ResolveError),
    /// There is no way to a peer.
    #[error("no route to {0}: is the address right, and the interface up?")]
    NoRoute(IpAddr),
    /// The adapter has no address of the peer's family.
    #[error("the adapter has no address to talk to {0} from")]
    NoSourceAddress(IpAddr),
    /// A request failed.
    #[error("request {wr_id} failed: {status}")]
    Completion {
        /// The application's name for it.
        wr_id: u64,
        /// How it ended.
        status: &'static str,
    },
    /// Nothing completed in time.
    #[error("nothing completed within {0:?}")]
    TimedOut(Duration),
    /// The operating system refused something.
    #[error(transparent)]
    System(#[from] std::io::Error),
}

/// An open adapter. Clones are the same adapter; it closes when the last one is gone.
#[derive(Clone)]
pub struct Context {
    inner: Arc<Inner>,
}

struct Inner {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
    pd: Pd,
}

/// What the application and the engine's thread share.
struct Shared {
    driver: Mutex<Driver>,
    waker: Waker,
    /// How many callers want the driver: the engine's thread then lets go of it.
    wanted: AtomicU32,
    /// Whether the engine's thread sleeps in the port, driver in hand.
    asleep: AtomicBool,
    /// The application polled since the engine's thread looked last.
    polled: AtomicBool,
    closing: AtomicBool,
    resolver: Resolver,
    path_mtu: Mtu,
    addresses: Vec<IpAddr>,
}

/// How the link addresses of a path are found.
enum Resolver {
    /// There is just one other end.
    Fixed(MacAddress),
    /// The kernel knows.
    #[cfg(feature = "af_xdp")]
    Kernel(Mutex<(roxe_net::neighbor::Netlink, u32, MacAddress)>),
}

impl Context {
    /// Two adapters joined inside this process, with addresses 192.0.2.1 and 192.0.2.2.
    ///
    /// # Errors
    /// [`Error::System`].
    pub fn memory_pair(path_mtu: Mtu) -> Result<[Self; 2], Error> {
        let [one, other] = memory::pair(path_mtu)?;
        let open = |port, last: u8| {
            let address = IpAddr::from([192, 0, 2, last]);
            let resolver = Resolver::Fixed(MacAddress([2, 0, 0, 0, 0, 3 - last]));
            Self::open(Box::new(port), vec![address], resolver)
        };
        Ok([open(one, 1)?, open(other, 2)?])
    }

    /// An adapter on a network interface, with the interface's addresses.
    ///
    /// # Errors
    /// [`Error::Open`] says what is missing.
    #[cfg(feature = "af_xdp")]
    pub fn open_xdp(interface: &str, settings: roxe_net::af_xdp::Settings) -> Result<Self, Error> {
        let port = roxe_net::af_xdp::AfXdp::open(interface, settings)?;
        let mut netlink = roxe_net::neighbor::Netlink::open()?;
        let found = netlink.interfaces()?.into_iter().find(|found| found.name == interface);
        let found = found.ok_or_else(|| std::io::Error::from(std::io::ErrorKind::NotFound))?;
        let addresses = found.addresses.iter().map(|assigned| assigned.address).collect();
        let mac = found.mac.unwrap_or_default();
        let resolver = Resolver::Kernel(Mutex::new((netlink, found.index, mac)));
        Self::open(Box::new(port), addresses, resolver)
    }

    fn open(
        port: Box<dyn FramePort + Send>,
        addresses: Vec<IpAddr>,
        resolver: Resolver,
    ) -> Result<Self, Error> {
        let path_mtu = port.capabilities().path_mtu;
        let waker = port.waker();
        let mut device = Device::new(Limits::DEFAULT, seed(), RegisteredMemory::default());
        for &address in &addresses {
            let gid = Gid::from_ip(address);
            device.add_gid(GidEntry { gid, gid_type: GidType::RoceV2, vlan: None })?;
        }
        let pd = device.alloc_pd()?;
        let shared = Arc::new(Shared {
            driver: Mutex::new(Driver::new(device, port)),
            waker,
            wanted: AtomicU32::new(0),
            asleep: AtomicBool::new(false),
            polled: AtomicBool::new(false),
            closing: AtomicBool::new(false),
            resolver,
            path_mtu,
            addresses,
        });
        let engine = Arc::clone(&shared);
        let thread = std::thread::Builder::new()
            .name("roxe-engine".to_owned())
            .spawn(move || engine.run())?;
        Ok(Self { inner: Arc::new(Inner { shared, thread: Some(thread), pd }) })
    }

    /// The largest path MTU of the port.
    pub fn path_mtu(&self) -> Mtu {
        self.inner.shared.path_mtu
    }

    /// The adapter's addresses.
    pub fn addresses(&self) -> &[IpAddr] {
        &self.inner.shared.addresses
    }

    /// The port in words.
    pub fn summary(&self) -> String {
        self.with(|driver| driver.port.capabilities().summary.clone())
    }

    /// Every counter of engine and port, with its name.
    pub fn counters(&self) -> Vec<(&'static str, u64)> {
        self.with(|driver| {
            let mut all: Vec<_> = driver.device.counters().iter().collect();
            all.extend(driver.port.counters());
            all
        })
    }

    /// Registers a buffer with all rights but window binding.
    ///
    /// # Errors
    /// [`Error::Verb`].
    pub fn register(&self, buffer: &Arc<Buffer>) -> Result<MemoryRegion, Error> {
        let access = AccessFlags::LOCAL_WRITE
            | AccessFlags::REMOTE_WRITE
            | AccessFlags::REMOTE_READ
            | AccessFlags::REMOTE_ATOMIC;
        let (va, len) = (buffer.address(), buffer.len() as u64);
        let pd = self.inner.pd;
        let key = self.with(|driver| {
            let host = driver.device.host_mut().add(buffer);
            driver.device.register_memory(&Registration { pd, host, va, len, access })
        })?;
        Ok(MemoryRegion { context: self.clone(), key, va, len })
    }

    pub(crate) fn pd(&self) -> Pd {
        self.inner.pd
    }

    /// Runs a call with the engine in hand.
    pub(crate) fn with<R>(&self, call: impl FnOnce(&mut Driver) -> R) -> R {
        let shared = &self.inner.shared;
        shared.wanted.fetch_add(1, Ordering::SeqCst);
        if shared.asleep.load(Ordering::SeqCst) {
            shared.waker.wake();
        }
        let mut driver = shared.lock();
        shared.wanted.fetch_sub(1, Ordering::SeqCst);
        call(&mut driver)
    }

    /// Runs a call of an application that polls: the engine's thread keeps out of its way.
    pub(crate) fn poll<R>(&self, call: impl FnOnce(&mut Driver) -> R) -> R {
        self.inner.shared.polled.store(true, Ordering::Relaxed);
        self.with(|driver| {
            driver.drive();
            call(driver)
        })
    }

    /// Finds the link addresses of a path, and makes its frames' headers known to the driver.
    pub(crate) fn resolve(&self, path: PathId, to: &Addressing) -> Result<(), Error> {
        let ethernet = match &self.inner.shared.resolver {
            Resolver::Fixed(mac) => (*mac, MacAddress::default()),
            #[cfg(feature = "af_xdp")]
            Resolver::Kernel(kernel) => {
                let mut kernel = kernel.lock().unwrap_or_else(PoisonError::into_inner);
                let (netlink, interface, mac) = &mut *kernel;
                let route = netlink.route(to.destination, Some(to.source), Some(*interface))?;
                let route = route.ok_or(Error::NoRoute(to.destination))?;
                (netlink.resolve(&route, Duration::from_secs(3))?, *mac)
            }
        };
        let ip = IpPair::new(to.source, to.destination);
        let ip = ip.ok_or(Error::NoSourceAddress(to.destination))?;
        let template = FrameTemplate::new(&Path {
            ethernet,
            vlan: to.vlan,
            ip,
            traffic_class: to.traffic_class,
            hop_limit: to.hop_limit,
            flow_label: to.flow_label,
            source_port: to.source_port,
        });
        self.with(|driver| driver.set_path(path, template));
        Ok(())
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.shared.closing.store(true, Ordering::SeqCst);
        self.shared.waker.wake();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Driver> {
        // A panic while the engine was in hand ended the application's call, not the engine.
        self.driver.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The engine's thread.
    fn run(&self) {
        let mut idle_since = Clock::now();
        while !self.closing.load(Ordering::SeqCst) {
            if self.polled.swap(false, Ordering::Relaxed) {
                std::thread::sleep(TAKE_OVER);
                continue;
            }
            let mut driver = self.lock();
            if driver.drive() {
                idle_since = Clock::now();
            } else if idle_since.elapsed() > TAKE_OVER {
                self.asleep.store(true, Ordering::SeqCst);
                // Whoever wanted the driver before it saw `asleep` does not wake us: look once.
                if self.wanted.load(Ordering::SeqCst) == 0
                    && driver.sleep(LONGEST_SLEEP) == Wake::Gone
                {
                    self.asleep.store(false, Ordering::SeqCst);
                    drop(driver);
                    std::thread::sleep(LONGEST_SLEEP);
                    continue;
                }
                self.asleep.store(false, Ordering::SeqCst);
            }
            drop(driver);
            while self.wanted.load(Ordering::SeqCst) != 0 && !self.closing.load(Ordering::SeqCst) {
                std::thread::yield_now();
            }
        }
    }
}

/// Registered memory. Deregistered when dropped.
pub struct MemoryRegion {
    context: Context,
    key: LKey,
    va: u64,
    len: u64,
}

impl MemoryRegion {
    /// Where it begins.
    pub const fn address(&self) -> u64 {
        self.va
    }

    /// Bytes.
    pub const fn len(&self) -> u64 {
        self.len
    }

    /// Whether there are none.
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// What a peer names it by.
    pub const fn r_key(&self) -> RKey {
        RKey(self.key.0)
    }

    /// `len` bytes from `offset` on.
    pub const fn sge(&self, offset: u64, len: u32) -> Sge {
        Sge { va: self.va.wrapping_add(offset), len, l_key: self.key }
    }
}

impl Drop for MemoryRegion {
    fn drop(&mut self) {
        let key = self.key;
        // It can only fail for a window that is bound; then the device keeps the memory.
        let _ = self.context.with(|driver| driver.device.deregister_memory(key));
    }
}

/// Keys and numbers of an adapter cannot be guessed: they come from here.
fn seed() -> u64 {
    use std::hash::{BuildHasher, Hasher, RandomState};
    RandomState::new().build_hasher().finish()
}
