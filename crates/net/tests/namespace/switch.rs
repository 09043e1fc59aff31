//! Hosts around a switch: a namespace with a Linux bridge, and one for each host.

use super::Namespace;

/// A bridge and its hosts. Host `n`, from 0, has interface `hn`, with 192.0.2.`n+1` and
/// fd00::`n+1`; the bridge's port to it is `pn`.
pub(crate) struct Switch {
    pub(crate) bridge: Namespace,
    pub(crate) hosts: Vec<Namespace>,
}

impl Switch {
    /// A switch with so many hosts, whose interfaces have this MTU.
    pub(crate) fn new(hosts: usize, mtu: u32) -> Self {
        let bridge = Namespace::new();
        bridge.ip(&format!("link add br0 mtu {mtu} type bridge mcast_snooping 0"));
        bridge.ip("link set br0 up");
        let host = |number| {
            let host = Namespace::new();
            host.ip(&format!(
                "link add h{number} mtu {mtu} address 02:00:00:00:01:{number:02x} type veth \
                 peer name p{number} mtu {mtu} netns {}",
                bridge.path()
            ));
            host.ip(&format!("address add 192.0.2.{}/24 dev h{number}", number + 1));
            host.ip(&format!("address add fd00::{:x}/64 dev h{number} nodad", number + 1));
            host.ip(&format!("link set h{number} up"));
            bridge.ip(&format!("link set p{number} master br0 up"));
            host
        };
        let hosts = (0..hosts).map(host).collect();
        Self { bridge, hosts }
    }

    /// From now on the port to this host sends so many bits a second, from a queue of so many
    /// bytes; what finds it full is lost.
    pub(crate) fn limit(&self, host: usize, rate: u64, bytes: u32) {
        let tbf = format!("tbf rate {rate}bit burst 16384 limit {bytes}");
        self.bridge.command("tc", &format!("qdisc add dev p{host} root {tbf}"));
    }

    /// How many frames to this host have found that queue full.
    pub(crate) fn dropped(&self, host: usize) -> u64 {
        let shown = self.bridge.command("tc", &format!("-s qdisc show dev p{host} root"));
        let count = shown.split("dropped ").nth(1).and_then(|rest| rest.split(',').next());
        count.and_then(|count| count.parse().ok()).unwrap_or_else(|| panic!("{shown}"))
    }
}
