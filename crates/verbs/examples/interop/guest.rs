//! The guest, and the network that it shares with roxe.

use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant as Clock};

use crate::Outcome;
use crate::agent::{self, Agent};
use crate::namespace::Namespace;

/// What the guest's interface, the bridge and ours carry: path MTU 4096 with all headers.
const MTU: u32 = 4200;

/// The longest path MTU that has room in it.
#[allow(dead_code, reason = "scripts have a path MTU of their own")]
pub(crate) const PATH_MTU: u64 = 4096;

/// The guest's address on the way that is not under test.
pub(crate) const HOST: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 10, 0, 2));

/// Where its agent listens.
pub(crate) const AGENT: SocketAddr = SocketAddr::new(HOST, agent::PORT);

/// Our interface.
pub(crate) const INTERFACE: &str = "roxe0";

/// It boots in ten seconds on a quiet machine.
const BOOT: Duration = Duration::from_secs(180);

/// Nothing keeps a kernel that is well from a program for so long, on a busy machine either.
const HANGS: Duration = Duration::from_secs(30);

/// A guest that runs. It ends with this program, however that ends: its process dies with the
/// thread that started it, the namespaces go with the last process in them.
pub(crate) struct Guest {
    child: Child,
    /// Takes commands for the machine itself.
    monitor: Mutex<ChildStdin>,
    console: PathBuf,
    /// The guest's kernel.
    pub(crate) kernel: String,
    /// How long it took to boot.
    pub(crate) booted: Duration,
}

impl Guest {
    /// Boots a guest and runs something where roxe's interface is.
    pub(crate) fn with<R: Send>(
        kernel: &Path,
        initrd: &Path,
        folder: &Path,
        run: impl FnOnce(&mut Self) -> Outcome<R> + Send,
    ) -> Outcome<R> {
        let (switch, host) = (Namespace::new(), Namespace::new());
        lay_cables(&switch, &host);
        // The thread that starts the guest lasts as long as all.
        switch.run(|| {
            let start = Clock::now();
            let console = folder.join("console.log");
            let mut child = qemu(kernel, initrd, &console)?;
            let monitor = child.stdin.take().ok_or("QEMU has no monitor")?;
            let mut guest = Self {
                child,
                monitor: Mutex::new(monitor),
                console,
                kernel: String::new(),
                booted: Duration::ZERO,
            };
            host.run(|| {
                guest.wait_for_agent()?;
                guest.booted = start.elapsed();
                run(&mut guest)
            })
        })
    }

    /// Until its adapter can be opened.
    fn wait_for_agent(&mut self) -> Outcome {
        let start = Clock::now();
        let mut why = String::new();
        while start.elapsed() < BOOT {
            if let Some(status) = self.child.try_wait()? {
                return Err(format!("QEMU ended: {status}\n{}", self.last_words()).into());
            }
            let asked = Agent::connect(AGENT).and_then(|mut agent| {
                self.kernel = agent.ask("hello")?.text("kernel")?.to_owned();
                agent.ask("open dev=rxe0")
            });
            match asked {
                Ok(_) => return Ok(()),
                Err(error) => why = error.to_string(),
            }
            thread::sleep(Duration::from_millis(200));
        }
        Err(format!("the guest does not come up: {why}\n{}", self.last_words()).into())
    }

    /// Resets the guest as a loss of power would, whatever its kernel does, and waits until its
    /// adapter can be opened again.
    pub(crate) fn reset(&self) -> Outcome {
        const WHICH: &str = "cat /proc/sys/kernel/random/boot_id";
        let which = || self.shell_for(Duration::from_secs(2), WHICH).ok();
        let before = which();
        self.monitor.lock().map_err(|_| "a thread panicked")?.write_all(b"system_reset\n")?;
        let start = Clock::now();
        while start.elapsed() < BOOT {
            let now = which();
            let opened = |mut agent: Agent| agent.ask("open dev=rxe0");
            if now.is_some() && now != before && Agent::connect(AGENT).and_then(opened).is_ok() {
                return Ok(());
            }
            thread::sleep(Duration::from_millis(200));
        }
        Err(format!("the guest does not come up again\n{}", self.last_words()).into())
    }

    /// Whether its kernel runs no program any more.
    pub(crate) fn hangs(&self) -> bool {
        let start = Clock::now();
        while start.elapsed() < HANGS {
            if self.shell_for(HANGS, "true").is_ok() {
                return false;
            }
        }
        true
    }

    /// The end of what the guest's console shows.
    pub(crate) fn last_words(&self) -> String {
        let text = fs::read(&self.console).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(20)..].join("\n")
    }

    /// Runs a shell script in the guest; says what it printed.
    pub(crate) fn shell(&self, script: &str) -> Outcome<String> {
        self.shell_for(Duration::from_secs(60), script)
    }

    /// The same, if it does not take longer.
    pub(crate) fn shell_for(&self, patience: Duration, script: &str) -> Outcome<String> {
        let mut stream = post(script)?;
        stream.set_read_timeout(Some(patience))?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        let (_, said) = answer.split_once("\r\n\r\n").ok_or("the guest gave no answer")?;
        ended(said, script)
    }
}

/// What a script or a program printed, behind which its exit status stands.
pub(crate) fn ended(said: &str, script: &str) -> Outcome<String> {
    let (said, status) =
        said.rsplit_once("status ").ok_or_else(|| format!("{script} has no end"))?;
    match status.trim() {
        "0" => Ok(said.to_owned()),
        status => Err(format!("at the peer, exit status {status}: {script}: {said}").into()),
    }
}

/// Hands the guest a script.
fn post(script: &str) -> Outcome<TcpStream> {
    let mut stream = TcpStream::connect_timeout(&(HOST, 7000).into(), Duration::from_secs(3))?;
    let len = script.len();
    write!(stream, "POST /cgi-bin/run HTTP/1.0\r\nContent-Length: {len}\r\n\r\n{script}")?;
    Ok(stream)
}

impl Drop for Guest {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A bridge with a tap for the guest and a cable to the host, which has the addresses.
fn lay_cables(switch: &Namespace, host: &Namespace) {
    switch.ip(&format!("link add br0 mtu {MTU} type bridge mcast_snooping 0"));
    switch.ip("tuntap add tap0 mode tap");
    switch.ip(&format!(
        "link add up0 mtu {MTU} type veth peer name {INTERFACE} mtu {MTU} netns {}",
        host.path()
    ));
    // A burst of answers waits here for a guest that is slow.
    switch.ip(&format!("link set tap0 mtu {MTU} txqueuelen 20000"));
    for end in ["tap0", "up0"] {
        switch.ip(&format!("link set {end} master br0 up"));
    }
    // A tag has to be in the frame when XDP sees that.
    switch.command("ethtool", "-K up0 txvlan off");
    switch.ip("link set br0 up");
    host.ip(&format!("address add 10.10.0.1/24 dev {INTERFACE}"));
    host.ip(&format!("address add fd10::1/64 dev {INTERFACE} nodad"));
    host.ip(&format!("link set {INTERFACE} up"));
}

fn qemu(kernel: &Path, initrd: &Path, console: &Path) -> Outcome<Child> {
    // Without a filter of its own the guest hears of a group as soon as it has joined.
    let device = format!(
        "virtio-net-pci,netdev=n0,mac=52:54:00:10:00:02,romfile=,csum=off,guest_csum=off,gso=off,\
         guest_tso4=off,guest_tso6=off,guest_ufo=off,ctrl_rx=off,host_mtu={MTU}"
    );
    let append = format!(
        "console=ttyS0 quiet panic=-1 mitigations=off no_timer_check net.ifnames=0 \
         roxe.ip={HOST}/24 roxe.ip6=fd10::2/64 roxe.vlan=10.10.100.2/24 roxe.mtu={MTU}"
    );
    let said = File::create(console.with_extension("qemu"))?;
    let child = Command::new("setpriv")
        .args(["--pdeathsig", "KILL", "--", "qemu-system-x86_64"])
        .args(["-accel", "tcg", "-cpu", "max", "-M", "q35", "-m", "384", "-smp", "1"])
        .args(["-display", "none", "-monitor", "stdio"])
        .args(["-serial", &format!("file:{}", console.display())])
        .arg("-kernel")
        .arg(kernel)
        .arg("-initrd")
        .arg(initrd)
        .args(["-append", &append, "-device", &device])
        .args(["-netdev", "tap,id=n0,ifname=tap0,script=no,downscript=no"])
        .stdin(Stdio::piped())
        .stdout(said.try_clone()?)
        .stderr(said)
        .spawn()
        .map_err(|why| format!("cannot run QEMU (apt-get install qemu-system-x86): {why}"))?;
    Ok(child)
}
