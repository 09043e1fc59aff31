//! Who has which port of the RDMA CM, on one adapter.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};

use roxe_cm::PortSpace;

/// The ports that are bound, each with the addresses for which it is.
pub(super) struct Ports {
    bound: HashMap<(PortSpace, u16), Vec<IpAddr>>,
    /// The next to be tried for whoever does not care.
    next: u16,
}

impl Ports {
    #[expect(clippy::cast_possible_truncation, reason = "the remainder of a number of 16 bits")]
    pub(super) fn new(seed: u64) -> Self {
        let next = (seed % u64::from(EPHEMERAL.1 - EPHEMERAL.0)) as u16;
        Self { bound: HashMap::new(), next }
    }

    /// Binds `address`; port 0 is any that is free. `None` when somebody has it, or all.
    pub(super) fn bind(&mut self, space: PortSpace, address: SocketAddr) -> Option<SocketAddr> {
        let port = match address.port() {
            0 => self.any(space, address.ip())?,
            port if self.is_taken(space, port, address.ip()) => return None,
            port => port,
        };
        self.bound.entry((space, port)).or_default().push(address.ip());
        Some(SocketAddr::new(address.ip(), port))
    }

    /// Gives it back.
    pub(super) fn release(&mut self, space: PortSpace, address: SocketAddr) {
        let key = (space, address.port());
        let Some(owners) = self.bound.get_mut(&key) else { return };
        owners.retain(|owner| *owner != address.ip());
        if owners.is_empty() {
            self.bound.remove(&key);
        }
    }

    fn any(&mut self, space: PortSpace, ip: IpAddr) -> Option<u16> {
        let count = EPHEMERAL.1 - EPHEMERAL.0;
        (0..count).find_map(|_| {
            self.next = (self.next + 1) % count;
            let port = EPHEMERAL.0 + self.next;
            (!self.is_taken(space, port, ip)).then_some(port)
        })
    }

    fn is_taken(&self, space: PortSpace, port: u16, ip: IpAddr) -> bool {
        let owners = self.bound.get(&(space, port)).into_iter().flatten();
        owners
            .into_iter()
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
        let mut ports = Ports::new(1);
        let mut bind = |space, text| ports.bind(space, address(text)).is_some();
        assert!(bind(PortSpace::Tcp, "10.0.0.1:7174"));
        assert!(!bind(PortSpace::Tcp, "10.0.0.1:7174"));
        assert!(!bind(PortSpace::Tcp, "0.0.0.0:7174"));
        assert!(bind(PortSpace::Tcp, "10.0.0.2:7174"));
        assert!(bind(PortSpace::Udp, "0.0.0.0:7174"));
        assert!(bind(PortSpace::Udp, "[::]:7174"));
        assert!(!bind(PortSpace::Udp, "[fe80::1]:7174"));
        ports.release(PortSpace::Tcp, address("10.0.0.1:7174"));
        assert!(ports.bind(PortSpace::Tcp, address("10.0.0.1:7174")).is_some());
    }

    #[test]
    fn who_does_not_care_gets_every_port_once() {
        let mut ports = Ports::new(u64::MAX);
        let any = address("10.0.0.1:0");
        let mut given = std::collections::BTreeSet::new();
        for _ in EPHEMERAL.0..EPHEMERAL.1 {
            given.insert(ports.bind(PortSpace::Tcp, any).unwrap().port());
        }
        assert_eq!(given.len(), usize::from(EPHEMERAL.1 - EPHEMERAL.0));
        assert_eq!(ports.bind(PortSpace::Tcp, any), None);
        assert!(ports.bind(PortSpace::Udp, any).is_some());
    }
}
