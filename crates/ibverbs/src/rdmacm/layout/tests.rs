//! Every struct and number against the header of the distribution.

use std::ffi::c_int;
use std::fmt::Write as _;
use std::process::Command;
use std::{env, fs, process};

use super::{NUMBERS, layouts, rdma_conn_param, rdma_ud_param};

/// Bytes of a field.
pub(super) const fn size_of_field<S, F>(_: fn(&S) -> &F) -> usize {
    size_of::<F>()
}

/// Lines that a program in C prints, compiled against `rdma/rdma_cma.h`.
fn printed_by(name: &str, body: &str) -> Vec<String> {
    let folder = env::temp_dir().join(format!("roxe-rdmacm-{name}-{}", process::id()));
    fs::create_dir_all(&folder).unwrap();
    let [source, program] = ["probe.c", "probe"].map(|file| folder.join(file));
    let text = format!(
        "#include <rdma/rdma_cma.h>\n#include <stddef.h>\n#include <stdio.h>\n\
         int main(void) {{\n{body}return 0;\n}}\n"
    );
    fs::write(&source, text).unwrap();
    let compiled = Command::new("cc").arg("-o").args([&program, &source]).output().unwrap();
    let says = String::from_utf8_lossy(&compiled.stderr);
    assert!(compiled.status.success(), "apt-get install gcc librdmacm-dev\n{says}");
    let output = Command::new(&program).output().unwrap().stdout;
    fs::remove_dir_all(folder).unwrap();
    String::from_utf8(output).unwrap().lines().map(str::to_owned).collect()
}

#[test]
fn structs_are_those_of_the_header() {
    let (mut body, mut ours) = (String::new(), Vec::new());
    for (name, size, fields) in layouts() {
        let _ = writeln!(body, "printf(\"{name} %zu\\n\", sizeof(struct {name}));");
        ours.push(format!("{name} {size}"));
        for (field, offset, size) in fields {
            let _ = writeln!(
                body,
                "printf(\"{name}.{field} %zu %zu\\n\", offsetof(struct {name}, {field}), \
                 sizeof(((struct {name} *)0)->{field}));"
            );
            ours.push(format!("{name}.{field} {offset} {size}"));
        }
    }
    for (name, size) in [("conn", size_of::<rdma_conn_param>()), ("ud", size_of::<rdma_ud_param>())]
    {
        let _ = writeln!(
            body,
            "printf(\"{name} %zu\\n\", sizeof(((struct rdma_cm_event *)0)->param.{name}));"
        );
        ours.push(format!("{name} {size}"));
    }
    assert!(ours.len() > 80, "{} lines", ours.len());
    assert_eq!(printed_by("structs", &body), ours);
}

#[test]
fn numbers_are_those_of_the_header() {
    let line = |name| format!("printf(\"{name} %d\\n\", (int) {name});\n");
    let body: String = NUMBERS.iter().map(|(name, _)| line(name)).collect();
    let ours = NUMBERS.iter().map(|(name, value): &(_, c_int)| format!("{name} {value}"));
    assert_eq!(printed_by("numbers", &body), ours.collect::<Vec<_>>());
}
