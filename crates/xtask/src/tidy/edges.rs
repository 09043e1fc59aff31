//! Who may use whom: the floors of the house.
//!
//! Dependencies of tests are free, so that a crate can be tried with what stands above it; only
//! xtask has none of the workspace at all.

use std::collections::BTreeSet;
use std::fs;

use crate::tidy::Finding;
use crate::workspace::{self, Dependency, Package};

/// A crate and the crates of the workspace that it may use.
struct Room(&'static str, &'static [&'static str]);

/// From the ground up. Package names, without the `roxe-` in front.
#[rustfmt::skip]
const ROOMS: &[Room] = &[
    // floor 0
    Room("wire",      &[]),
    // floor 1
    Room("transport", &["wire"]),
    Room("trace",     &["wire"]),
    // floor 2
    Room("device",    &["wire", "transport"]),
    Room("cm",        &["wire"]),
    Room("net",       &["wire"]),
    // floor 3
    Room("verbs",     &["wire", "transport", "trace", "device", "cm", "net"]),
    // floor 4
    Room("ibverbs",   &["wire", "transport", "trace", "device", "cm", "net", "verbs"]),
    Room("rdmacm",    &["wire", "transport", "trace", "device", "cm", "net", "verbs"]),
    Room("roxe",      &["wire", "transport", "trace", "device", "cm", "net", "verbs", "sim"]),
    // beside
    Room("sim",       &["wire", "transport", "trace", "device", "cm", "net"]),
    Room("xtask",     &[]),
];

/// Edges that a library user must be able to do without: who uses, who is used.
const OPTIONAL: &[(&str, &str)] = &[("roxe", "sim")];

/// Findings of all packages of the workspace.
pub(super) fn check(packages: &[Package]) -> Vec<Finding> {
    let ours: BTreeSet<&str> = packages.iter().map(|package| package.name.as_str()).collect();
    packages.iter().flat_map(|package| check_package(package, &ours)).collect()
}

fn check_package(package: &Package, ours: &BTreeSet<&str>) -> Vec<Finding> {
    let user = short(&package.name);
    let Some(Room(_, allowed)) = ROOMS.iter().find(|Room(name, _)| *name == user) else {
        let what = format!("{} has no floor yet: give it one in tidy/edges.rs", package.name);
        return vec![finding(package, "name", what)];
    };
    let wrong = |dependency: &&Dependency| {
        let used = short(&dependency.name);
        let free = dependency.is_dev && user != "xtask";
        !free && ours.contains(dependency.name.as_str()) && !allowed.contains(&used)
    };
    let binding = |dependency: &&Dependency| {
        let edge = (user, short(&dependency.name));
        !dependency.is_dev && !dependency.optional && OPTIONAL.contains(&edge)
    };
    let dependencies = package.dependencies.iter();
    let wrong = dependencies.clone().filter(wrong).map(|used| {
        finding(package, &used.name, format!("{} may not use {}", package.name, used.name))
    });
    let binding = dependencies.filter(binding).map(|used| {
        finding(package, &used.name, format!("{} must be `optional = true` here", used.name))
    });
    wrong.chain(binding).collect()
}

fn short(name: &str) -> &str {
    name.strip_prefix("roxe-").unwrap_or(name)
}

/// A finding at the manifest's line that begins with `key`.
fn finding(package: &Package, key: &str, what: String) -> Finding {
    let text = fs::read_to_string(workspace::root().join(&package.manifest)).unwrap_or_default();
    let line = text.lines().position(|line| line.starts_with(key)).map_or(1, |at| at + 1);
    Finding { file: package.manifest.clone(), line, rule: "edge", what }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn package(name: &str, dependencies: &[&str]) -> Package {
        let dependency =
            |name: &&str| Dependency { name: (*name).to_owned(), is_dev: false, optional: false };
        Package {
            name: name.to_owned(),
            manifest: format!("crates/{}/Cargo.toml", short(name)),
            dependencies: dependencies.iter().map(dependency).collect(),
            targets: Vec::new(),
        }
    }

    fn edges(packages: &[Package]) -> Vec<String> {
        check(packages).into_iter().map(|finding| finding.what).collect()
    }

    #[test]
    fn downwards_is_right_and_upwards_is_not() {
        let wire = package("roxe-wire", &["crc32fast"]);
        let device = package("roxe-device", &["roxe-wire"]);
        assert_eq!(edges(&[wire, device]), [""; 0]);

        let wire = package("roxe-wire", &["roxe-device"]);
        let device = package("roxe-device", &["roxe-wire"]);
        assert_eq!(edges(&[wire, device]), ["roxe-wire may not use roxe-device"]);
    }

    #[test]
    fn tests_may_use_what_stands_above_except_for_xtask() {
        let sim = || package("roxe-sim", &[]);
        let mut device = package("roxe-device", &["roxe-sim"]);
        device.dependencies[0].is_dev = true;
        assert_eq!(edges(&[device, sim()]), [""; 0]);

        let mut xtask = package("xtask", &["roxe-sim"]);
        xtask.dependencies[0].is_dev = true;
        assert_eq!(edges(&[xtask, sim()]), ["xtask may not use roxe-sim"]);
    }

    #[test]
    fn a_crate_of_another_house_with_our_name_is_none_of_ours() {
        assert_eq!(edges(&[package("roxe-wire", &["net"])]), [""; 0]);
    }

    #[test]
    fn the_library_can_do_without_the_simulator() {
        let sim = || package("roxe-sim", &[]);
        let mut roxe = package("roxe", &["roxe-sim"]);
        assert_eq!(edges(&[package("roxe", &["roxe-sim"]), sim()]).len(), 1);
        roxe.dependencies[0].optional = true;
        assert_eq!(edges(&[roxe, sim()]), [""; 0]);
    }

    #[test]
    fn a_new_crate_needs_a_floor() {
        assert_eq!(edges(&[package("roxe-attic", &[])]).len(), 1);
    }
}
