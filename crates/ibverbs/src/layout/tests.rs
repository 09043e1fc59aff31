//! Every struct and number against the headers of the distribution.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::Command;
use std::{env, fs, process};

use super::{NUMBERS, layouts, verbs_context_of_today};

const VERBS: &str = "infiniband/verbs.h";

/// Bytes of a field.
pub(crate) const fn size_of_field<S, F>(_: fn(&S) -> &F) -> usize {
    size_of::<F>()
}

/// Lines that a program in C prints, compiled against this header.
pub(crate) fn printed_by(header: &str, body: &str) -> Vec<String> {
    let folder = env::temp_dir().join(format!("roxe-layout-{}-{}", process::id(), body.len()));
    fs::create_dir_all(&folder).unwrap();
    let (source, program): (PathBuf, PathBuf) = (folder.join("probe.c"), folder.join("probe"));
    let text = format!(
        "#include <{header}>\n#include <stddef.h>\n#include <stdio.h>\n\
         int main(void) {{\n{body}return 0;\n}}\n"
    );
    fs::write(&source, text).unwrap();
    let compiled = Command::new("cc").arg("-o").args([&program, &source]).output().unwrap();
    let says = String::from_utf8_lossy(&compiled.stderr);
    assert!(compiled.status.success(), "apt-get install gcc libibverbs-dev librdmacm-dev\n{says}");
    let output = Command::new(&program).output().unwrap().stdout;
    fs::remove_dir_all(folder).unwrap();
    String::from_utf8(output).unwrap().lines().map(str::to_owned).collect()
}

#[test]
fn structs_are_those_of_the_header() {
    let (mut body, mut ours) = (String::new(), Vec::new());
    for (name, size, fields) in layouts() {
        let kind = if name == "ibv_gid" { "union" } else { "struct" };
        let _ = writeln!(body, "printf(\"{name} %zu\\n\", sizeof({kind} {name}));");
        ours.push(format!("{name} {size}"));
        for (field, offset, size) in fields {
            let field = field.trim_start_matches("r#"); // A word of Rust.
            let _ = writeln!(
                body,
                "printf(\"{name}.{field} %zu %zu\\n\", offsetof({kind} {name}, {field}), \
                 sizeof((({kind} {name} *)0)->{field}));"
            );
            ours.push(format!("{name}.{field} {offset} {size}"));
        }
    }
    assert!(ours.len() > 400, "{} lines", ours.len());
    let theirs = printed_by(VERBS, &body);
    assert_eq!(theirs.len(), ours.len());
    let other: Vec<_> = theirs.iter().zip(&ours).filter(|(theirs, ours)| theirs != ours).collect();
    assert!(other.is_empty(), "theirs, ours: {other:?}");
}

#[test]
fn unions_of_a_send_request_are_those_of_the_header() {
    use super::{
        ibv_send_wr, ibv_send_wr_atomic as atomic, ibv_send_wr_rdma as rdma, ibv_send_wr_ud as ud,
    };
    use std::mem::offset_of;
    let wr = offset_of!(ibv_send_wr, wr);
    let ours = [
        ("wr.rdma.remote_addr", offset_of!(rdma, remote_addr)),
        ("wr.rdma.rkey", offset_of!(rdma, rkey)),
        ("wr.atomic.remote_addr", offset_of!(atomic, remote_addr)),
        ("wr.atomic.compare_add", offset_of!(atomic, compare_add)),
        ("wr.atomic.swap", offset_of!(atomic, swap)),
        ("wr.atomic.rkey", offset_of!(atomic, rkey)),
        ("wr.ud.ah", offset_of!(ud, ah)),
        ("wr.ud.remote_qpn", offset_of!(ud, remote_qpn)),
        ("wr.ud.remote_qkey", offset_of!(ud, remote_qkey)),
    ];
    let line = |name| format!("printf(\"%zu\\n\", offsetof(struct ibv_send_wr, {name}));\n");
    let body: String = ours.iter().map(|(name, _)| line(name)).collect();
    let ours: Vec<_> = ours.iter().map(|(_, offset)| (wr + offset).to_string()).collect();
    assert_eq!(printed_by(VERBS, &body), ours);
}

#[test]
fn numbers_are_those_of_the_header() {
    let line = |name| format!("printf(\"{name} %u\\n\", (unsigned) {name});\n");
    let body: String = NUMBERS.iter().map(|(name, _)| line(name)).collect();
    let ours: Vec<_> = NUMBERS.iter().map(|(name, value)| format!("{name} {value}")).collect();
    assert!(ours.len() > 100, "{} numbers", ours.len());
    assert_eq!(printed_by(VERBS, &body), ours);
}

#[test]
fn what_later_versions_added_stands_in_front() {
    assert_eq!(size_of::<verbs_context_of_today>(), 648 + 6 * 8);
}
