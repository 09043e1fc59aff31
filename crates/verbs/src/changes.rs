//! What becomes of the interface under an adapter, and of its neighbours.

use std::io;
use std::net::IpAddr;

use roxe_net::neighbor::{Interface, Netlink, Reach, Watch};
#[cfg(feature = "af_xdp")]
use roxe_net::owned::{Neighbors, News};
use roxe_wire::MacAddress;

#[cfg(feature = "af_xdp")]
use crate::resolver::kernel::Follower;

/// Says what has changed since the last call. Never waits long.
pub(crate) type Changes = Box<dyn FnMut() -> Change + Send>;

/// What has changed.
#[derive(Debug, Default)]
pub(crate) struct Change {
    /// The adapter's addresses, where they may be others than before.
    pub(crate) addresses: Option<Vec<Place>>,
    /// Whether packets can come and go, where that may be different.
    pub(crate) active: Option<bool>,
    /// The interface is gone for ever.
    pub(crate) gone: bool,
    /// Destinations whose frames have other link addresses now, destination and source.
    pub(crate) moved: Vec<(Place, (MacAddress, MacAddress))>,
    /// Addresses of the adapter that somebody else says are his.
    pub(crate) conflicts: Vec<IpAddr>,
}

/// An address, and the VLAN that it is on, 1 ..= 4094; `None` for frames without a tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Place {
    pub(crate) address: IpAddr,
    pub(crate) vlan: Option<u16>,
}

impl Place {
    pub(crate) const fn untagged(address: IpAddr) -> Self {
        Self { address, vlan: None }
    }
}

/// That something has changed, until it has been looked at: a look may fail.
#[derive(Debug, Default)]
pub(crate) struct Notice {
    stale: bool,
}

impl Notice {
    /// Looks, if something has changed since a look that worked.
    pub(crate) fn look<T>(
        &mut self,
        changed: bool,
        look: impl FnOnce() -> io::Result<T>,
    ) -> Option<T> {
        self.stale |= changed;
        let seen = if self.stale { look().ok() } else { None };
        self.stale &= seen.is_none();
        seen
    }
}

/// An interface that is looked at when something has changed.
pub(crate) struct Watched {
    watch: Watch,
    notice: Notice,
    netlink: Netlink,
    index: u32,
}

impl Watched {
    pub(crate) fn new(watch: Watch, interface: &Interface) -> io::Result<Self> {
        let (notice, netlink) = (Notice::default(), Netlink::open()?);
        Ok(Self { watch, notice, netlink, index: interface.index })
    }

    /// The interface when it may have changed, or nothing where it is gone.
    #[cfg(feature = "af_xdp")]
    fn look(&mut self) -> Option<Option<Interface>> {
        let Self { watch, notice, netlink, index } = self;
        notice.look(watch.has_changed(), || find(netlink, *index))
    }

    /// All interfaces when any may have changed.
    #[cfg(feature = "af_xdp")]
    fn look_at_all(&mut self) -> Option<Vec<Interface>> {
        let Self { watch, notice, netlink, .. } = self;
        notice.look(watch.has_changed(), || netlink.interfaces())
    }

    /// The interface when it may have changed, and whether a socket can have this address by it.
    fn look_for(&mut self, address: IpAddr) -> Option<Option<(Interface, bool)>> {
        let Self { watch, notice, netlink, index } = self;
        notice.look(watch.has_changed(), || {
            let Some(interface) = find(netlink, *index)? else { return Ok(None) };
            let has_it = interface.addresses.iter().any(|it| it.address == address)
                || routes(netlink, address, *index)?;
            Ok(Some((interface, has_it)))
        })
    }

    /// An adapter that has the interface's addresses. That it is gone the port says.
    #[cfg(feature = "af_xdp")]
    pub(crate) fn with_its_addresses(mut self, mut follower: Follower) -> Changes {
        Box::new(move || {
            let all = self.look_at_all().unwrap_or_default();
            let interface = all.iter().find(|interface| interface.index == self.index);
            Change {
                active: interface.map(is_active),
                addresses: interface.map(|it| addresses(it, &all)),
                moved: follower.moved(),
                ..Change::default()
            }
        })
    }

    /// An adapter that has addresses of its own on the interface.
    #[cfg(feature = "af_xdp")]
    pub(crate) fn with_own_addresses(mut self, neighbors: Neighbors, mac: MacAddress) -> Changes {
        Box::new(move || {
            let mut change = Change {
                active: self.look().flatten().as_ref().map(is_active),
                ..Change::default()
            };
            if change.active == Some(true) {
                // It may have been down, and others at the other end.
                neighbors.announce();
            }
            for news in neighbors.news() {
                match news {
                    News::Moved { destination, mac: to } => {
                        let vlan = neighbors.own().vlan;
                        change.moved.push((Place { address: destination, vlan }, (to, mac)));
                    }
                    News::Conflict { address, .. } => change.conflicts.push(address),
                    _ => {}
                }
            }
            change
        })
    }

    /// An adapter on one address of the interface. Without the address nothing comes and goes, but
    /// it may come back; an interface does not.
    pub(crate) fn with_address(mut self, address: IpAddr) -> Changes {
        Box::new(move || match self.look_for(address) {
            None => Change::default(),
            Some(None) => Change { gone: true, ..Change::default() },
            Some(Some((interface, has_it))) => Change {
                active: Some(has_it && is_active(&interface)),
                addresses: Some(has_it.then_some(Place::untagged(address)).into_iter().collect()),
                ..Change::default()
            },
        })
    }
}

/// The interface with this index, if it is not gone.
fn find(netlink: &mut Netlink, index: u32) -> io::Result<Option<Interface>> {
    Ok(netlink.interfaces()?.into_iter().find(|interface| interface.index == index))
}

/// Whether the kernel takes an address that no interface has for this host's, by this interface:
/// one of loopback's many, or of a network that is routed here as a whole.
fn routes(netlink: &mut Netlink, address: IpAddr, interface: u32) -> io::Result<bool> {
    let route = netlink.route(address, None, None)?;
    Ok(route.is_some_and(|it| it.reach == Reach::Local && it.interface == interface))
}

/// Whether packets can come and go.
pub(crate) fn is_active(interface: &Interface) -> bool {
    interface.is_up && interface.has_carrier
}

/// The addresses of an interface, then those of its VLANs that are switched on.
#[cfg(feature = "af_xdp")]
pub(crate) fn addresses(interface: &Interface, all: &[Interface]) -> Vec<Place> {
    let vlan_of = |it: &Interface| it.vlan.filter(|vlan| vlan.on == interface.index && it.is_up);
    let vlans = all.iter().filter_map(|it| Some((it, Some(vlan_of(it)?.id))));
    let places = |(it, vlan): (&Interface, Option<u16>)| -> Vec<Place> {
        it.addresses.iter().map(|assigned| Place { address: assigned.address, vlan }).collect()
    };
    [(interface, None)].into_iter().chain(vlans).flat_map(places).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_is_looked_at_until_a_look_works() {
        let mut notice = Notice::default();
        let works = || Ok("seen");
        let fails = || Err::<&str, _>(io::ErrorKind::OutOfMemory.into());
        assert_eq!(notice.look(false, works), None, "nothing has changed");
        assert_eq!(notice.look(true, fails), None);
        assert_eq!(notice.look(false, fails), None);
        assert_eq!(notice.look(false, works), Some("seen"));
        assert_eq!(notice.look(false, works), None, "it has been seen");
    }

    #[cfg(feature = "af_xdp")]
    #[test]
    fn addresses_of_vlans_are_the_interfaces_too() {
        use roxe_net::neighbor::{Assigned, Vlan};
        let interface = |index: u32, last: u8, vlan| Interface {
            index,
            name: format!("eth{index}"),
            link_type: 1,
            mac: None,
            mtu: 1500,
            is_up: index != 5,
            has_carrier: true,
            addresses: vec![Assigned { address: [10, 0, 0, last].into(), prefix_len: 24 }],
            vlan,
        };
        let all = [
            interface(2, 1, None),
            interface(3, 2, Some(Vlan { id: 10, on: 2 })),
            interface(4, 3, Some(Vlan { id: 10, on: 9 })),
            interface(5, 4, Some(Vlan { id: 11, on: 2 })),
            interface(6, 1, Some(Vlan { id: 12, on: 2 })),
        ];
        let place = |last: u8, vlan| Place { address: [10, 0, 0, last].into(), vlan };
        let expected = [place(1, None), place(2, Some(10)), place(1, Some(12))];
        assert_eq!(addresses(&all[0], &all), expected);
    }
}
