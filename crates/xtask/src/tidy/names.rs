//! Names that say nothing: a drawer for everything fills with everything.

use crate::tidy::Finding;

const DRAWERS: &[&str] = &["util", "utils", "helper", "helpers", "common", "misc"];

/// True for a name of a file or module that says nothing.
pub(super) fn is_drawer(name: &str) -> bool {
    DRAWERS.contains(&name)
}

/// The finding that a file or one of its folders may be.
pub(super) fn check(path: &str) -> Option<Finding> {
    let stem = |part: &str| part.split('.').next().unwrap_or_default().to_owned();
    let drawer = path.split('/').map(stem).find(|name| is_drawer(name))?;
    Some(finding(path, 1, &drawer))
}

/// The finding for a drawer declared at this place.
pub(super) fn finding(path: &str, line: usize, drawer: &str) -> Finding {
    let what = format!("{drawer:?} says nothing; name the idea, or put it where it is used");
    Finding { file: path.to_owned(), line, rule: "name", what }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drawers_are_found_wherever_they_stand() {
        for path in ["crates/net/src/utils.rs", "tests/common/mod.rs", "misc.md", "helpers"] {
            assert!(check(path).is_some(), "{path}");
        }
    }

    #[test]
    fn a_name_may_contain_such_a_word() {
        for path in ["crates/net/src/common_clock.rs", "README.md", "tests/interop/helper_vm.rs"] {
            assert_eq!(check(path), None);
        }
    }
}
