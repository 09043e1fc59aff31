//! Which adapters there are: those that `ROXE_DEVICES` or a file names, or one for each interface.

use std::env;
use std::net::IpAddr;
#[cfg(feature = "config")]
use std::path::Path;

use roxe_net::neighbor::{Interface, Netlink};

use crate::context::Context;
use crate::device_string::{DeviceString, DeviceStringError, PortString, begins_with_port};
use crate::error::Error;

/// An adapter that can be opened.
#[derive(Clone, Debug, PartialEq)]
pub struct DeviceEntry {
    /// Its name.
    pub name: String,
    /// What it is.
    pub device: DeviceString,
    /// The interface, of one that nobody named.
    pub interface: Option<Interface>,
}

impl DeviceEntry {
    /// Opens it.
    ///
    /// # Errors
    /// [`Error`] says what is missing.
    pub fn open(&self) -> Result<Context, Error> {
        Context::open_device(&self.name, &self.device)
    }

    /// An EUI-64 that is the same each time, `node_guid`: of what the adapter is and of this host,
    /// and marked as one that no authority gave.
    pub fn guid(&self) -> [u8; 8] {
        let device = self.device.to_string();
        let port = device.split(',').next().unwrap_or_default();
        let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        // FNV-1a.
        let bytes = host.trim().bytes().chain(port.bytes());
        let hash = bytes.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
        let mut guid = hash.to_be_bytes();
        guid[0] = guid[0] & !1 | 2;
        guid
    }

    /// The name of the network interface it is on, and the addresses that it will have, as far as
    /// that can be seen without opening it.
    pub fn place(&self) -> (Option<String>, Vec<IpAddr>) {
        let interfaces = Netlink::open().and_then(|mut netlink| netlink.interfaces());
        let interfaces = interfaces.unwrap_or_default();
        let addresses_of = |interface: &Interface| -> Vec<IpAddr> {
            interface.addresses.iter().map(|assigned| assigned.address).collect()
        };
        let on = |name: &str| {
            let interface = interfaces.iter().find(|interface| interface.name == name);
            (Some(name.to_owned()), interface.map(addresses_of).unwrap_or_default())
        };
        match &self.device.port {
            #[cfg(feature = "af_xdp")]
            PortString::Xdp(name, _, own) if !own.addresses.is_empty() => {
                let own = own.addresses.iter().map(|assigned| assigned.address).collect();
                (Some(name.clone()), own)
            }
            #[cfg(feature = "af_xdp")]
            PortString::Xdp(name, ..) => on(name),
            PortString::Auto(name) => on(name),
            PortString::Udp(address, _) | PortString::Host(address) => {
                let has_it = |it: &&Interface| addresses_of(it).contains(address);
                (interfaces.iter().find(has_it).map(|it| it.name.clone()), vec![*address])
            }
            PortString::Memory(_) => (None, Vec::new()),
        }
    }
}

/// The adapters there are: `ibv_get_device_list`.
///
/// The variable `ROXE_DEVICES` names them, as `roxe0=xdp:eth1;roxe1=udp:127.0.0.1` (see
/// [`DeviceString`]). Without it, the file does that `ROXE_CONFIG` names (see [`devices_in`]; cargo
/// feature `config`). Without either, each interface that is up and has an address is one, loopback
/// last: `roxe_eth1` is `auto:eth1`.
///
/// # Errors
/// [`Error::DeviceString`]: the variable cannot be read. `Error::Config`: the file cannot.
/// [`Error::System`]: the interfaces cannot.
pub fn devices() -> Result<Vec<DeviceEntry>, Error> {
    let variable = |name| env::var_os(name).filter(|value| !value.is_empty());
    if let Some(named) = variable(VARIABLE).filter(|it| !it.to_string_lossy().trim().is_empty()) {
        return read(&named.to_string_lossy(), VARIABLE);
    }
    match variable(CONFIG_VARIABLE) {
        #[cfg(feature = "config")]
        Some(file) => Ok(crate::config::read(Path::new(&file))
            .map_err(|error| error.named_by(CONFIG_VARIABLE))?),
        // Who names a file shall not get other adapters than those in it.
        #[cfg(not(feature = "config"))]
        Some(_) => Err(Error::NoConfig),
        None => Ok(of_interfaces(&Netlink::open()?.interfaces()?)),
    }
}

/// The adapters that a text names as `ROXE_DEVICES` does. One without a name has its string for
/// one.
///
/// # Errors
/// [`Error::DeviceString`].
pub fn devices_named(text: &str) -> Result<Vec<DeviceEntry>, Error> {
    read(text, "")
}

/// The adapters that a TOML file names, in its order: a table for each, with the port and the
/// options of a [`DeviceString`]. Options that are on or off may be `true` or `false`.
///
/// ```toml
/// [roxe0]
/// port = "xdp:eth1"
/// mode = "native"
/// zerocopy = false
/// fault = "drop 1%"
/// ```
///
/// # Errors
/// `Error::Config` names file, line and key.
#[cfg(feature = "config")]
pub fn devices_in(file: &Path) -> Result<Vec<DeviceEntry>, Error> {
    Ok(crate::config::read(file)?)
}

/// Opens an adapter that a file names, or that of a device string.
///
/// # Errors
/// Those of [`open`] and [`devices_in`].
#[cfg(feature = "config")]
pub fn open_in(file: &Path, name: &str) -> Result<Context, Error> {
    find_in(file, name)?.open()
}

/// The adapter of this name in a file, or that of a device string, without opening it.
///
/// # Errors
/// Those of [`find`] and [`devices_in`].
#[cfg(feature = "config")]
pub fn find_in(file: &Path, name: &str) -> Result<DeviceEntry, Error> {
    find_among(name, || devices_in(file))
}

/// Opens the adapter of this name, or that of a device string.
///
/// # Errors
/// [`Error::NoSuchDevice`] names those there are; else [`Error`] says what is missing.
pub fn open(name: &str) -> Result<Context, Error> {
    find(name)?.open()
}

/// The adapter of this name, or that of a device string, without opening it.
///
/// # Errors
/// [`Error::NoSuchDevice`] names those there are; [`Error::DeviceString`].
pub fn find(name: &str) -> Result<DeviceEntry, Error> {
    find_among(name, devices)
}

fn find_among(
    name: &str,
    devices: impl FnOnce() -> Result<Vec<DeviceEntry>, Error>,
) -> Result<DeviceEntry, Error> {
    let of_string = |device| DeviceEntry { name: name.to_owned(), device, interface: None };
    if begins_with_port(name) {
        let count = split(name).len();
        if count > 1 {
            let what = format!("these are {count} devices, and one is meant here");
            return Err(DeviceStringError { device: name.to_owned(), what }.into());
        }
        return Ok(of_string(name.parse()?));
    }
    let devices = devices()?;
    if let Some(entry) = devices.iter().find(|entry| entry.name == name) {
        return Ok(entry.clone());
    }
    if name.contains(':') {
        return Ok(of_string(name.parse()?)); // What is wrong with it is said.
    }
    let others = devices.into_iter().map(|entry| entry.name).collect();
    Err(Error::NoSuchDevice { name: name.to_owned(), others })
}

/// Where adapters are named.
const VARIABLE: &str = "ROXE_DEVICES";

/// Where the file is named that names adapters.
const CONFIG_VARIABLE: &str = "ROXE_CONFIG";

/// The texts of a list, each of an adapter.
fn split(named: &str) -> Vec<String> {
    let mut texts: Vec<String> = Vec::new();
    for piece in named.split(';') {
        match texts.last_mut() {
            // A semicolon inside of rules.
            Some(text) if !begins_with_port(name_and_device(piece).1) => {
                *text += &format!(";{piece}");
            }
            _ => texts.push(piece.to_owned()),
        }
    }
    texts
}

/// The adapters that a text names; where it stands is told with what is wrong in it.
fn read(named: &str, place: &str) -> Result<Vec<DeviceEntry>, Error> {
    let place = if place.is_empty() { String::new() } else { format!(" ({place})") };
    let mut entries: Vec<DeviceEntry> = Vec::new();
    for text in &split(named) {
        let (name, device) = name_and_device(text.trim_end_matches([';', ' ']));
        let wrong = |what: String| DeviceStringError { device: text.trim().to_owned(), what };
        let in_variable = |error: DeviceStringError| wrong(format!("{}{place}", error.what));
        if name.is_empty() {
            return Err(wrong(format!("a name is missing before `=`{place}")).into());
        }
        if entries.iter().any(|entry| entry.name == name) {
            return Err(wrong(format!("there are two of the name {name}{place}")).into());
        }
        let device = device.parse().map_err(in_variable)?;
        entries.push(DeviceEntry { name: name.to_owned(), device, interface: None });
    }
    Ok(entries)
}

/// The two of `roxe0=xdp:eth1`. A device string without a name is its own.
fn name_and_device(text: &str) -> (&str, &str) {
    let text = text.trim();
    let (name, device) = text.split_once('=').unwrap_or((text, text));
    if begins_with_port(text) { (text, text) } else { (name.trim(), device.trim()) }
}

fn of_interfaces(interfaces: &[Interface]) -> Vec<DeviceEntry> {
    let mut usable: Vec<_> =
        interfaces.iter().filter(|it| it.is_up && !it.addresses.is_empty()).collect();
    usable.sort_by_key(|interface| interface.is_loopback());
    let entry = |interface: &Interface| {
        let device = format!("auto:{}", interface.name).parse().ok()?;
        let name = format!("roxe_{}", interface.name);
        Some(DeviceEntry { name, device, interface: Some(interface.clone()) })
    };
    usable.into_iter().filter_map(entry).collect()
}

#[cfg(test)]
mod tests {
    use roxe_net::neighbor::Assigned;

    use super::*;

    fn list(named: &str) -> Vec<(String, String)> {
        let entries = read(named, VARIABLE).unwrap_or_else(|error| panic!("{error}"));
        entries.into_iter().map(|entry| (entry.name, entry.device.to_string())).collect()
    }

    #[test]
    fn the_variable_names_adapters() {
        let named = " roxe0 = auto:eth1 ; b=memory:x,fault=drop 1%; dup 2%;c=udp:127.0.0.1;";
        let expected = [
            ("roxe0", "auto:eth1"),
            ("b", "memory:x,fault=drop 1%; dup 2%"),
            ("c", "udp:127.0.0.1"),
        ];
        assert_eq!(list(named), expected.map(|(name, text)| (name.to_owned(), text.to_owned())));
        assert!(read("eth1", VARIABLE).is_err() && read("a=tap:x", VARIABLE).is_err());
    }

    #[test]
    fn what_is_wrong_with_the_variable_is_told_with_its_name() {
        let why = |named: &str| read(named, VARIABLE).unwrap_err().to_string();
        assert_eq!(
            why("a=tap:x"),
            "device `a=tap:x`: `tap` is none of xdp, udp, auto, host, memory \
             (ROXE_DEVICES)"
        );
        assert_eq!(
            why("a=memory:x,b=memory:y"),
            "device `a=memory:x,b=memory:y`: `b=memory:y` is another device: devices have `;` \
             between them (ROXE_DEVICES)"
        );
        assert_eq!(
            why("a=memory:x;a=memory:y"),
            "device `a=memory:y`: there are two of the name a (ROXE_DEVICES)"
        );
        assert_eq!(
            why("=memory:x"),
            "device `=memory:x`: a name is missing before `=` (ROXE_DEVICES)"
        );
    }

    #[test]
    fn a_device_string_of_no_kind_is_told_so_and_not_looked_for() {
        let find = |name| find_among(name, || read("a=memory:x", VARIABLE));
        assert_eq!(find("a").unwrap().device.to_string(), "memory:x");
        assert_eq!(find("memory:y").unwrap().name, "memory:y");
        assert_eq!(
            find("memory:y;b=memory:z").unwrap_err().to_string(),
            "device `memory:y;b=memory:z`: these are 2 devices, and one is meant here"
        );
        assert!(find("memory:y,fault=drop 1%; dup 2%").is_ok(), "rules have it too");
        assert!(matches!(find("xpd:eth1"), Err(Error::DeviceString(_))));
        assert!(matches!(find("b"), Err(Error::NoSuchDevice { .. })));
    }

    #[test]
    fn a_device_without_a_name_is_named_by_its_string() {
        let text = "udp:127.0.0.1,gso=off";
        let expected = [(text, text), ("a", "memory:x")];
        let expected = expected.map(|(name, text)| (name.to_owned(), text.to_owned()));
        assert_eq!(list(&format!("{text};a=memory:x")), expected);
    }

    #[test]
    fn without_it_each_interface_is_one_and_loopback_the_last() {
        let interface = |name: &str, link_type, is_up, addresses: &[&str]| Interface {
            index: 1,
            name: name.to_owned(),
            link_type,
            mac: None,
            mtu: 1500,
            is_up,
            has_carrier: is_up,
            addresses: addresses
                .iter()
                .map(|it| Assigned { address: it.parse().unwrap(), prefix_len: 24 })
                .collect(),
            vlan: None,
        };
        let interfaces = [
            interface("lo", 772, true, &["127.0.0.1"]),
            interface("eth0", 1, true, &["192.0.2.1", "fe80::1"]),
            interface("eth1", 1, false, &["192.0.2.2"]),
            interface("eth2", 1, true, &[]),
        ];
        let entries = of_interfaces(&interfaces);
        let names: Vec<_> = entries.iter().map(|entry| entry.name.as_str()).collect();
        assert_eq!(names, ["roxe_eth0", "roxe_lo"]);
        assert_eq!(entries[0].device.to_string(), "auto:eth0");
    }
}
