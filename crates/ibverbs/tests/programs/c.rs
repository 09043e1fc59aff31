//! Programs of our own, in C, for what no program of the distribution does.

use std::process::{Command, id};
use std::{env, fs};

use crate::end::program_on;

/// Compiles a program, and runs it with an adapter on a loopback address; says what it printed.
fn run(source: &str, address: &str) -> String {
    let folder = env::temp_dir().join(format!("roxe-c-{}-{address}", id()));
    fs::create_dir_all(&folder).expect("there is room");
    let (file, program) = (folder.join("program.c"), folder.join("program"));
    fs::write(&file, format!("{BEGINNING}{source}")).expect("there is room");
    let compiled = Command::new("cc")
        .arg("-o")
        .args([&program, &file])
        .args(["-libverbs", "-lrdmacm"])
        .output();
    let compiled = compiled.expect("apt-get install gcc");
    let says = String::from_utf8_lossy(&compiled.stderr).into_owned();
    assert!(compiled.status.success(), "apt-get install libibverbs-dev librdmacm-dev\n{says}");
    let program = program.to_str().expect("a path is text");
    let output = program_on(program, &format!("udp:{address}")).output().expect("it runs");
    fs::remove_dir_all(folder).expect("it is ours");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let complained = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{:?}: {said}{complained}", output.status);
    said
}

#[test]
fn memory_that_the_program_has_unmapped_fails_the_work_and_not_the_process() {
    let said = run(include_str!("c/unmapped.c"), "127.0.9.1");
    let expected = "send from memory that has gone: 4\n\
                    write to memory that has gone: 10 or 11\n\
                    there: 0\n";
    assert_eq!(said, expected);
}

#[test]
fn a_child_has_nothing_of_the_adapter_and_its_parent_all() {
    let said = run(include_str!("c/fork.c"), "127.0.9.2");
    assert_eq!(said, "child: post 5, poll -5, closed\nparent: 0\n");
}

#[test]
fn a_process_that_ends_with_a_connection_parts_from_its_peer() {
    assert_eq!(run(include_str!("c/exit.c"), "127.0.9.4"), "disconnected\n");
}

/// What all have in front.
const BEGINNING: &str = include_str!("c/connected.h");
