//! Guests: a Debian kernel and what a soft-RoCE host needs, out of Debian's packages.
//!
//! Nothing is installed: packages are downloaded and unpacked below `target/interop`, and no
//! script of theirs runs. What was built is kept and used again as long as what it is made from
//! stays the same; a newer kernel of the archive comes when the folder is deleted.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};

use crate::child::{self, Heard, Listener};
use crate::interop::archive::Archive;
use crate::interop::kernel;
use crate::stop::Stop;
use crate::{tell, workspace};

/// What boots.
pub(crate) struct Image {
    /// An uncompressed kernel.
    pub(crate) kernel: PathBuf,
    /// Its initial file system.
    pub(crate) initrd: PathBuf,
}

/// The version of Debian's of the kernel with a release, if a guest of it is kept here.
pub(crate) fn version(release: &str) -> Option<String> {
    let of = |series| fs::read(workspace::target().join("interop").join(series).join("vmlinux"));
    super::SERIES.into_iter().find_map(|series| kernel::version(&of(series).ok()?, release))
}

/// The version of a package of the guests', if one was unpacked here.
pub(crate) fn package(name: &str) -> Option<String> {
    let debs = fs::read_dir(workspace::target().join("interop/userland/debs")).ok()?;
    let names = debs.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned());
    let mut versions = names.filter_map(|file| {
        let version = file.strip_prefix(name)?.strip_prefix('_')?.split('_').next()?;
        Some(version.replace("%3a", ":"))
    });
    versions.next()
}

/// Packages from which programs and libraries of the guest come, with what these need.
#[rustfmt::skip]
const USERLAND: &[&str] = &[
    "busybox-static", "ibverbs-providers", "ibverbs-utils", "iproute2", "libibverbs-dev", "perftest",
    "rdmacm-utils",
];

/// Programs of these packages that the guest has.
#[rustfmt::skip]
const PROGRAMS: &[&str] = &[
    "ip", "tc", "rdma", "ibv_devinfo", "ibv_rc_pingpong", "ibv_uc_pingpong", "ibv_ud_pingpong",
    "ibv_srq_pingpong", "ib_send_bw", "ib_write_bw", "ib_read_bw", "ib_atomic_bw", "ib_send_lat",
    "ib_write_lat", "ib_read_lat", "ib_atomic_lat", "rping", "ucmatose", "udaddy", "mckey",
    "rdma_server", "rdma_client", "cmtime", "rcopy", "rstream", "riostream", "udpong",
];

/// What busybox does in the guest.
#[rustfmt::skip]
const APPLETS: &[&str] = &[
    "cat", "chmod", "grep", "head", "hostname", "httpd", "insmod", "kill", "mkdir", "mount", "pidof",
    "poweroff", "rm", "seq", "sh", "sleep", "timeout", "uname",
];

const LIBRARIES: &str = "usr/lib/x86_64-linux-gnu";

/// Where the sources of agent and guest are.
const SOURCES: &str = "tests/interop";

/// Changes with what is built from the same sources.
const RECIPE: &str = "4";

/// The image with a kernel of this series, such as `6.1`.
pub(crate) fn build(series: &str) -> Result<Image> {
    let folder = workspace::target().join("interop").join(series);
    let userland = workspace::target().join("interop/userland");
    let image = Image { kernel: folder.join("vmlinux"), initrd: folder.join("initrd.cpio") };
    let recipe = recipe()?;
    let stamp = folder.join("recipe");
    if fs::read_to_string(&stamp).is_ok_and(|it| it == recipe) {
        return Ok(image);
    }
    fs::create_dir_all(&folder).context("cannot make a folder for guests")?;
    unpacked(&userland.join("root"), &USERLAND.join(" "), || {
        tell!("guest: programs and libraries from Debian");
        unpack_userland(&userland)
    })?;
    unpacked(&folder.join("modules"), &kernel::wanted(), || {
        let package = newest_kernel(series)?;
        tell!("guest: {package}");
        unpack_kernel(&folder, &package)
    })?;
    tell!("guest: agent and initial file system");
    let agent = compile_agent(&userland)?;
    let initrd = initrd(&folder, &userland.join("root"), &agent)?;
    fs::write(&image.initrd, initrd).context("cannot write the guest's file system")?;
    fs::write(stamp, recipe).context("cannot write which recipe it was")?;
    Ok(image)
}

/// Makes a folder that is not there, or was made of another list than this, or of one that nobody
/// knows. What list it was stands beside it.
fn unpacked(folder: &Path, list: &str, unpack: impl FnOnce() -> Result<()>) -> Result<()> {
    let stamp = folder.with_extension("list");
    let is_of_it = fs::read_to_string(&stamp).is_ok_and(|it| it == list);
    if !is_of_it && folder.is_dir() {
        fs::remove_dir_all(folder).with_context(|| format!("{}", folder.display()))?;
    }
    if !folder.is_dir() {
        unpack()?;
    }
    fs::write(&stamp, list).with_context(|| format!("{}", stamp.display()))
}

/// All that decides what an image is like, but the packages.
fn recipe() -> Result<String> {
    let sources = workspace::root().join(SOURCES);
    let read = |name: &str| fs::read_to_string(sources.join(name)).context(name.to_owned());
    let lists = [USERLAND, PROGRAMS, APPLETS].map(|list| list.join(" ")).join("\n");
    let wanted = kernel::wanted();
    Ok([RECIPE, &lists, &wanted, &read("agent.c")?, &read("init.sh")?, &read("kit.sh")?].join("\n"))
}

/// Downloads packages with all that they need: with an empty list of what is installed, apt leaves
/// nothing out, and touches nothing of this machine.
fn unpack_userland(folder: &Path) -> Result<()> {
    let debs = folder.join("debs");
    // Two versions of a package would be unpacked one over the other.
    let _ = fs::remove_dir_all(&debs);
    fs::create_dir_all(debs.join("partial")).context("cannot make a folder for packages")?;
    let status = folder.join("status");
    fs::write(&status, "").context("cannot write an empty list of packages")?;
    let mut install = apt_get();
    install
        .args(["-o", &format!("Dir::State::status={}", status.display())])
        .args(["-o", &format!("Dir::Cache::archives={}", debs.display())])
        .args(["install", "--download-only", "--yes", "--no-install-recommends"])
        .args(USERLAND);
    hear_apt(install)?;
    let root = folder.join("root.part");
    let _ = fs::remove_dir_all(&root);
    fs::create_dir_all(&root).context("cannot make a folder for programs")?;
    for entry in fs::read_dir(&debs)? {
        let deb = entry?.path();
        let name = deb.file_name().unwrap_or_default().to_string_lossy().into_owned();
        // Perl scripts of perftest and dpkg's own needs: nothing that the guest runs.
        let skipped = ["perl", "libperl", "dpkg", "tar_", "debconf"];
        if name.ends_with(".deb") && !skipped.iter().any(|it| name.starts_with(it)) {
            extract(&deb, &root, &["--exclude=./usr/share"])?;
        }
    }
    fs::rename(root, folder.join("root")).context("cannot name the folder of programs")
}

/// The newest kernel package of a series, by the archive's lists of today: an older one may have
/// faults that are mended since.
fn newest_kernel(series: &str) -> Result<String> {
    let mut update = apt_get();
    update.arg("update");
    let updated = hear_apt(update);
    let pattern = format!(r"^linux-image-{}\.[0-9].*-amd64$", series.replace('.', r"\."));
    let mut search = child::command("apt-cache");
    search.args(["search", "--names-only", &pattern]);
    let heard = Listener { name: "apt".to_owned(), verbose: false }.hear(search)?;
    // Lists that are there serve, if only old ones can be had.
    if let Some(found) = choose_kernel(&heard.output) {
        return Ok(found);
    }
    updated?;
    let text = format!("apt knows no stock kernel {series} (linux-image-{series}.*-amd64)");
    Err(Stop::Missing(text).into())
}

/// Of what `apt-cache search` prints, the newest that is no special one.
fn choose_kernel(output: &str) -> Option<String> {
    let names = output.lines().filter_map(|line| line.split(' ').next());
    let stock = names.filter(|name| !name.contains("-cloud-") && !name.contains("-rt-"));
    let version = |name: &&str| -> Vec<u32> {
        name.split(|c: char| !c.is_ascii_digit()).filter_map(|it| it.parse().ok()).collect()
    };
    stock.max_by_key(version).map(str::to_owned)
}

fn unpack_kernel(folder: &Path, package: &str) -> Result<()> {
    let mut download = apt_get();
    download.args(["download", package]).current_dir(folder);
    hear_apt(download)?;
    let deb = fs::read_dir(folder)?.filter_map(Result::ok).map(|entry| entry.path()).find(|path| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        name.starts_with(&format!("{package}_")) && name.ends_with(".deb")
    });
    let deb = deb.context("apt has downloaded no package")?;
    let unpacked = folder.join("unpacked");
    let _ = fs::remove_dir_all(&unpacked);
    fs::create_dir_all(&unpacked).context("cannot make a folder for the kernel")?;
    let wanted = [
        "boot/*",
        "lib/modules/*/kernel/drivers/infiniband/*",
        "lib/modules/*/kernel/net/*",
        "lib/modules/*/kernel/drivers/net/*.ko*",
        "lib/modules/*/kernel/drivers/virtio/*",
        "lib/modules/*/kernel/crypto/*",
        "lib/modules/*/kernel/fs/configfs/*",
        "lib/modules/*/kernel/lib/*",
    ];
    let wanted = wanted.map(|path| format!("*{path}"));
    let wanted: Vec<&str> = wanted.iter().map(String::as_str).collect();
    extract(&deb, &unpacked, &[&["--wildcards"], &wanted[..]].concat())?;
    let boot = unpacked.join("boot");
    let image = fs::read_dir(&boot)?.filter_map(Result::ok).map(|entry| entry.path());
    let image = image.filter(|path| path.to_string_lossy().contains("/vmlinuz-")).max();
    let image = fs::read(image.context("the package has no kernel")?)?;
    fs::write(folder.join("vmlinux"), kernel::unpack(&image)?)?;
    let modules = folder.join("modules.part");
    let _ = fs::remove_dir_all(&modules);
    fs::create_dir_all(&modules)?;
    let lists = kernel::modules(&unpacked)?;
    let has = |name: &str| lists.iter().flatten().any(|(known, _)| known == name);
    ensure!(has("rdma_rxe"), "{package} has no rdma_rxe");
    for (list, file) in lists.iter().zip(["order", "later"]) {
        let mut order = String::new();
        for (name, bytes) in list {
            fs::write(modules.join(format!("{name}.ko")), bytes)?;
            order += &format!("{name}\n");
        }
        fs::write(modules.join(file), order)?;
    }
    fs::rename(modules, folder.join("modules"))?;
    // A package and what it held take half a gigabyte.
    fs::remove_dir_all(unpacked)?;
    Ok(fs::remove_file(deb)?)
}

/// Unpacks some of a package into a folder.
fn extract(deb: &Path, into: &Path, options: &[&str]) -> Result<()> {
    let mut unpack = Command::new("dpkg-deb")
        .arg("--fsys-tarfile")
        .arg(deb)
        .stdout(Stdio::piped())
        .spawn()
        .context("cannot run dpkg-deb")?;
    let tar = unpack.stdout.take().context("a pipe that was asked for")?;
    // A pattern that nothing matches makes tar complain; what is missing shows later.
    Command::new("tar")
        .arg("-x")
        .arg("-C")
        .arg(into)
        .args(options)
        .stdin(tar)
        .stderr(Stdio::null())
        .status()
        .context("cannot run tar")?;
    let right = unpack.wait()?.success();
    ensure!(right, "dpkg-deb does not unpack {}", deb.display());
    Ok(())
}

/// The agent, for the guest's libraries.
fn compile_agent(userland: &Path) -> Result<PathBuf> {
    let (root, agent) = (userland.join("root"), userland.join("roxe-agent"));
    let mut gcc = child::command("gcc");
    gcc.args(["-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror", "-o"])
        .arg(&agent)
        .arg("-I")
        .arg(root.join("usr/include"))
        .arg(workspace::root().join(SOURCES).join("agent.c"))
        .arg(root.join(LIBRARIES).join("libibverbs.so.1"))
        // What libibverbs needs is in the guest.
        .arg("-Wl,--allow-shlib-undefined");
    let Heard { success, output } =
        Listener { name: "gcc".to_owned(), verbose: false }.hear(gcc)?;
    ensure!(success, "{output}\nthe agent does not compile");
    Ok(agent)
}

fn initrd(folder: &Path, root: &Path, agent: &Path) -> Result<Vec<u8>> {
    let mut archive = Archive::default();
    for path in ["proc", "sys", "dev", "tmp", "bin", "usr/bin", "var/run"] {
        archive.folder(path);
    }
    let sources = workspace::root().join(SOURCES);
    archive.file("init", 0o755, &fs::read(sources.join("init.sh"))?);
    archive.file("usr/bin/roxe-kit", 0o755, &fs::read(sources.join("kit.sh"))?);
    archive.file("usr/bin/roxe-agent", 0o755, &fs::read(agent)?);
    archive.file("bin/busybox", 0o755, &fs::read(find(root, "busybox")?)?);
    for applet in APPLETS {
        archive.link(&format!("bin/{applet}"), "busybox");
    }
    for program in PROGRAMS {
        archive.file(&format!("usr/bin/{program}"), 0o755, &fs::read(find(root, program)?)?);
    }
    for entry in fs::read_dir(folder.join("modules"))? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        archive.file(&format!("lib/modules/{name}"), 0o644, &fs::read(&path)?);
    }
    let mut libraries = Vec::new();
    for place in [LIBRARIES, "lib/x86_64-linux-gnu", "usr/lib/x86_64-linux-gnu/libibverbs"] {
        libraries.extend(shared_libraries(&root.join(place), place)?);
    }
    for (place, path) in libraries {
        // Links become files: the packages' folders are joined here.
        archive.file(
            &place.replace("lib/x86_64", "usr/lib/x86_64").replace("usr/usr", "usr"),
            0o755,
            &fs::read(path)?,
        );
    }
    let loader = [LIBRARIES, "lib/x86_64-linux-gnu"]
        .map(|place| root.join(place).join("ld-linux-x86-64.so.2"));
    let loader = loader.iter().find(|path| path.exists()).context("no ld-linux-x86-64.so.2")?;
    archive.file("lib64/ld-linux-x86-64.so.2", 0o755, &fs::read(loader)?);
    archive.file("etc/libibverbs.d/rxe.driver", 0o644, b"driver rxe\n");
    Ok(archive.finish())
}

/// Shared libraries in a folder: where they shall be, and where they are.
fn shared_libraries(folder: &Path, place: &str) -> Result<Vec<(String, PathBuf)>> {
    let Ok(entries) = fs::read_dir(folder) else { return Ok(Vec::new()) };
    let mut found = Vec::new();
    for entry in entries {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        // Of the providers only that of the soft adapter.
        let provider = place.ends_with("libibverbs") && !name.starts_with("librxe");
        let is_library =
            name.contains(".so.") || name.starts_with("librxe") && name.ends_with(".so");
        if is_library && !provider && path.is_file() {
            found.push((format!("{place}/{name}"), path));
        }
    }
    Ok(found)
}

/// A program of the unpacked packages.
fn find(root: &Path, program: &str) -> Result<PathBuf> {
    let places = ["usr/bin", "bin", "usr/sbin", "sbin"];
    let found = places.iter().map(|place| root.join(place).join(program)).find(|path| {
        let is_program = |it: fs::Metadata| it.is_file() && it.permissions().mode() & 0o111 != 0;
        fs::metadata(path).is_ok_and(is_program)
    });
    found.with_context(|| format!("the packages have no program {program}"))
}

fn apt_get() -> Command {
    let mut command = child::command("apt-get");
    command
        .args(["-qq", "-o", "Debug::NoLocking=1", "-o", "APT::Sandbox::User=root"])
        .env("DEBIAN_FRONTEND", "noninteractive");
    command
}

fn hear_apt(command: Command) -> Result<()> {
    let Heard { success, output } =
        Listener { name: "apt".to_owned(), verbose: false }.hear(command)?;
    if success {
        return Ok(());
    }
    let text = format!("{}\na guest cannot be built: apt gives no packages", output.trim_end());
    Err(Stop::Missing(text).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_is_made_anew_when_the_list_that_it_is_made_of_is_another() {
        let place = std::env::temp_dir().join(format!("roxe-guest-{}", std::process::id()));
        let folder = place.join("modules");
        let made_of = |list: &str| {
            unpacked(&folder, list, || {
                fs::create_dir_all(&folder)?;
                Ok(fs::write(folder.join("order"), list)?)
            })
            .unwrap();
            fs::read_to_string(folder.join("order")).unwrap()
        };
        fs::create_dir_all(&place).unwrap();
        assert_eq!(made_of("a b"), "a b");
        fs::write(folder.join("order"), "as it was").unwrap();
        assert_eq!(made_of("a b"), "as it was");
        assert_eq!(made_of("a b c"), "a b c");
        fs::remove_file(folder.with_extension("list")).unwrap();
        assert_eq!(made_of("a b"), "a b");
        fs::remove_dir_all(place).unwrap();
    }

    #[test]
    fn the_newest_stock_kernel_is_taken() {
        let search = "linux-image-6.12.100+deb12-amd64 - Linux 6.12 (signed)\n\
                      linux-image-6.12.117+deb12-amd64 - Linux 6.12 (signed)\n\
                      linux-image-6.12.118+deb12-cloud-amd64 - for clouds\n\
                      linux-image-6.12.119+deb12-rt-amd64 - PREEMPT_RT\n\
                      linux-image-6.12.99+deb12-amd64 - Linux 6.12 (signed)\n";
        let newest = Some("linux-image-6.12.117+deb12-amd64".to_owned());
        assert_eq!(choose_kernel(search), newest);
        assert_eq!(choose_kernel(""), None);
    }
}
