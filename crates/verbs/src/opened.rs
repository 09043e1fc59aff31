//! From a device string to a port, and what an adapter has to know of it.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use roxe_net::capture::{self, Capture, Recorder};
use roxe_net::capture_file::Timestamp;
use roxe_net::fault::FaultPort;
use roxe_net::host::HostPort;
use roxe_net::neighbor::{Interface, Netlink, Watch};
use roxe_net::{FramePort, memory, udp};
use roxe_wire::Mtu;

use crate::changes::{self, Changes, Place, Watched};
use crate::context::seed;
use crate::device_string::{DeviceString, DeviceStringError, PortString};
use crate::error::Error;
use crate::resolver::Resolver;

/// An open port.
pub(crate) struct Opened {
    pub(crate) port: Box<dyn FramePort + Send>,
    pub(crate) addresses: Vec<Place>,
    pub(crate) resolver: Resolver,
    /// What its summary does not say.
    pub(crate) note: String,
    /// The name of the network interface under it, if there is one.
    pub(crate) interface: Option<String>,
    /// Whether packets can come and go now.
    pub(crate) active: bool,
    /// What becomes of the interface, for ports that depend on one.
    pub(crate) changes: Option<Changes>,
    /// What speaks with the recording that was asked for.
    pub(crate) recorder: Option<Recorder>,
    /// Which of those it is that may have the same address.
    pub(crate) seat: Option<u32>,
}

impl Opened {
    /// A port that depends on no interface.
    fn new(
        port: impl FramePort + Send + 'static,
        addresses: Vec<Place>,
        resolver: Resolver,
    ) -> Self {
        Self {
            port: Box::new(port),
            addresses,
            resolver,
            note: String::new(),
            interface: None,
            active: true,
            changes: None,
            recorder: None,
            seat: None,
        }
    }

    pub(crate) fn device(name: &str, device: &DeviceString) -> Result<Self, Error> {
        let opened = match &device.port {
            #[cfg(feature = "af_xdp")]
            PortString::Xdp(interface, settings, own) => Self::xdp(interface, *settings, own)?,
            PortString::Udp(address, settings) => Self::udp(*address, *settings)?,
            PortString::Auto(interface) => Self::best(interface)?,
            PortString::Host(address) => Self::host(*address)?,
            PortString::Memory(segment) => Self::memory(&segment_named(segment))?,
        };
        opened.around(name, device)
    }

    /// A port of a segment; the one with number 0 has address 192.0.2.1.
    pub(crate) fn memory(segment: &memory::Segment) -> Result<Self, Error> {
        let port = segment.join()?;
        let number = u8::try_from(port.number() + 1).ok().filter(|&number| number < u8::MAX);
        let number = number.ok_or(roxe_device::VerbError::Limit("ports of a segment"))?;
        let addresses = vec![Place::untagged(IpAddr::from([192, 0, 2, number]))];
        Ok(Self::new(port, addresses, Resolver::Segment))
    }

    /// A port of the host's own network, which any process may be on with any address.
    pub(crate) fn host(address: IpAddr) -> Result<Self, Error> {
        let port = HostPort::open()?;
        let seat = Some(port.seat());
        let opened = Self::new(port, vec![Place::untagged(address)], Resolver::Host);
        Ok(Self { seat, ..opened })
    }

    pub(crate) fn udp(address: IpAddr, settings: udp::Settings) -> Result<Self, Error> {
        let watch = Watch::open()?;
        let port = udp::Udp::open(address, settings)?;
        let index = port.interface();
        let mut netlink = Netlink::open()?;
        let interfaces = netlink.interfaces()?;
        let has_neighbors = |it: &&Interface| it.has_ethernet_header() && !it.is_loopback();
        let with_neighbors = interfaces.iter().filter(has_neighbors).map(|it| it.index).collect();
        let resolver = Resolver::Socket(Mutex::new(netlink), with_neighbors);
        let opened = Self::new(port, vec![Place::untagged(address)], resolver);
        let Some(interface) = interfaces.iter().find(|it| it.index == index) else {
            return Ok(Self { active: false, ..opened });
        };
        let watched = Watched::new(watch, interface)?;
        let active = changes::is_active(interface);
        let changes = Some(watched.with_address(address));
        Ok(Self { active, changes, interface: Some(interface.name.clone()), ..opened })
    }

    #[cfg(feature = "af_xdp")]
    pub(crate) fn xdp(
        interface: &str,
        settings: roxe_net::af_xdp::Settings,
        own: &roxe_net::owned::Own,
    ) -> Result<Self, Error> {
        use roxe_net::af_xdp::AfXdp;
        use roxe_net::neighbor::Assigned;
        let (port, neighbors) = if own.addresses.is_empty() {
            (AfXdp::open(interface, settings)?, None)
        } else {
            let (port, neighbors) = AfXdp::open_owning(interface, settings, own)?;
            (port, Some(neighbors))
        };
        // What changes from here on is told; what is so now is read after.
        let watch = Watch::open()?;
        let mut netlink = Netlink::open()?;
        let all = netlink.interfaces()?;
        let found = choose(&all, interface)?.clone();
        let watched = Watched::new(watch, &found)?;
        let active = changes::is_active(&found);
        let (addresses, resolver, changes) = match neighbors {
            None => {
                let kernel = crate::resolver::kernel::Kernel::new(netlink, &found);
                let addresses = changes::addresses(&found, &all);
                let changes = watched.with_its_addresses(kernel.follow()?);
                (addresses, Resolver::Kernel(kernel), changes)
            }
            Some(neighbors) => {
                let mac = found.mac.unwrap_or_default();
                let changes = watched.with_own_addresses(neighbors.clone(), mac);
                let host = crate::resolver::own::Host { neighbors, mac };
                let place = |it: &Assigned| Place { address: it.address, vlan: own.vlan };
                let addresses = own.addresses.iter().map(place).collect();
                (addresses, Resolver::Own(host), changes)
            }
        };
        let opened = Self::new(port, addresses, resolver);
        Ok(Self { active, changes: Some(changes), interface: Some(found.name), ..opened })
    }

    /// By AF_XDP where that works, else a UDP socket on the interface's first address. Not where
    /// another adapter is open by AF_XDP: beside it a socket hears nothing.
    fn best(name: &str) -> Result<Self, Error> {
        let interface = find(&mut Netlink::open()?, name)?;
        let why = match Self::by_xdp(&interface)? {
            Ok(opened) => return Ok(opened),
            Err(why) => why,
        };
        let address = interface.addresses.first();
        let address = address.ok_or_else(|| Error::NoAddress(name.to_owned()))?.address;
        let opened = Self::udp(address, udp::Settings::default())?;
        Ok(Self { note: format!("; not by AF_XDP: {why}"), ..opened })
    }

    /// By AF_XDP, or why not; an error where nothing else is to be tried.
    #[cfg(feature = "af_xdp")]
    fn by_xdp(interface: &Interface) -> Result<Result<Self, String>, Error> {
        use roxe_net::af_xdp::OpenError;
        if interface.is_loopback() {
            // Frames to an address of one's own have no neighbour to go to.
            return Ok(Err("loopback reaches only this host".to_owned()));
        }
        let settings = roxe_net::af_xdp::Settings::default();
        let own = roxe_net::owned::Own::default();
        match Self::xdp(&interface.name, settings, &own) {
            Ok(opened) => Ok(Ok(opened)),
            Err(
                held @ Error::OpenXdp(
                    OpenError::ProgramAttached { .. } | OpenError::QueueBusy { .. },
                ),
            ) if crate::status::is_open_on(&interface.name) => Err(held),
            Err(error) => Ok(Err(error.to_string())),
        }
    }

    #[cfg(not(feature = "af_xdp"))]
    fn by_xdp(_: &Interface) -> Result<Result<Self, String>, Error> {
        Ok(Err("this program was built without it".to_owned()))
    }

    /// What a device string puts around a port. The recording is the outer one: it shows what this
    /// host sent and got, as one of a real network would.
    fn around(self, name: &str, device: &DeviceString) -> Result<Self, Error> {
        let (mut port, mut recorder) = (self.port, None);
        if let Some(rules) = &device.fault {
            let faulty = FaultPort::parse(port, rules, seed()).map_err(|error| {
                DeviceStringError { device: device.to_string(), what: error.to_string() }
            })?;
            port = Box::new(faulty);
        }
        if let Some(file) = &device.capture {
            let settings =
                capture::Settings { epoch: wall_clock(), ..capture::Settings::default() };
            let capture = Capture::open(port, file, name, settings)?;
            recorder = Some(capture.recorder());
            port = Box::new(capture);
        }
        Ok(Self { port, recorder, ..self })
    }
}

/// What time it is.
pub(crate) fn wall_clock() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp::from_nanos(u64::try_from(since.as_nanos()).unwrap_or(u64::MAX))
}

fn find(netlink: &mut Netlink, name: &str) -> Result<Interface, Error> {
    choose(&netlink.interfaces()?, name).cloned()
}

/// The interface of this name.
fn choose<'a>(all: &'a [Interface], name: &str) -> Result<&'a Interface, Error> {
    all.iter().find(|interface| interface.name == name).ok_or_else(|| Error::NoSuchDevice {
        name: name.to_owned(),
        others: all.iter().map(|interface| interface.name.clone()).collect(),
    })
}

/// The segment of this name; all who ask in this process get the same one.
fn segment_named(name: &str) -> memory::Segment {
    static SEGMENTS: Mutex<BTreeMap<String, memory::Segment>> = Mutex::new(BTreeMap::new());
    let mut segments = SEGMENTS.lock().unwrap_or_else(PoisonError::into_inner);
    let new = || memory::Segment::new(Mtu::B4096);
    segments.entry(name.to_owned()).or_insert_with(new).clone()
}
