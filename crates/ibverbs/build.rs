//! Makes of `symbols.txt` what the linker and the assembler want.
//!
//! Programs ask for a name with a version, and do not start unless the library has both. The
//! compiler has a version script of its own, in which names marked `no_mangle` are without one; so
//! ours are labels of assembly, each a jump to its function, which the compiler does not list. A
//! name that has several versions gets each by `.symver`. A second version script takes rust-lld,
//! the compiler's own linker.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::{env, fs};

/// Versions of names that rdma-core's libraries share among themselves.
const PRIVATE: [&str; 5] = ["34", "57", "59", "64", "65"];

/// A name: its versions, the last of which is the one for who names none, and the function.
type Names = BTreeMap<String, (Vec<String>, String)>;

fn main() {
    println!("cargo:rerun-if-changed=symbols.txt");
    let names = read(&fs::read_to_string("symbols.txt").expect("symbols.txt lies beside build.rs"));
    let out = env::var("OUT_DIR").expect("cargo says where");
    let [map, jumps] = ["symbols.map", "jumps.rs"].map(|file| Path::new(&out).join(file));
    fs::write(&map, version_script(&names)).expect("OUT_DIR can be written to");
    fs::write(jumps, jumps_of(&names)).expect("OUT_DIR can be written to");
    for argument in [
        &format!("--version-script={}", map.display()),
        "-soname,libibverbs.so.1",
        // Its threads go on after a dlclose.
        "-z,nodelete",
    ] {
        println!("cargo:rustc-cdylib-link-arg=-Wl,{argument}");
    }
    println!("cargo:rustc-cdylib-link-arg=-fuse-ld=lld");
    offer(Path::new(&out));
}

/// A folder beside the library, `target/debug/lib` say, in which it has the names that programs
/// look for, and no other library is.
fn offer(out: &Path) {
    let Some(profile) = out.ancestors().nth(3) else { return };
    let folder = profile.join("lib");
    fs::create_dir_all(&folder).expect("the target folder can be written to");
    for name in ["libibverbs.so.1", "libibverbs.so", "librdmacm.so.1", "librdmacm.so"] {
        let link = folder.join(name);
        let _ = fs::remove_file(&link);
        // There every build puts it, those for tests too.
        symlink("../deps/libibverbs.so", link).expect("the target folder can be written to");
    }
}

fn read(text: &str) -> Names {
    let mut names = Names::new();
    let mut head = ("", "");
    for line in text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let mut words = line.split_whitespace();
        if !line.starts_with(' ') {
            let mut word = || words.next().expect("a line begins with a version and a target");
            head = (word(), word());
        }
        let (version, target) = head;
        for name in words {
            let target = match target.contains("::") {
                true => target.to_owned(),
                false => format!("{}::{name}", target.replace('/', "::")),
            };
            let mut add = |name: &str, versions: Vec<String>| {
                let before = names.insert(name.to_owned(), (versions, target.clone()));
                assert!(before.is_none(), "{name} stands in symbols.txt twice");
            };
            let private = |number: &str| format!("IBVERBS_PRIVATE_{number}");
            match version {
                "PRIVATE" if name.ends_with('_') => PRIVATE
                    .iter()
                    .for_each(|number| add(&format!("{name}{number}"), vec![private(number)])),
                "PRIVATE" => add(name, PRIVATE.into_iter().map(private).collect()),
                of_rdmacm if of_rdmacm.starts_with("RDMACM_") => {
                    add(name, vec![of_rdmacm.to_owned()]);
                }
                number => add(name, vec![format!("IBVERBS_{number}")]),
            }
        }
    }
    names
}

/// Every version with the names that have it only. Public ones of a library stand on each other.
fn version_script(names: &Names) -> String {
    let mut nodes: BTreeMap<(bool, &str, u32, &str), Vec<&str>> = BTreeMap::new();
    for (name, (versions, _)) in names {
        for version in versions {
            let public = version.split_once("_1.");
            let (library, minor) = public.unwrap_or((version, "0"));
            let minor = minor.parse().expect("a version ends with its number");
            let node = nodes.entry((public.is_none(), library, minor, version)).or_default();
            node.extend((versions.len() == 1).then_some(name.as_str()));
        }
    }
    let (mut script, mut below) = (String::new(), "");
    for ((private, library, _, version), names) in nodes {
        below = if below.starts_with(library) { below } else { "" };
        let global = if names.is_empty() { "" } else { " global:" };
        let _ = write!(script, "{version} {{{global}");
        for name in names {
            let _ = write!(script, " {name};");
        }
        if private {
            script += " };\n";
        } else {
            let _ = writeln!(script, " }} {below};");
            below = version;
        }
    }
    script
}

fn jumps_of(names: &Names) -> String {
    let jump = match env::var("CARGO_CFG_TARGET_ARCH").as_deref() {
        Ok("x86_64") => "jmp",
        Ok("aarch64") => "b",
        other => panic!("no jump is known for {other:?}"),
    };
    let mut targets: Vec<&str> = names.values().map(|(_, target)| target.as_str()).collect();
    targets.sort_unstable();
    targets.dedup();
    let mut code = String::from("core::arch::global_asm!(\n");
    for (name, (versions, target)) in names {
        let target = targets.binary_search(&target.as_str()).expect("it is one of them");
        let last = versions.len() - 1;
        for (at, version) in versions.iter().enumerate() {
            let label = match last {
                0 => name.clone(),
                _ => format!("{name}__{}", version.replace('.', "_")),
            };
            let _ = writeln!(
                code,
                "\".globl {label}\", \".type {label},@function\", \
                 \"{label}: {jump} {{{target}}}\", \".size {label}, . - {label}\","
            );
            if last != 0 {
                let at_sign = if at == last { "@@" } else { "@" };
                let _ = writeln!(code, "\".symver {label}, {name}{at_sign}{version}\",");
            }
        }
    }
    for target in targets {
        let _ = writeln!(code, "sym crate::{target},");
    }
    code + ");\n"
}
