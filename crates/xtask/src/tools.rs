//! What the commands need beyond the Rust toolchain, and how it gets here: Debian packages by
//! apt, cargo tools by `cargo install` into a cache that outlives `target`.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Result, ensure};

use crate::child::{Heard, Listener};
use crate::stop::Stop;
use crate::{child, tell, workspace};

/// A Debian package: its name, what it is for, and what shows that it is there.
struct Package(&'static str, &'static str, Sign);

/// What shows that a package is installed.
enum Sign {
    /// A program on `PATH`.
    Program(&'static str),
    /// A file.
    File(&'static str),
}

#[rustfmt::skip]
const PACKAGES: &[Package] = &[
    Package("clang",      "compiles the XDP program",                  Sign::Program("clang")),
    Package("ethtool",    "keeps VLAN tags in frames",                 Sign::Program("ethtool")),
    Package("g++",        "compiles libFuzzer",                        Sign::Program("g++")),
    Package("ibverbs-utils", "programs of libibverbs, for tests",      Sign::Program("ibv_rc_pingpong")),
    Package("iproute2",   "makes interfaces for tests",                Sign::Program("ip")),
    Package("libelf-dev", "linked by libbpf",                          Sign::File("/usr/include/libelf.h")),
    Package("libibverbs-dev", "the structs that C programs have",      Sign::File("/usr/include/infiniband/verbs.h")),
    Package("m4",         "makes headers of libxdp",                   Sign::Program("m4")),
    Package("perftest",   "programs that measure, for tests",          Sign::Program("ib_write_bw")),
    Package("pkg-config", "finds C libraries for build scripts",       Sign::Program("pkg-config")),
    Package("python3-pyverbs", "the verbs for rdma-core's own tests",  Sign::File("/usr/lib/python3/dist-packages/pyverbs/__init__.py")),
    Package("qemu-system-x86", "runs guests with Linux's own adapter", Sign::Program("qemu-system-x86_64")),
    Package("librdmacm-dev", "the structs of connections that C programs have", Sign::File("/usr/include/rdma/rdma_cma.h")),
    Package("rdmacm-utils", "programs of librdmacm, for tests",        Sign::Program("rping")),
    Package("tshark",     "second opinion on our packets in tests",    Sign::Program("tshark")),
    Package("xz-utils",   "unpacks kernels and modules of guests",     Sign::Program("xz")),
    Package("zlib1g-dev", "linked by libbpf",                          Sign::File("/usr/include/zlib.h")),
    Package("zstd",       "unpacks kernels and modules of guests",     Sign::Program("zstd")),
];

/// What programs need that run on our libibverbs.so.1.
pub(crate) const PROGRAMS: &[&str] = &[
    "ibverbs-utils",
    "iproute2",
    "libibverbs-dev",
    "librdmacm-dev",
    "perftest",
    "python3-pyverbs",
    "rdmacm-utils",
];

/// The folder of rdma-core's Python suite. The package has it among its documentation, which many
/// machines leave out: then it is unpacked beside our target. Nothing where that does not work.
pub(crate) fn suite() -> Option<PathBuf> {
    const PLACE: &str = "usr/share/doc/rdma-core/tests";
    let whole = |folder: PathBuf| Some(folder).filter(|it| it.join("test_qp.py").is_file());
    let own = workspace::target().join("programs");
    let unpacked = || whole(own.join(PLACE));
    unpacked().or_else(|| unpack_suite(&own, PLACE).ok().and_then(|()| unpacked()))
}

fn unpack_suite(folder: &Path, place: &str) -> Result<()> {
    fs::create_dir_all(folder)?;
    let run = |program: &str, arguments: &[&str]| -> Result<()> {
        let mut command = child::command(program);
        command.args(arguments).current_dir(folder);
        let heard = Listener { name: program.to_owned(), verbose: false }.hear(command)?;
        ensure!(heard.success, "{program}: {}", heard.output);
        Ok(())
    };
    run("apt-get", &["-qq", "download", "python3-pyverbs"])?;
    let packages = fs::read_dir(folder)?.filter_map(|it| it.ok()?.file_name().into_string().ok());
    for package in packages.filter(|name| name.ends_with(".deb")) {
        run("dpkg-deb", &["-x", &package, "."])?;
    }
    let suite = folder.join(place);
    let packed = fs::read_dir(&suite)?.filter_map(|it| it.ok()?.path().to_str().map(str::to_owned));
    let packed: Vec<String> = packed.filter(|file| file.ends_with(".gz")).collect();
    run("gunzip", &packed.iter().map(String::as_str).collect::<Vec<_>>())
}

/// Packages that the build scripts of the workspace need.
pub(crate) const BUILD: &[&str] = &["clang", "libelf-dev", "m4", "pkg-config", "zlib1g-dev"];

/// A cargo tool: its name, the version we build where it is missing, how long that takes on two
/// cores, and the features it is built with.
struct Tool(&'static str, &'static str, &'static str, &'static [&'static str]);

#[rustfmt::skip]
const TOOLS: &[Tool] = &[
    Tool("cargo-deny",    "0.20.2",  "2 minutes", &[]),
    Tool("cargo-mutants", "27.1.0",  "4 minutes", &[]),
    Tool("cargo-nextest", "0.9.143", "4 minutes", &["--no-default-features", "--features", "default-no-update"]),
];

/// Installs what is missing of these packages and tools, packages first.
pub(crate) fn ensure_present(names: &[&str]) -> Result<()> {
    let missing: Vec<&Package> = PACKAGES
        .iter()
        .filter(|Package(name, _, sign)| names.contains(name) && !sign.is_there())
        .collect();
    if !missing.is_empty() {
        install_packages(&missing)?;
    }
    TOOLS
        .iter()
        .filter(|Tool(name, ..)| names.contains(name) && find(name).is_none())
        .try_for_each(install_tool)
}

/// The program of a cargo tool: the cached one, else the one on `PATH`.
pub(crate) fn tool(name: &str) -> Result<PathBuf> {
    find(name).ok_or_else(|| Stop::Missing(format!("{name} is not installed")).into())
}

/// The program of this name on `PATH`.
pub(crate) fn on_path(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|folder| folder.join(program)).find(|file| file.is_file())
}

impl Sign {
    fn is_there(&self) -> bool {
        match self {
            Self::Program(name) => on_path(name).is_some(),
            Self::File(path) => Path::new(path).exists(),
        }
    }
}

fn install_packages(missing: &[&Package]) -> Result<()> {
    let names: Vec<&str> = missing.iter().map(|Package(name, ..)| *name).collect();
    let by_hand = format!("apt-get install --no-install-recommends {}", names.join(" "));
    if !is_root() || on_path("apt-get").is_none() {
        let mut text = String::from("these packages are missing:");
        for Package(name, purpose, _) in missing {
            text += &format!("\n  {name:<12} {purpose}");
        }
        text += &format!("\ninstall them as root: {by_hand}");
        return Err(Stop::Missing(text).into());
    }

    tell!("installing by apt: {}", names.join(" "));
    // A new machine has no package lists yet, an old one may have stale ones.
    if !apt_get("install", &names)?.success {
        apt_get("update", &[])?;
        let Heard { success, output } = apt_get("install", &names)?;
        if !success {
            let text = format!("{output}\napt cannot install them; try by hand: {by_hand}");
            return Err(Stop::Missing(text).into());
        }
    }
    for Package(name, _, sign) in missing {
        ensure!(sign.is_there(), "{name} is installed, but its sign in tools.rs is still missing");
    }
    Ok(())
}

/// How apt ended, and what it said.
fn apt_get(verb: &str, names: &[&str]) -> Result<Heard> {
    let mut command = child::command("apt-get");
    command
        .args(["-qq", "-o", "DPkg::Lock::Timeout=600", "-o", "Dpkg::Use-Pty=0", verb])
        .args(["--yes", "--no-install-recommends"].iter().filter(|_| verb == "install"))
        .args(names)
        .env("DEBIAN_FRONTEND", "noninteractive");
    Listener { name: "apt".to_owned(), verbose: false }.hear(command)
}

fn install_tool(Tool(name, version, time, features): &Tool) -> Result<()> {
    tell!("building {name} {version} once, about {time}");
    let mut command = child::cargo("install --locked");
    command
        .args([name, "--version", version])
        .args(*features)
        .arg("--root")
        .arg(cache().join(format!("{name}-{version}")))
        // Not below our own target: the tool needs neither our lock nor our profiles.
        .env_remove("CARGO_TARGET_DIR")
        // It runs for seconds; do not optimise for minutes.
        .env("CARGO_PROFILE_RELEASE_OPT_LEVEL", "1")
        .env("CARGO_PROFILE_RELEASE_LTO", "off")
        .env("CARGO_PROFILE_RELEASE_DEBUG", "false")
        .env("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "16");
    let Heard { success, output } =
        Listener { name: name.to_string(), verbose: false }.hear(command)?;
    if success {
        return Ok(());
    }
    let by_hand = format!("cargo install --locked {name}@{version}");
    Err(Stop::Missing(format!("{output}\n{name} does not build; try by hand: {by_hand}")).into())
}

fn find(name: &str) -> Option<PathBuf> {
    let Tool(_, version, ..) = TOOLS.iter().find(|Tool(known, ..)| *known == name)?;
    let cached = cache().join(format!("{name}-{version}/bin/{name}"));
    if cached.is_file() { Some(cached) } else { on_path(name) }
}

/// Where the tools are kept: a folder of the user, shared by all work trees.
fn cache() -> PathBuf {
    let folder = |name| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    folder("XDG_CACHE_HOME")
        .or_else(|| folder("HOME").map(|home| home.join(".cache")))
        .unwrap_or_else(workspace::target)
        .join("roxe/tools")
}

/// Whether this is root's process.
pub(crate) fn is_root() -> bool {
    fs::metadata("/proc/self").is_ok_and(|process| process.uid() == 0)
}
