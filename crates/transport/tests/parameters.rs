//! What people read of congestion control is what there is.

use roxe_transport::congestion::{CongestionControl, NotificationPoint};

#[test]
fn the_page_of_devices_names_every_algorithm_and_every_parameter() {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/devices.md");
    let page = std::fs::read_to_string(page).unwrap();
    let (_, list) = page.split_once("\n## Congestion control\n").expect("the section is there");
    let paragraphs: Vec<_> = list.split("\n\n").flat_map(|text| text.split("\n- ")).collect();
    for (name, control) in CongestionControl::NAMED {
        // An item of the list begins with the names of its algorithms, up to a colon.
        let named = |text: &&&str| {
            let names = text.trim_start_matches("- ").split(':').next().unwrap_or_default();
            names.split(", ").any(|it| it.trim_matches('`') == *name)
        };
        let item = paragraphs.iter().find(named).unwrap_or_else(|| panic!("no item of {name}"));
        for (parameter, _) in control.parameters() {
            assert!(item.contains(&format!("`{parameter}`")), "{name}: {parameter}");
        }
    }
    for (parameter, _) in NotificationPoint::DEFAULT.parameters() {
        assert!(list.contains(&format!("`{parameter}`")), "{parameter}");
    }
}
