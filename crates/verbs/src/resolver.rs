//! Which link addresses packets of a path have.

use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};
#[cfg(feature = "af_xdp")]
use std::thread;
use std::time::Duration;

use roxe_net::neighbor::{Netlink, ResolveError, multicast_mac};
use roxe_wire::{Addressing, Gid, MacAddress};

use crate::error::Error;

/// How the link addresses of a path are found.
pub(crate) enum Resolver {
    /// Every frame reaches every port: an address is enough, made from the one above it.
    Segment,
    /// The same on a network that brings back what is sent to an address of one's own.
    Host,
    /// The kernel writes them. It can be asked for neighbours on these interfaces, by index: others
    /// need none.
    Socket(Mutex<Netlink>, Vec<u32>),
    /// The kernel knows them.
    #[cfg(feature = "af_xdp")]
    Kernel(kernel::Kernel),
    /// The adapter has addresses of its own, and asks for neighbours itself.
    #[cfg(feature = "af_xdp")]
    Own(own::Host),
}

/// How packets of a path leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Link {
    /// In frames with this destination and source.
    Ethernet(MacAddress, MacAddress),
    /// Not at all: the adapter's own address is the destination.
    Loopback,
}

impl Resolver {
    /// The same without waiting: `None` while a neighbour is asked where it is. To be called again
    /// then, some milliseconds later; somebody has to drive the port meanwhile.
    pub(crate) fn link_now(&self, to: &Addressing, is_own: bool) -> Result<Option<Link>, Error> {
        match self {
            #[cfg(feature = "af_xdp")]
            Self::Kernel(kernel) if !is_own => {
                let found = kernel.ethernet_now(to)?;
                Ok(found.map(|(destination, source)| Link::Ethernet(destination, source)))
            }
            #[cfg(feature = "af_xdp")]
            Self::Own(host) if !is_own => {
                let found = host.ethernet_now(to)?;
                Ok(found.map(|(destination, source)| Link::Ethernet(destination, source)))
            }
            _ => self.link(to, is_own, || ()).map(Some),
        }
    }

    /// Whether there is a way to the peer, as far as that can be known without a packet to it.
    /// `None` while a neighbour is asked where it is; to be called again then, as
    /// [`link_now`](Self::link_now).
    pub(crate) fn reaches_now(&self, to: &Addressing, is_own: bool) -> Result<Option<()>, Error> {
        let Self::Socket(netlink, with_neighbors) = self else {
            return Ok(self.link_now(to, is_own)?.map(|_| ()));
        };
        let mut netlink = netlink.lock().unwrap_or_else(PoisonError::into_inner);
        let route = netlink.route(to.destination, Some(to.source), None)?;
        let route = route.ok_or(Error::NoRoute(to.destination))?;
        if !with_neighbors.contains(&route.interface) {
            return Ok(Some(()));
        }
        match netlink.resolve(&route, Duration::ZERO) {
            Ok(_) | Err(ResolveError::Local(_)) => Ok(Some(())),
            Err(ResolveError::NoAnswer { .. }) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Which of our addresses packets to `destination` come from, if something is known that
    /// chooses.
    #[cfg_attr(
        not(feature = "af_xdp"),
        expect(unused_variables, reason = "a socket leaves it to the kernel")
    )]
    pub(crate) fn source_for(&self, destination: IpAddr) -> Option<IpAddr> {
        match self {
            #[cfg(feature = "af_xdp")]
            Self::Kernel(kernel) => kernel.source_for(destination),
            #[cfg(feature = "af_xdp")]
            Self::Own(host) => host.source_for(destination),
            _ => None,
        }
    }

    /// Whether the kernel's routes lead to its peers.
    pub(crate) const fn is_routed(&self) -> bool {
        match self {
            #[cfg(feature = "af_xdp")]
            Self::Own(_) => false,
            _ => true,
        }
    }

    /// How packets leave. May take seconds, in which `drive` is called to move the port.
    pub(crate) fn link(
        &self,
        to: &Addressing,
        is_own: bool,
        drive: impl FnMut(),
    ) -> Result<Link, Error> {
        let (destination, source) = match self {
            // The kernel sends them back itself.
            Self::Socket(..) => Default::default(),
            // Who else has the address, is not known here.
            Self::Host => (segment_mac(to.destination), segment_mac(to.source)),
            _ if is_own => return Ok(Link::Loopback),
            Self::Segment => (segment_mac(to.destination), segment_mac(to.source)),
            #[cfg(feature = "af_xdp")]
            Self::Kernel(kernel) => kernel.ethernet(to)?,
            #[cfg(feature = "af_xdp")]
            Self::Own(host) => host.ethernet(to, drive)?,
        };
        #[cfg(not(feature = "af_xdp"))]
        let _ = drive;
        Ok(Link::Ethernet(destination, source))
    }
}

/// A MAC made from an IP address.
fn segment_mac(address: IpAddr) -> MacAddress {
    let gid = Gid::from_ip(address);
    if gid.is_multicast() {
        return multicast_mac(address);
    }
    let [.., a, b, c, d] = gid.0;
    MacAddress([2, 0, a, b, c, d])
}

#[cfg(feature = "af_xdp")]
pub(crate) mod kernel {
    use std::collections::BTreeMap;
    use std::io;
    use std::net::IpAddr;
    use std::sync::{Arc, Mutex, PoisonError};
    use std::time::Duration;

    use roxe_net::neighbor::{Interface, Netlink, ResolveError, Vlan, Watch};
    use roxe_wire::{Addressing, MacAddress, VlanTag};

    use super::patiently;
    use crate::changes::{Notice, Place};
    use crate::error::Error;

    /// The kernel, about one interface.
    pub(crate) struct Kernel {
        netlink: Mutex<Netlink>,
        interface: u32,
        mac: MacAddress,
        known: Known,
    }

    /// The destinations asked for: from which source, by which interface, and where they are.
    type Known = Arc<Mutex<BTreeMap<Place, (IpAddr, u32, MacAddress)>>>;

    impl Kernel {
        pub(crate) fn new(netlink: Netlink, interface: &Interface) -> Self {
            let mac = interface.mac.unwrap_or_default();
            let (netlink, known) = (Mutex::new(netlink), Known::default());
            Self { netlink, interface: interface.index, mac, known }
        }

        pub(crate) fn ethernet(&self, to: &Addressing) -> Result<(MacAddress, MacAddress), Error> {
            let mut silent = None;
            let found = patiently(|| match self.look_up(to) {
                Err(Error::Resolve(why @ ResolveError::NoAnswer { .. })) => {
                    silent = Some(why);
                    Ok(None)
                }
                found => found.map(Some),
            })?;
            found.ok_or_else(|| silent.map_or(Error::NoRoute(to.destination), Error::from))
        }

        /// The same without waiting: `None` while the neighbour is asked.
        pub(crate) fn ethernet_now(
            &self,
            to: &Addressing,
        ) -> Result<Option<(MacAddress, MacAddress)>, Error> {
            match self.look_up(to) {
                Err(Error::Resolve(ResolveError::NoAnswer { .. })) => Ok(None),
                found => found.map(Some),
            }
        }

        /// The address that the kernel would take.
        #[cfg_attr(not(feature = "af_xdp"), expect(unused_variables, reason = "nothing chooses"))]
        pub(crate) fn source_for(&self, destination: IpAddr) -> Option<IpAddr> {
            let mut netlink = self.netlink.lock().unwrap_or_else(PoisonError::into_inner);
            netlink.route(destination, None, Some(self.interface)).ok()??.source
        }

        /// The interface by which frames with such a tag leave.
        fn interface_on(&self, place: Place) -> Result<u32, Error> {
            let Some(id) = place.vlan else { return Ok(self.interface) };
            let vlan = Some(Vlan { id, on: self.interface });
            let mut netlink = self.netlink.lock().unwrap_or_else(PoisonError::into_inner);
            let mut all = netlink.interfaces()?.into_iter();
            Ok(all.find(|it| it.vlan == vlan).ok_or(Error::NoRoute(place.address))?.index)
        }

        /// What the kernel knows now. Where it knows nothing it asks the neighbour: others may ask
        /// it meanwhile. What is found is followed.
        fn look_up(&self, to: &Addressing) -> Result<(MacAddress, MacAddress), Error> {
            let place = Place { address: to.destination, vlan: to.vlan.map(VlanTag::id) };
            let interface = self.interface_on(place)?;
            let mut netlink = self.netlink.lock().unwrap_or_else(PoisonError::into_inner);
            let route = netlink.route(to.destination, Some(to.source), Some(interface))?;
            let route = route.ok_or(Error::NoRoute(to.destination))?;
            let mac = match netlink.resolve(&route, Duration::ZERO) {
                Err(ResolveError::NoAnswer { .. })
                    if !netlink.is_routed(&route, Some(to.source))? =>
                {
                    return Err(Error::NoRoute(to.destination));
                }
                found => found?,
            };
            drop(netlink);
            let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
            if known.len() >= MOST {
                known.pop_first();
            }
            known.insert(place, (to.source, interface, mac));
            Ok((mac, self.mac))
        }

        /// What follows the destinations.
        pub(crate) fn follow(&self) -> io::Result<Follower> {
            Ok(Follower {
                watch: Watch::neighbors()?,
                notice: Notice::default(),
                netlink: Netlink::open()?,
                mac: self.mac,
                known: Arc::clone(&self.known),
            })
        }
    }

    /// Follows the destinations that were asked for.
    pub(crate) struct Follower {
        watch: Watch,
        notice: Notice,
        netlink: Netlink,
        mac: MacAddress,
        known: Known,
    }

    impl Follower {
        /// Those that have moved, and the link addresses of their frames, destination and source.
        /// One that the kernel has lost is where it was. Waits for nobody.
        pub(crate) fn moved(&mut self) -> Vec<(Place, (MacAddress, MacAddress))> {
            let Self { watch, notice, netlink, mac, known } = self;
            let changed = watch.has_changed();
            let mut moved = Vec::new();
            // Those that moved are known, however the look ends.
            let _ = notice.look(changed, || look(netlink, known, &mut moved));
            moved.into_iter().map(|(place, to)| (place, (to, *mac))).collect()
        }
    }

    /// Tells the destinations that have moved, and remembers where they are.
    fn look(
        netlink: &mut Netlink,
        known: &Known,
        moved: &mut Vec<(Place, MacAddress)>,
    ) -> io::Result<()> {
        let lock = || known.lock().unwrap_or_else(PoisonError::into_inner);
        let all = lock().clone();
        let mut outcome = Ok(());
        for (place, (source, interface, before)) in all {
            let resolved = match netlink.route(place.address, Some(source), Some(interface)) {
                Ok(Some(route)) => netlink.resolve(&route, Duration::ZERO),
                Ok(None) => continue,
                Err(error) => Err(error.into()),
            };
            match resolved {
                Ok(mac) if mac != before => {
                    moved.push((place, mac));
                    lock().insert(place, (source, interface, mac));
                }
                Err(ResolveError::System(error)) => outcome = Err(error),
                // If it has to be asked for, the answer is a change that is heard of.
                Ok(_) | Err(_) => {}
            }
        }
        outcome
    }

    /// Destinations that are followed, at most.
    const MOST: usize = 4096;
}

#[cfg(feature = "af_xdp")]
pub(crate) mod own {
    use std::net::IpAddr;

    use roxe_net::neighbor::{ResolveError, multicast_mac};
    use roxe_net::owned::Neighbors;
    use roxe_wire::{Addressing, MacAddress};

    use super::patiently;
    use crate::error::Error;

    /// What an adapter with addresses of its own knows.
    pub(crate) struct Host {
        pub(crate) neighbors: Neighbors,
        pub(crate) mac: MacAddress,
    }

    impl Host {
        pub(crate) fn ethernet(
            &self,
            to: &Addressing,
            mut drive: impl FnMut(),
        ) -> Result<(MacAddress, MacAddress), Error> {
            let found = patiently(|| {
                let found = self.ethernet_now(to)?;
                if found.is_none() {
                    drive();
                }
                Ok(found)
            })?;
            found.ok_or_else(|| {
                self.neighbors.forget(to.destination);
                ResolveError::Silent(to.destination).into()
            })
        }

        /// The same without waiting: `None` while the neighbour is asked, by whoever drives the
        /// port.
        pub(crate) fn ethernet_now(
            &self,
            to: &Addressing,
        ) -> Result<Option<(MacAddress, MacAddress)>, Error> {
            let destination = to.destination;
            if destination.is_multicast() {
                return Ok(Some((multicast_mac(destination), self.mac)));
            }
            let own = self.neighbors.own();
            if destination.is_unspecified() || !own.reaches(destination) {
                return Err(Error::NoRoute(destination));
            }
            Ok(self.neighbors.ask(destination).map(|mac| (mac, self.mac)))
        }

        /// The first whose network it is in.
        #[cfg_attr(not(feature = "af_xdp"), expect(unused_variables, reason = "nothing chooses"))]
        pub(crate) fn source_for(&self, destination: IpAddr) -> Option<IpAddr> {
            let mut own = self.neighbors.own().addresses.iter();
            own.find(|own| own.has_in_network(destination)).map(|own| own.address)
        }
    }
}

/// Asks where a neighbour is until it is known, or for as long as it may take to say so.
#[cfg(feature = "af_xdp")]
fn patiently<T>(mut ask: impl FnMut() -> Result<Option<T>, Error>) -> Result<Option<T>, Error> {
    let mut waited = Duration::ZERO;
    let mut pause = Duration::from_millis(1);
    loop {
        let found = ask()?;
        if found.is_some() || waited >= PATIENCE {
            return Ok(found);
        }
        thread::sleep(pause);
        waited += pause;
        pause = LONGEST_PAUSE.min(pause * 2);
    }
}

/// How long a neighbour may take to say where it is.
#[cfg(feature = "af_xdp")]
const PATIENCE: Duration = Duration::from_secs(3);

/// Between two looks whether it has.
#[cfg(feature = "af_xdp")]
const LONGEST_PAUSE: Duration = Duration::from_millis(20);
