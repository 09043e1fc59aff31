//! Every lab in small: what was published is what comes of it.

use std::fs;
use std::path::Path;

use roxe_sim::lab::Lab;

fn check(name: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../../tests/labs/{name}.toml"));
    let lab = Lab::parse(&fs::read_to_string(path).unwrap()).unwrap();
    assert!(!lab.says.is_empty() && !lab.source.is_empty());
    let report = lab.run(true, &mut |_, _| ()).unwrap();
    for run in &report.runs {
        println!("{}", run.name);
        run.figures.iter().for_each(|figure| println!("  {:24} {:.4}", figure.name, figure.value));
    }
    assert!(!report.judged.is_empty());
    let wrong: Vec<_> = report.judged.iter().filter(|judged| !judged.holds()).collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
}

macro_rules! labs {
    ($($test:ident $name:literal)*) => {
        $(#[test]
        fn $test() {
            check($name);
        })*

        #[test]
        fn each_lab_has_a_test() {
            let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/labs");
            let files = fs::read_dir(folder).unwrap().map(|file| file.unwrap().path());
            let labs = files.filter(|file| file.extension().is_some_and(|end| end == "toml"));
            let mut labs: Vec<String> = labs
                .map(|file| file.file_stem().unwrap().to_str().unwrap().to_owned())
                .collect();
            labs.sort();
            assert_eq!(labs, [$($name),*]);
        }
    };
}

labs! {
    rings_are_as_fast_as_their_slowest_link "all-reduce"
    all_to_all_shares_the_links_out "all-to-all"
    hadoop_loses_nothing "hadoop"
    the_queue_of_many_to_one_is_bounded "incast-64"
    eight_to_one_is_fair "incast-8"
    hpcc_keeps_the_queue_near_zero "incast-hpcc"
    tensors_between_random_hosts_arrive "ml"
    pauses_are_unfair_and_dcqcn_is_not "parking-lot"
    many_hosts_lose_nothing "scale"
    dcqcn_saves_the_spines_their_pauses "storage"
    two_flows_share_a_link "two-flows"
    two_flows_share_a_link_by_a_target_of_delay "two-flows-swift"
    two_flows_share_a_link_by_the_gradient_of_delay "two-flows-timely"
    slow_links_overflow_unless_somebody_is_told "two-senders"
    who_shares_no_link_is_not_slowed_down "victim-flow"
    web_search_loses_nothing "web-search"
}
