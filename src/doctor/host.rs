//! What is about the machine, or about who runs the program.

use std::env;
use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use roxe_verbs::udp;

use super::{Check, Level};
use crate::adapters::{Adapter, Open};

/// All of it.
pub(super) fn checks() -> Vec<Check> {
    let status = read("/proc/thread-self/status");
    let limits = read("/proc/thread-self/limits");
    let [release, jit_enable, rmem_max, wmem_max] =
        ["kernel/osrelease", "net/core/bpf_jit_enable", "net/core/rmem_max", "net/core/wmem_max"]
            .map(|name| read(&format!("/proc/sys/{name}")));
    let [udp, udp6, tables] = ["udp", "udp6", "ip_tables_names"]
        .map(|name| read(&format!("/proc/thread-self/net/{name}")));
    let files = open_files();
    let mut checks = vec![
        known("kernel", [release], |[release]| kernel(release.trim())),
        known("BPF compiler", [jit_enable], |[enabled]| jit(enabled.trim())),
        known("privileges", [status.clone()], |[status]| privileges(status)),
        known("locked memory", [limits.clone(), status.clone()], |[limits, status]| {
            memlock(limits, status)
        }),
        known("open files", [limits, files], |[limits, open]| descriptors(limits, open)),
        known("socket buffers", [rmem_max, wmem_max, status], |[receive, send, status]| {
            buffers(receive.trim(), send.trim(), status)
        }),
        known("UDP port 4791", [udp, udp6], port),
    ];
    match tables {
        Ok(tables) => checks.extend(firewall(&tables)),
        // The file is root's.
        Err(why) if Path::new(PROC).exists() => checks.push(
            Check::right("firewall", format!("not known: {why}"))
                .advise("root may see whether there is one that keeps UDP port 4791 out"),
        ),
        Err(why) => checks.push(Check::unknown("firewall", why)),
    }
    checks.push(adapters());
    checks.extend(configuration());
    checks
}

/// What a file of the kernel says: nothing, where it has no such file; or why it cannot be asked.
pub(super) fn read(path: &str) -> Result<String, String> {
    match fs::read_to_string(path) {
        // Of some settings only the first network namespace has files.
        Err(error) if error.kind() == ErrorKind::NotFound && Path::new(PROC).exists() => {
            Ok(String::new())
        }
        read => read.map_err(|error| format!("{path}: {error}")),
    }
}

/// Where /proc is.
const PROC: &str = "/proc/thread-self";

/// A check that takes what the kernel says, or that it does not.
fn known<const N: usize>(
    what: &'static str,
    texts: [Result<String, String>; N],
    check: impl FnOnce([&str; N]) -> Check,
) -> Check {
    if let Some(why) = texts.iter().find_map(|text| text.as_ref().err()) {
        return Check::unknown(what, why);
    }
    check(texts.each_ref().map(|text| text.as_deref().unwrap_or_default()))
}

fn kernel(release: &str) -> Check {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(str::parse::<u32>);
    let version = (numbers.next().and_then(Result::ok), numbers.next().and_then(Result::ok));
    let what = "kernel";
    match version {
        (Some(major), Some(minor)) if (major, minor) >= (6, 6) => {
            Check::right(what, format!("Linux {release}: AF_XDP with frames in several buffers"))
        }
        (Some(major), Some(minor)) if (major, minor) >= (5, 10) => Check::new(
            Level::Warning,
            what,
            format!("Linux {release}: AF_XDP, frames up to 3.5 KiB"),
        )
        .advise("path MTU 4096 by AF_XDP takes Linux 6.6; 2048 works"),
        (Some(_), Some(_)) => {
            Check::new(Level::Warning, what, format!("Linux {release} is too old for AF_XDP here"))
                .advise("take Linux 5.10 or newer, or a UDP socket: `udp:ADDRESS`")
        }
        _ => Check::new(Level::Warning, what, "its version cannot be read"),
    }
}

/// Why a setting of the whole machine cannot be read.
const ELSEWHERE: &str = "only the machine's first network namespace shows it";

fn jit(enabled: &str) -> Check {
    let what = "BPF compiler";
    match enabled {
        "0" => Check::new(Level::Warning, what, "off: XDP programs are interpreted, and slow")
            .advise("`sysctl net.core.bpf_jit_enable=1`"),
        "" => Check::right(what, format!("not known: {ELSEWHERE}"))
            .advise("`sysctl net.core.bpf_jit_enable` there: 0 makes XDP programs slow"),
        _ => Check::right(what, "on: XDP programs run as machine code"),
    }
}

/// What AF_XDP takes, with the numbers of linux/capability.h.
const CAPABILITIES: [(u32, &str); 3] =
    [(CAP_NET_ADMIN, "CAP_NET_ADMIN"), (CAP_NET_RAW, "CAP_NET_RAW"), (CAP_BPF, "CAP_BPF")];
const CAP_NET_ADMIN: u32 = 12;
const CAP_NET_RAW: u32 = 13;
const CAP_IPC_LOCK: u32 = 14;
const CAP_SYS_ADMIN: u32 = 21;
const CAP_BPF: u32 = 39;

/// Whether the status of a process says that it may do something.
fn is_capable(status: &str, capability: u32) -> bool {
    let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let set = effective.and_then(|set| u64::from_str_radix(set.trim(), 16).ok()).unwrap_or(0);
    // Whoever may administer the system may load programs: so it was before CAP_BPF.
    let is_bpf = capability == CAP_BPF && set & (1 << CAP_SYS_ADMIN) != 0;
    set & (1 << capability) != 0 || is_bpf
}

fn privileges(status: &str) -> Check {
    let what = "privileges";
    let missing: Vec<_> = CAPABILITIES
        .iter()
        .filter(|(number, _)| !is_capable(status, *number))
        .map(|(_, name)| *name)
        .collect();
    if missing.is_empty() {
        return Check::right(what, "AF_XDP is allowed");
    }
    Check::new(
        Level::Warning,
        what,
        format!("AF_XDP is not allowed: {} missing", missing.join(", ")),
    )
    .advise(
        "run as root, or `setcap cap_net_raw,cap_net_admin,cap_bpf,cap_ipc_lock+ep \
             $(command -v roxe)`, for its commands and for what `roxe run` starts; a UDP socket \
             needs none",
    )
}

/// KiB of locked memory that an adapter takes for each queue of its interface: 2048 frames to send
/// from and as many to receive into, of 4 KiB each.
const FRAMES_KIB: u64 = 2 * 2048 * 4;

fn memlock(limits: &str, status: &str) -> Check {
    let what = "locked memory";
    let soft = soft_limit(limits, "Max locked memory");
    if is_capable(status, CAP_IPC_LOCK) || soft == "unlimited" {
        return Check::right(what, "without limit");
    }
    let kib = soft.parse::<u64>().unwrap_or(0) / 1024;
    let found = format!("{kib} KiB; AF_XDP takes {FRAMES_KIB} for each queue of an interface");
    if kib >= FRAMES_KIB {
        return Check::right(what, found);
    }
    Check::new(Level::Warning, what, found)
        .advise("`ulimit -l unlimited`, LimitMEMLOCK= of systemd, or CAP_IPC_LOCK")
}

/// The limit of a process that holds now.
fn soft_limit<'a>(limits: &'a str, name: &str) -> &'a str {
    let limit = limits.lines().find_map(|line| line.strip_prefix(name));
    limit.and_then(|limit| limit.split_whitespace().next()).unwrap_or_default()
}

/// How many files this process has open, one of them to count them.
fn open_files() -> Result<String, String> {
    let path = "/proc/thread-self/fd";
    let open = fs::read_dir(path).map_err(|error| format!("{path}: {error}"))?;
    Ok(open.count().to_string())
}

/// Says so where this process may not open what an adapter takes: whatever fails then has other
/// names.
pub(crate) fn few_descriptors() -> Option<String> {
    let (limits, open) = (read("/proc/thread-self/limits").ok()?, open_files().ok()?);
    let check = descriptors(&limits, &open);
    (check.level != Level::Right).then(|| format!("open files: {}: {}", check.found, check.advice))
}

/// Descriptors that an adapter takes; by AF_XDP one more for each queue.
const DESCRIPTORS: u64 = 24;

fn descriptors(limits: &str, open: &str) -> Check {
    let what = "open files";
    // A limit that is no number is none.
    let most = soft_limit(limits, "Max open files").parse().unwrap_or(u64::MAX);
    let left = most.saturating_sub(open.parse().unwrap_or(0));
    if left >= DESCRIPTORS {
        return Check::right(what, "enough descriptors for an adapter");
    }
    Check::new(
        Level::Warning,
        what,
        format!("a process may have {most}; an adapter takes up to {DESCRIPTORS}, or more"),
    )
    .advise("`ulimit -n 1024`, or LimitNOFILE= of systemd")
}

fn buffers(receive: &str, send: &str, status: &str) -> Check {
    let what = "socket buffers";
    let (Ok(receive), Ok(send)) = (receive.parse::<u64>(), send.parse::<u64>()) else {
        return Check::right(what, format!("not known: {ELSEWHERE}")).advise(
            "`sysctl net.core.rmem_max net.core.wmem_max` there: where they are small, bursts to \
             UDP sockets are lost",
        );
    };
    // What an adapter on a UDP socket asks for.
    let wanted = udp::Settings::default().buffer as u64;
    if is_capable(status, CAP_NET_ADMIN) {
        return Check::right(what, "as large as an adapter on a UDP socket wants: CAP_NET_ADMIN");
    }
    let found = format!(
        "an adapter on a UDP socket wants {wanted} bytes, and gets {receive} to receive \
         (rmem_max), {send} to send (wmem_max)"
    );
    if receive.min(send) >= wanted {
        return Check::right(what, found);
    }
    Check::new(Level::Warning, what, format!("{found}: long bursts are lost"))
        .advise(format!("`sysctl net.core.rmem_max={wanted} net.core.wmem_max={wanted}`"))
}

/// Sockets that have UDP port 4791, in the tables of both families.
fn port(tables: [&str; 2]) -> Check {
    let what = "UDP port 4791";
    let inodes: Vec<String> =
        tables.into_iter().flat_map(inodes_of_port).map(str::to_owned).collect();
    if inodes.is_empty() {
        return Check::right(what, "free");
    }
    let mut owners: Vec<_> = inodes.iter().map(|inode| owner(inode)).collect();
    owners.sort();
    owners.dedup();
    Check::new(Level::Warning, what, format!("taken by {}", owners.join(", "))).advise(
        "an adapter on a UDP socket cannot have the same address; AF_XDP takes frames before it",
    )
}

fn inodes_of_port(table: &str) -> impl Iterator<Item = &str> {
    table.lines().skip(1).filter_map(|line| {
        let columns: Vec<_> = line.split_whitespace().collect();
        let (_, port) = columns.get(1)?.rsplit_once(':')?;
        (port == "12B7").then(|| columns.get(9).copied())?
    })
}

/// The program that has a socket; the kernel, as far as we may see.
fn owner(inode: &str) -> String {
    let socket = format!("socket:[{inode}]");
    let is_socket = |entry: fs::DirEntry| {
        fs::read_link(entry.path()).is_ok_and(|to| to.to_str() == Some(&socket))
    };
    let found = fs::read_dir("/proc").into_iter().flatten().flatten().find_map(|process| {
        let path = process.path();
        let mut descriptors = fs::read_dir(path.join("fd")).ok()?.flatten();
        descriptors.any(is_socket).then_some(())?;
        let program = fs::read_to_string(path.join("comm")).unwrap_or_default();
        Some(format!("{} (process {})", program.trim(), process.file_name().to_string_lossy()))
    });
    found.unwrap_or_else(|| "the kernel (rdma_rxe?), or a program of somebody else".to_owned())
}

fn firewall(tables: &str) -> Option<Check> {
    let tables: Vec<_> = tables.split_whitespace().collect();
    let found = format!("iptables has tables here: {}", tables.join(", "));
    (!tables.is_empty()).then(|| {
        Check::right("firewall", found).advise(
            "AF_XDP does not pass it; for UDP sockets let UDP port 4791 in: `iptables -L -n`",
        )
    })
}

/// Those that are open already.
fn adapters() -> Check {
    let what = "open adapters";
    let Open { adapters: found, silent } = match Adapter::all() {
        Ok(open) => open,
        Err(error) => return Check::unknown(what, format!("/proc/thread-self/net/unix: {error}")),
    };
    let mut names: Vec<_> =
        found.iter().map(|it| format!("{}: {}", it.title(), it.info.mode)).collect();
    names.extend(silent.into_iter().map(|(endpoint, error)| format!("{endpoint}: {error}")));
    if names.is_empty() {
        return Check::right(what, "none in this namespace");
    }
    Check::right(what, names.join("; "))
}

/// Variables that programs with adapters read, and what they name.
fn configuration() -> Vec<Check> {
    let names = env::vars_os().filter_map(|(name, _)| name.into_string().ok());
    let mut names: Vec<_> = names.filter(|name| name.starts_with("ROXE_")).collect();
    names.sort();
    let strange = names.iter().filter(|name| !KNOWN.contains(&name.as_str()));
    let mut checks: Vec<Check> = strange
        .map(|name| {
            Check::new(Level::Warning, "variables", format!("{name} means nothing"))
                .advise(format!("there are: {}", KNOWN.join(", ")))
        })
        .collect();
    let what = "configuration";
    let value = |name| {
        let value = env::var_os(name)?.to_string_lossy().trim().to_owned();
        (!value.is_empty()).then_some(value)
    };
    // The first one goes first.
    let [devices, file] = KNOWN.map(value);
    let from = match (devices, file) {
        (Some(_), None) => "ROXE_DEVICES".to_owned(),
        (Some(_), Some(file)) => format!("ROXE_DEVICES, and not ROXE_CONFIG={file}"),
        (None, Some(file)) => format!("ROXE_CONFIG={file}"),
        (None, None) => {
            let found = "neither ROXE_DEVICES nor ROXE_CONFIG names adapters: each interface that \
                         is up is one";
            checks.push(Check::right(what, found));
            return checks;
        }
    };
    checks.push(match roxe_verbs::devices() {
        Ok(devices) => {
            let all: Vec<_> =
                devices.iter().map(|it| format!("{} = {}", it.name, it.device)).collect();
            Check::right(what, format!("{from}: {}", all.join("; ")))
        }
        Err(error) => Check::new(Level::Wrong, what, format!("{from}: {error}"))
            .advise("`roxe devinfo --help` shows how devices are named"),
    });
    checks
}

/// Which means something; the first goes first.
const KNOWN: [&str; 2] = ["ROXE_DEVICES", "ROXE_CONFIG"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kernel_is_judged_by_its_version() {
        let level = |release| kernel(release).level;
        assert_eq!(level("6.6.0-custom"), Level::Right);
        assert_eq!(level("10.0"), Level::Right);
        assert_eq!(level("6.5.13"), Level::Warning);
        assert!(kernel("5.10.1").found.contains("3.5 KiB"));
        assert!(kernel("4.19.0").found.contains("too old"));
        assert_eq!(level(""), Level::Warning);
    }

    const NOBODY: &str = "Name:\tx\nCapEff:\t0000000000000000\n";

    #[test]
    fn what_is_not_allowed_is_named() {
        let all = "CapEff:\t000001ffffffffff\n";
        assert_eq!(privileges(all).level, Level::Right);
        let none = privileges(NOBODY);
        assert_eq!(none.level, Level::Warning);
        assert!(none.found.ends_with("CAP_NET_ADMIN, CAP_NET_RAW, CAP_BPF missing"));
        // An older kernel's root knows no CAP_BPF.
        assert_eq!(privileges("CapEff:\t0000003fffffffff\n").level, Level::Right);
        assert!(privileges("CapEff:\t0000000000003000\n").found.ends_with(": CAP_BPF missing"));
    }

    #[test]
    fn memory_that_may_be_locked_is_compared_with_what_it_takes() {
        let limits =
            |soft: &str| format!("Max locked memory         {soft}      unlimited     bytes\n");
        assert_eq!(memlock(&limits("8388608"), NOBODY).level, Level::Warning);
        assert_eq!(memlock(&limits("16777216"), NOBODY).level, Level::Right);
        assert_eq!(memlock(&limits("unlimited"), NOBODY).level, Level::Right);
        assert_eq!(memlock(&limits("8388608"), "CapEff:\t0000000000004000\n").level, Level::Right);
    }

    #[test]
    fn buffers_bind_who_may_not_exceed_them() {
        assert_eq!(buffers("212992", "212992", NOBODY).level, Level::Warning);
        assert_eq!(buffers("8388608", "8388608", NOBODY).level, Level::Right);
        assert_eq!(buffers("212992", "212992", "CapEff:\t0000000000001000\n").level, Level::Right);
        assert_eq!(buffers("", "", NOBODY).level, Level::Right);
        assert_eq!(jit("0").level, Level::Warning);
        assert_eq!(jit("1").level, Level::Right);
    }

    #[cfg(feature = "af_xdp")]
    #[test]
    fn the_memory_of_a_queue_is_that_of_its_frames() {
        let ring = roxe_verbs::af_xdp::Settings::default().ring;
        assert_eq!(FRAMES_KIB, 2 * u64::from(ring) * 4);
    }

    #[test]
    fn descriptors_that_are_left_are_compared_with_what_an_adapter_takes() {
        let limits = |soft: &str| format!("Max open files            {soft}     4096     files\n");
        assert_eq!(descriptors(&limits("1024"), "4").level, Level::Right);
        assert_eq!(descriptors(&limits("6"), "4").level, Level::Warning);
        assert_eq!(descriptors(&limits("1024"), "1010").level, Level::Warning);
        assert_eq!(descriptors(&limits("unlimited"), "4").level, Level::Right);
    }

    #[test]
    fn sockets_of_the_port_are_found_in_the_table() {
        let table = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   \
            uid  timeout inode ref pointer drops\n\
            10: 0100007F:12B7 00000000:0000 07 00000000:00000000 00:00000000 00000000     0        \
            0 4711 2 0000000000000000 0\n\
            11: 00000000:0044 0100007F:12B7 07 00000000:00000000 00:00000000 00000000     0        \
            0 4712 2 0000000000000000 0\n";
        assert_eq!(inodes_of_port(table).collect::<Vec<_>>(), ["4711"]);
        assert_eq!(port(["", ""]).level, Level::Right);
    }

    #[test]
    fn what_cannot_be_asked_is_not_known_and_what_does_not_exist_is_nothing() {
        assert_eq!(read("/proc/sys/net/core/nosuch"), Ok(String::new()));
        // A folder can be opened, and not be read.
        let why = read("/proc").unwrap_err();
        assert!(why.starts_with("/proc: "), "{why}");
        let of = |texts| known("x", texts, |[a, b]| Check::right("x", format!("{a}{b}")));
        assert_eq!(of([Ok("a".to_owned()), Ok("b".to_owned())]), Check::right("x", "ab"));
        let unknown = of([Ok("a".to_owned()), Err("/proc/b: gone".to_owned())]);
        assert_eq!((unknown.level, &*unknown.found), (Level::Warning, "not known: /proc/b: gone"));
    }

    #[test]
    fn a_firewall_is_told_where_there_is_one() {
        assert_eq!(firewall(""), None);
        assert!(firewall("filter\nnat\n").unwrap().found.ends_with("filter, nat"));
    }
}
