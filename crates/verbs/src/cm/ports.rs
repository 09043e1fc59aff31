//! Who has which port of the RDMA CM, on one adapter.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr};

use roxe_cm::PortSpace;
use roxe_wire::mad::cm::ServiceId;

use crate::cm::host_ports::HostPorts;

/// The ports that are bound, each with the addresses for which it is.
pub(super) struct Ports {
    bound: HashMap<(PortSpace, u16), Vec<IpAddr>>,
    /// The next to be tried for whoever does not care.
    next: u16,
    /// What other adapters of the host see of them, where those may have the same addresses.
    host: Option<HostPorts>,
}

impl Ports {
    #[expect(clippy::cast_possible_truncation, reason = "the remainder of a number of 16 bits")]
    pub(super) fn new(seed: u64, host: Option<HostPorts>) -> Self {
        let next = (seed % u64::from(EPHEMERAL.1 - EPHEMERAL.0)) as u16;
        Self { bound: HashMap::new(), next, host }
    }

    /// Binds `address`; port 0 is any that is free. `None` when somebody has it, or all.
    ///
    /// # Errors
    /// It cannot be reserved on the host: no file descriptor is left.
    pub(super) fn bind(
        &mut self,
        space: PortSpace,
        address: SocketAddr,
    ) -> io::Result<Option<SocketAddr>> {
        let ip = address.ip();
        let port = match address.port() {
            0 => self.any(space, ip)?,
            port => self.take(space, port, ip)?.then_some(port),
        };
        let Some(port) = port else { return Ok(None) };
        self.bound.entry((space, port)).or_default().push(ip);
        Ok(Some(SocketAddr::new(ip, port)))
    }

    /// Gives it back.
    pub(super) fn release(&mut self, space: PortSpace, address: SocketAddr) {
        let key = (space, address.port());
        let Some(owners) = self.bound.get_mut(&key) else { return };
        owners.retain(|owner| *owner != address.ip());
        if owners.is_empty() {
            self.bound.remove(&key);
        }
        if let Some(host) = &self.host {
            host.release(space, address);
        }
    }

    /// Whether other adapters of the host may have the same addresses.
    pub(super) const fn are_shared(&self) -> bool {
        self.host.is_some()
    }

    /// Whether a service that nobody listens at here may be that of another adapter.
    pub(super) fn is_anothers(&self, service: ServiceId, called: IpAddr) -> bool {
        let (Some(host), Some((space, port))) = (&self.host, service.port()) else { return false };
        !self.is_taken(space, port, called) && host.is_taken(space, SocketAddr::new(called, port))
    }

    fn any(&mut self, space: PortSpace, ip: IpAddr) -> io::Result<Option<u16>> {
        let count = EPHEMERAL.1 - EPHEMERAL.0;
        for _ in 0..count {
            self.next = (self.next + 1) % count;
            let port = EPHEMERAL.0 + self.next;
            if self.take(space, port, ip)? {
                return Ok(Some(port));
            }
        }
        Ok(None)
    }

    /// Whether a port was free, here and on the host, where it is no more then.
    fn take(&self, space: PortSpace, port: u16, ip: IpAddr) -> io::Result<bool> {
        if self.is_taken(space, port, ip) {
            return Ok(false);
        }
        let host = self.host.as_ref();
        host.map_or(Ok(true), |host| host.take(space, SocketAddr::new(ip, port)))
    }

    fn is_taken(&self, space: PortSpace, port: u16, ip: IpAddr) -> bool {
        let owners = self.bound.get(&(space, port)).into_iter().flatten();
        owners
            .filter(|own| own.is_ipv4() == ip.is_ipv4())
            .any(|own| *own == ip || own.is_unspecified() || ip.is_unspecified())
    }
}

/// What Linux gives to those that do not care: from, and up to without it.
const EPHEMERAL: (u16, u16) = (32_768, 61_000);

/// Binds several ends at one port, as `bind` does, which says the port that it was. Where any will
/// do, one that is free on the first adapter may be taken on another: then it is asked again. The
/// ends of those that were in vain stay bound until one is found, so that none is tried twice.
///
/// # Errors
/// The first of `bind` that is not `is_taken` at `port` 0, or the last.
pub fn at_one_port<T, E>(
    port: u16,
    is_taken: impl Fn(&E) -> bool,
    mut bind: impl FnMut(&mut Vec<T>) -> Result<u16, E>,
) -> Result<(u16, Vec<T>), E> {
    let mut in_vain = Vec::new();
    loop {
        let mut ends = Vec::new();
        match bind(&mut ends) {
            Ok(port) => return Ok((port, ends)),
            Err(error) if port == 0 && is_taken(&error) && in_vain.len() < TRIES => {
                in_vain.push(ends);
            }
            Err(error) => return Err(error),
        }
    }
}

/// Ports that are tried for whoever does not care.
const TRIES: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> SocketAddr {
        text.parse().unwrap()
    }

    #[test]
    fn a_port_has_one_owner_in_each_space() {
        let mut ports = Ports::new(1, None);
        let mut bind = |space, text| ports.bind(space, address(text)).unwrap().is_some();
        assert!(bind(PortSpace::Tcp, "10.0.0.1:7174"));
        assert!(!bind(PortSpace::Tcp, "10.0.0.1:7174"));
        assert!(!bind(PortSpace::Tcp, "0.0.0.0:7174"));
        assert!(bind(PortSpace::Tcp, "10.0.0.2:7174"));
        assert!(bind(PortSpace::Udp, "0.0.0.0:7174"));
        assert!(bind(PortSpace::Udp, "[::]:7174"));
        assert!(!bind(PortSpace::Udp, "[fe80::1]:7174"));
        ports.release(PortSpace::Tcp, address("10.0.0.1:7174"));
        assert!(ports.bind(PortSpace::Tcp, address("10.0.0.1:7174")).unwrap().is_some());
    }

    #[test]
    fn who_does_not_care_gets_every_port_once() {
        let mut ports = Ports::new(u64::MAX, None);
        let any = address("10.0.0.1:0");
        let mut given = std::collections::BTreeSet::new();
        for _ in EPHEMERAL.0..EPHEMERAL.1 {
            given.insert(ports.bind(PortSpace::Tcp, any).unwrap().unwrap().port());
        }
        assert_eq!(given.len(), usize::from(EPHEMERAL.1 - EPHEMERAL.0));
        assert_eq!(ports.bind(PortSpace::Tcp, any).unwrap(), None);
        assert!(ports.bind(PortSpace::Udp, any).unwrap().is_some());
    }

    /// Two adapters with the same addresses, and one with others.
    #[test]
    fn a_port_has_one_owner_on_the_host() {
        let [a, b] = [0x0001, 0x0002].map(|which| {
            let [_, _, c, d] = std::process::id().to_be_bytes();
            let v6 = [0xfd00, 0x726f, 0, 0, 0, 0, u16::from_be_bytes([c, d]), which];
            [IpAddr::from([127, which as u8 + 77, c, d]), IpAddr::from(v6)]
        });
        let open = |own: [IpAddr; 2]| HostPorts::open(own.to_vec()).unwrap();
        let [mut one, mut beside] = [7, 7].map(|seed| Ports::new(seed, Some(open(a))));
        let mut apart = Ports::new(7, Some(open(b)));
        let [any, any6] = ["0.0.0.0:7174", "[::]:7174"].map(address);
        let binds = |ports: &mut Ports, space, to| ports.bind(space, to).unwrap().is_some();
        for (own, any) in a.into_iter().zip([any, any6]) {
            let to = SocketAddr::new(own, 7174);
            let service = ServiceId::from_port(PortSpace::Tcp, 7174);
            assert!(!beside.is_anothers(service, own));
            assert!(binds(&mut one, PortSpace::Tcp, to));
            assert!(!binds(&mut beside, PortSpace::Tcp, to));
            assert!(!binds(&mut beside, PortSpace::Tcp, any));
            assert!(beside.is_anothers(service, own) && !one.is_anothers(service, own));
            let of_datagrams = ServiceId::from_port(PortSpace::Udp, 7174);
            assert!(!beside.is_anothers(of_datagrams, own));
            assert!(binds(&mut beside, PortSpace::Udp, to));
            one.release(PortSpace::Tcp, to);
            assert!(!beside.is_anothers(service, own));
            assert!(binds(&mut beside, PortSpace::Tcp, any));
            assert!(!binds(&mut one, PortSpace::Tcp, to));
            assert!(binds(&mut apart, PortSpace::Tcp, any));
        }
        // Who does not care gets none that another has.
        let unset = SocketAddr::new(a[0], 0);
        let given = [&mut one, &mut beside].map(|it| it.bind(PortSpace::Tcp, unset).unwrap());
        assert_eq!(given.map(|it| it.is_some()), [true, true]);
        assert_ne!(given[0], given[1]);
        drop(beside);
        assert!(binds(&mut one, PortSpace::Tcp, any));
    }
}
