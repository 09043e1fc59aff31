//! What becomes of the interface under an adapter, and of its neighbours.

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

/// An interface that is looked at when something has changed.
pub(crate) struct Watched {
    watch: Watch,
    netlink: Netlink,
    index: u32,
}

impl Watched {
    pub(crate) fn new(watch: Watch, interface: &Interface) -> std::io::Result<Self> {
        Ok(Self { watch, netlink: Netlink::open()?, index: interface.index })
    }

    /// The interface when it may have changed, or nothing where it is gone.
    fn look(&mut self) -> Option<Option<Interface>> {
        let interfaces = self.look_at_all()?;
        Some(interfaces.into_iter().find(|interface| interface.index == self.index))
    }

    /// All interfaces when any may have changed.
    fn look_at_all(&mut self) -> Option<Vec<Interface>> {
        self.watch.has_changed().then(|| self.netlink.interfaces().ok())?
    }

    /// Whether the kernel takes an address that no interface has for this host's, by the interface.
    fn routes(&mut self, address: IpAddr) -> bool {
        let route = self.netlink.route(address, None, None).ok().flatten();
        route.is_some_and(|it| it.reach == Reach::Local && it.interface == self.index)
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
        Box::new(move || match self.look() {
            None => Change::default(),
            Some(None) => Change { gone: true, ..Change::default() },
            Some(Some(interface)) => {
                let has_it = has(&interface, address) || self.routes(address);
                Change {
                    active: Some(has_it && is_active(&interface)),
                    addresses: Some(
                        has_it.then_some(Place::untagged(address)).into_iter().collect(),
                    ),
                    ..Change::default()
                }
            }
        })
    }
}

/// Whether packets can come and go.
pub(crate) fn is_active(interface: &Interface) -> bool {
    interface.is_up && interface.has_carrier
}

/// Whether a socket can have this address by the interface: all of loopback's network are its.
pub(crate) fn has(interface: &Interface, address: IpAddr) -> bool {
    interface.addresses.iter().any(|assigned| {
        assigned.address == address || interface.is_loopback() && assigned.has_in_network(address)
    })
}

#[cfg(feature = "af_xdp")]
/// The addresses of an interface, then those of its VLANs that are switched on.
pub(crate) fn addresses(interface: &Interface, all: &[Interface]) -> Vec<Place> {
    let vlan_of = |it: &Interface| it.vlan.filter(|vlan| vlan.on == interface.index && it.is_up);
    let vlans = all.iter().filter_map(|it| Some((it, Some(vlan_of(it)?.id))));
    let places = |(it, vlan): (&Interface, Option<u16>)| -> Vec<Place> {
        it.addresses.iter().map(|assigned| Place { address: assigned.address, vlan }).collect()
    };
    [(interface, None)].into_iter().chain(vlans).flat_map(places).collect()
}

#[cfg(all(test, feature = "af_xdp"))]
mod tests {
    use roxe_net::neighbor::{Assigned, Vlan};

    use super::*;

    #[test]
    fn addresses_of_vlans_are_the_interfaces_too() {
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
