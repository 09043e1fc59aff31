//! Every struct and number against the header of the distribution.

use std::ffi::c_int;
use std::fmt::Write as _;

use super::{NUMBERS, layouts, rdma_conn_param, rdma_ud_param};
use crate::layout::tests::printed_by;

const CMA: &str = "rdma/rdma_cma.h";

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
    assert_eq!(printed_by(CMA, &body), ours);
}

#[test]
fn numbers_are_those_of_the_header() {
    let line = |name| format!("printf(\"{name} %d\\n\", (int) {name});\n");
    let body: String = NUMBERS.iter().map(|(name, _)| line(name)).collect();
    let ours = NUMBERS.iter().map(|(name, value): &(_, c_int)| format!("{name} {value}"));
    assert_eq!(printed_by(CMA, &body), ours.collect::<Vec<_>>());
}
