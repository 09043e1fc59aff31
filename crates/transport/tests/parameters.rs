//! What people read of congestion control is what there is.

use roxe_transport::congestion::{CongestionControl, NotificationPoint};

#[test]
fn the_readme_names_every_algorithm_and_every_parameter() {
    let readme = concat!(env!("CARGO_MANIFEST_DIR"), "/../../README.md");
    let readme = std::fs::read_to_string(readme).unwrap();
    for (name, control) in CongestionControl::NAMED {
        let named = |line: &&str| line.starts_with("| `") && line.contains(&format!("`{name}`"));
        let row = readme.lines().find(named).unwrap_or_else(|| panic!("no row of {name}"));
        for (parameter, _) in control.parameters() {
            assert!(row.contains(&format!("`{parameter}`")), "{name}: {parameter}");
        }
    }
    for (parameter, _) in NotificationPoint::DEFAULT.parameters() {
        assert!(readme.contains(&format!("`{parameter}`")), "{parameter}");
    }
}
