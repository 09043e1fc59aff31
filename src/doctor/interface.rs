//! What is about one interface.

use roxe_net::neighbor::Interface;
use roxe_verbs::Mtu;

use super::{Check, Level};
#[cfg(feature = "af_xdp")]
use crate::{adapters, outcome::counted};

/// There is none of this name.
pub(super) fn missing(all: &[Interface]) -> Check {
    let names: Vec<_> = all.iter().map(|interface| interface.name.as_str()).collect();
    Check::new(Level::Wrong, "interface", "there is no such interface in this namespace")
        .advise(format!("there are: {}", names.join(", ")))
}

/// All of an interface, one of these. `wanted` is the path MTU that somebody wants.
pub(super) fn checks(interface: &Interface, all: &[Interface], wanted: Option<Mtu>) -> Vec<Check> {
    let mut checks = vec![link(interface), addresses(interface), mtu(interface, wanted)];
    checks.extend(xdp(interface, all));
    checks.extend(neighbours(interface));
    checks
}

fn link(interface: &Interface) -> Check {
    let (what, name) = ("link", &interface.name);
    if !interface.is_up {
        return Check::new(Level::Wrong, what, "down").advise(format!("`ip link set {name} up`"));
    }
    if !interface.has_carrier {
        return Check::new(Level::Wrong, what, "up, but nothing is at the other end")
            .advise("plug the cable in, or set the other end of a veth pair up");
    }
    Check::right(what, "up, with carrier")
}

fn addresses(interface: &Interface) -> Check {
    let what = "addresses";
    let all: Vec<_> = interface.addresses.iter().map(|it| it.address).collect();
    if all.is_empty() {
        return Check::new(Level::Wrong, what, "none: an adapter has no GID")
            .advise(format!("`ip address add ADDRESS/LENGTH dev {}`", interface.name));
    }
    let is_local = |it: &std::net::IpAddr| match it {
        std::net::IpAddr::V4(address) => address.is_link_local(),
        std::net::IpAddr::V6(address) => address.is_unicast_link_local(),
    };
    let names: Vec<_> = all.iter().map(ToString::to_string).collect();
    if all.iter().all(is_local) {
        return Check::new(
            Level::Warning,
            what,
            format!("{}: of this link only", names.join(", ")),
        )
        .advise("hosts behind a router need another one");
    }
    Check::right(what, names.join(", "))
}

fn mtu(interface: &Interface, wanted: Option<Mtu>) -> Check {
    let (what, name) = ("MTU", &interface.name);
    let more = |mtu: Mtu| {
        format!(
            "path MTU {mtu} takes MTU {}: `ip link set {name} mtu {0}`, at both ends and all \
             switches between",
            mtu.bytes() + Mtu::HEADROOM
        )
    };
    let Some(fitting) = Mtu::fitting(interface.mtu) else {
        return Check::new(Level::Wrong, what, format!("{} is too small", interface.mtu))
            .advise(more(Mtu::B1024));
    };
    let found = format!("{}: path MTU {fitting}", interface.mtu);
    match wanted {
        Some(wanted) if fitting.bytes() < wanted.bytes() => {
            Check::new(Level::Wrong, what, format!("{found}, not {wanted}")).advise(more(wanted))
        }
        _ if fitting.bytes() < Mtu::B1024.bytes() => {
            Check::new(Level::Warning, what, format!("{found}, and slow")).advise(more(Mtu::B1024))
        }
        _ if fitting == Mtu::B4096 => Check::right(what, found),
        _ => Check::right(what, found).advise(more(Mtu::B4096)),
    }
}

#[cfg(feature = "af_xdp")]
fn xdp(interface: &Interface, all: &[Interface]) -> Vec<Check> {
    use roxe_net::af_xdp::{Support, support};
    let (what, name) = ("AF_XDP", &interface.name);
    if !interface.has_ethernet_header() {
        let found =
            format!("its frames have no Ethernet header (link type {})", interface.link_type);
        let advice = "take a tap device instead of a tun device, or a UDP socket: `udp:ADDRESS`";
        return vec![Check::new(Level::Warning, what, found).advise(advice)];
    }
    let Support {
        native,
        zero_copy,
        several_buffers,
        program,
        queues,
        large_receive,
        generic_receive,
        takes_vlan_tags,
    } = match support(interface) {
        Ok(support) => support,
        Err(error) => {
            let found = format!("the kernel does not say what the driver can do: {error}");
            return vec![Check::new(Level::Warning, what, found)];
        }
    };
    let lost = lost(name);
    let mut checks = Vec::new();
    let copying = if zero_copy { "zero-copy" } else { "copy mode" };
    checks.push(match native {
        Some(true) => Check::right(what, format!("native XDP, {copying}")),
        Some(false) => Check::new(Level::Warning, what, "generic XDP only: slower")
            .advise("a driver with native XDP, such as veth, virtio_net, mlx5, ice, i40e"),
        None => Check::new(Level::Warning, what, "generic XDP, as far as the kernel says: slower")
            .advise(
                "drivers without native XDP do not say, nor any before kernel 6.3: it is tried",
            ),
    });
    if let Some(program) = program {
        let check = |level, found| Check::new(level, "XDP program", found);
        checks.push(match adapters::holder(name) {
            Some(adapter) => check(Level::Warning, format!("of the open adapter {adapter}")).advise(
                "one process has an interface at a time: end that one before another opens it, or \
                 take a UDP socket: `udp:ADDRESS`",
            ),
            None => check(Level::Wrong, format!("program {program} is attached already")).advise(
                format!(
                    "end the process that has it; `ip link set {name} xdp off` removes one that \
                     was left behind"
                ),
            ),
        });
    }
    if native == Some(true) && !several_buffers && interface.mtu > LARGEST_LINEAR {
        let found = format!("MTU {}, and the driver has frames in one buffer", interface.mtu);
        let advice = format!("`ip link set {name} mtu {LARGEST_LINEAR}`, or `mode=generic`");
        checks.push(Check::new(Level::Warning, "buffers", found).advise(advice));
    }
    checks.push(match (queues, lost) {
        (_, 1..) => {
            let frames = counted(lost as usize, "frame");
            let found = format!("{queues}: {frames} of RoCEv2 on others went to the kernel");
            let advice = "an adapter that is open has fewer: leave `queues=` and `queue=` out, or \
                          `queues=auto`";
            Check::new(Level::Warning, "queues", found).advise(advice)
        }
        (MANY.., _) => {
            let found = format!("{queues}: an adapter has the first 64, others are the kernel's");
            Check::new(Level::Warning, "queues", found)
                .advise(format!("`ethtool -L {name} combined 64`"))
        }
        _ => Check::right("queues", queues.to_string()),
    });
    if large_receive {
        let advice = format!("`ethtool -K {name} lro off`");
        checks.push(Check::new(Level::Wrong, "LRO", "on: frames are joined").advise(advice));
    }
    if generic_receive && native != Some(true) {
        let found = "on, with generic XDP: joined frames are copied once more";
        let advice = format!("`ethtool -K {name} gro off`");
        checks.push(Check::new(Level::Warning, "GRO", found).advise(advice));
    }
    checks.extend(vlans(interface, all, takes_vlan_tags));
    checks
}

/// VLANs of the interface, whose addresses are an adapter's too.
#[cfg(feature = "af_xdp")]
fn vlans(interface: &Interface, all: &[Interface], takes_tags: bool) -> Option<Check> {
    let is_on = |it: &&Interface| it.vlan.is_some_and(|vlan| vlan.on == interface.index);
    let names: Vec<_> = all.iter().filter(is_on).map(|it| it.name.as_str()).collect();
    if names.is_empty() {
        return None;
    }
    let names = names.join(", ");
    if !takes_tags {
        return Some(Check::right("VLANs", names));
    }
    let found = format!("{names}, but the driver takes tags off: an adapter hears nothing of them");
    let advice = format!(
        "`ethtool -K {} rxvlan off`; of a veth, `txvlan off` at its other end",
        interface.name
    );
    Some(Check::new(Level::Warning, "VLANs", found).advise(advice))
}

/// Frames that adapters on an interface lost to the kernel, because they came by other queues.
#[cfg(feature = "af_xdp")]
fn lost(interface: &str) -> u64 {
    let mut lost = 0;
    for mut adapter in adapters::on(interface) {
        // One that closes just now has lost nothing that matters.
        let counters = adapter.ask(false).map(|now| now.counters).unwrap_or_default();
        let of_others = counters.iter().filter(|counter| counter.name == "xdp_no_socket");
        lost += of_others.map(|counter| counter.value).sum::<u64>();
    }
    lost
}

/// More queues than an adapter can have.
#[cfg(feature = "af_xdp")]
const MANY: u32 = 65;

/// The largest MTU whose frames XDP has in one page.
#[cfg(feature = "af_xdp")]
const LARGEST_LINEAR: u32 = 3498;

#[cfg(not(feature = "af_xdp"))]
fn xdp(_: &Interface, _: &[Interface]) -> Vec<Check> {
    vec![Check::new(Level::Warning, "AF_XDP", "this program was built without it").advise(
        "`cargo build --release -p roxe -p roxe-ibverbs` builds it with AF_XDP, and the \
                 library of `roxe run` (docs/library.md)",
    )]
}

/// Hosts that were asked for their MAC and did not answer.
fn neighbours(interface: &Interface) -> Option<Check> {
    let what = "neighbours";
    let table = match super::host::read("/proc/thread-self/net/arp") {
        Ok(table) => table,
        Err(why) => return Some(Check::unknown(what, why)),
    };
    let (silent, known) = neighbours_of(&table, &interface.name);
    if silent.is_empty() {
        return (known > 0).then(|| Check::right(what, format!("{known} known")));
    }
    let found = format!("{known} known; no answer from {}", silent.join(", "));
    let advice = "is the other host up, and in the same network? `ip neigh`, `ping`";
    Some(Check::new(Level::Warning, what, found).advise(advice))
}

/// Those of an interface that do not answer, and how many do.
fn neighbours_of(table: &str, name: &str) -> (Vec<String>, usize) {
    let (mut silent, mut known) = (Vec::new(), 0);
    for line in table.lines().skip(1) {
        let columns: Vec<_> = line.split_whitespace().collect();
        match columns[..] {
            [address, _, flags, .., device] if device == name => match flags {
                "0x0" => silent.push(address.to_owned()),
                _ => known += 1,
            },
            _ => {}
        }
    }
    (silent, known)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_without_an_answer_are_named() {
        let table = "IP address HW type Flags HW address Mask Device\n\
            192.0.2.2 0x1 0x2 02:00:00:00:00:0b * va\n\
            192.0.2.9 0x1 0x0 00:00:00:00:00:00 * va\n\
            192.0.2.8 0x1 0x0 00:00:00:00:00:00 * vb\n";
        assert_eq!(neighbours_of(table, "va"), (vec!["192.0.2.9".to_owned()], 1));
    }

    #[cfg(feature = "af_xdp")]
    #[test]
    fn vlans_are_looked_at_where_there_are_some() {
        use roxe_net::neighbor::Vlan;
        let of = |index, name: &str, vlan| Interface {
            index,
            name: name.to_owned(),
            link_type: 1,
            mac: None,
            mtu: 1500,
            is_up: true,
            has_carrier: true,
            addresses: Vec::new(),
            vlan,
        };
        let all = [
            of(2, "eth1", None),
            of(3, "eth1.10", Some(Vlan { id: 10, on: 2 })),
            of(4, "eth2.10", Some(Vlan { id: 10, on: 5 })),
        ];
        assert!(vlans(&all[1], &all, true).is_none());
        let seen = vlans(&all[0], &all, false).unwrap();
        assert_eq!((seen.level, seen.found.as_str()), (Level::Right, "eth1.10"));
        let unseen = vlans(&all[0], &all, true).unwrap();
        assert_eq!(unseen.level, Level::Warning);
        assert!(unseen.advice.starts_with("`ethtool -K eth1 rxvlan off`"), "{}", unseen.advice);
    }

    #[test]
    fn an_mtu_is_judged_by_the_path_mtu_that_fits() {
        let of = |mtu| Interface {
            index: 1,
            name: "va".to_owned(),
            link_type: 1,
            mac: None,
            mtu,
            is_up: true,
            has_carrier: true,
            addresses: Vec::new(),
            vlan: None,
        };
        let level = |bytes, wanted| mtu(&of(bytes), wanted).level;
        assert_eq!(level(1500, None), Level::Right);
        assert_eq!(level(1500, Some(Mtu::B4096)), Level::Wrong);
        assert_eq!(level(4096 + Mtu::HEADROOM, Some(Mtu::B4096)), Level::Right);
        assert_eq!(level(4095 + Mtu::HEADROOM, Some(Mtu::B4096)), Level::Wrong);
        assert_eq!(level(600, None), Level::Warning);
        assert_eq!(level(200, None), Level::Wrong);
        let advice = mtu(&of(1500), Some(Mtu::B4096)).advice;
        let expected = format!("`ip link set va mtu {}`", 4096 + Mtu::HEADROOM);
        assert!(advice.contains(&expected), "{advice}");
    }
}
