//! Guests, and the network: of one with roxe, or of two with each other.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Mutex, MutexGuard};
use std::thread;
use std::time::{Duration, Instant as Clock};

use crate::Outcome;
use crate::agent::{self, Agent};
use crate::namespace::Namespace;

/// What the guest's interface, the bridge and ours carry: path MTU 4096 with all headers.
const MTU: u32 = 4200;

/// The longest path MTU that has room in it.
pub(crate) const PATH_MTU: u64 = 4096;

/// What the interfaces of two guests carry: path MTU 2048 with all headers. With more than 3506
/// bytes virtio-net runs no XDP program in its driver.
const MTU_OF_TWO: u32 = 2304;

/// The processor of a guest: all that QEMU emulates.
const CPU: &str = "max";

/// That of two which are compared. CRC by PCLMULQDQ and copying by REP MOVSB, quick in hardware,
/// are emulated bit by bit and byte by byte: they would be most of what is measured.
const CPU_OF_TWO: &str = "max,pclmulqdq=off,erms=off,fsrm=off";

/// The address of the guest with this number.
const fn address(number: u8) -> Ipv4Addr {
    Ipv4Addr::new(10, 10, 0, number)
}

/// The number of the one guest, or of the first of two.
const FIRST: u8 = 2;

/// Where the agent of the one guest listens.
pub(crate) const AGENT: SocketAddr = SocketAddr::new(IpAddr::V4(address(FIRST)), agent::PORT);

/// Our interface.
pub(crate) const INTERFACE: &str = "roxe0";

/// It boots in ten seconds on a quiet machine.
const BOOT: Duration = Duration::from_secs(180);

/// How long a script takes, if nothing else is said.
const PATIENCE: Duration = Duration::from_secs(60);

/// Nothing keeps a kernel that is well from a program for so long, on a busy machine either.
const HANGS: Duration = Duration::from_secs(30);

/// A guest that runs. It ends with this program, however that ends: its process dies with the
/// thread that started it, the namespaces go with the last process in them.
pub(crate) struct Guest {
    machine: Running,
    /// Takes commands for the machine itself.
    monitor: ChildStdin,
    /// What its kernel calls this time that it runs.
    boot_id: Mutex<String>,
    console: PathBuf,
    /// Its address on the way that is not under test.
    pub(crate) address: Ipv4Addr,
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
            let machine = Machine { number: FIRST, mtu: MTU, cpu: CPU };
            let mut guest = Self::start(kernel, initrd, folder.join("console.log"), machine)?;
            host.run(|| {
                guest.wait_for_agent()?;
                guest.booted = start.elapsed();
                let outcome = run(&mut guest);
                // Warnings do not reach the console.
                if let Ok(said) = guest.shell("/bin/busybox dmesg") {
                    fs::write(folder.join("dmesg"), said)?;
                }
                outcome
            })
        })
    }

    /// Boots two guests on one bridge, and runs something beside them.
    #[allow(dead_code, reason = "only who compares two pairs of adapters has two")]
    pub(crate) fn pair<R: Send>(
        kernel: &Path,
        initrd: &Path,
        folder: &Path,
        run: impl FnOnce(&[Self; 2]) -> Outcome<R> + Send,
    ) -> Outcome<R> {
        let switch = Namespace::new();
        switch.ip(&format!("link add br0 mtu {MTU_OF_TWO} type bridge mcast_snooping 0"));
        switch.ip("address add 10.10.0.1/24 dev br0");
        switch.ip("link set br0 up");
        [FIRST, FIRST + 1].iter().for_each(|number| lay_tap(&switch, *number, MTU_OF_TWO));
        switch.run(|| {
            let start = Clock::now();
            let boot = |number| {
                let console = folder.join(format!("console-{number}.log"));
                let machine = Machine { number, mtu: MTU_OF_TWO, cpu: CPU_OF_TWO };
                Self::start(kernel, initrd, console, machine)
            };
            let mut guests = [boot(FIRST)?, boot(FIRST + 1)?];
            for guest in &mut guests {
                guest.wait_for_agent()?;
                guest.booted = start.elapsed();
            }
            run(&guests)
        })
    }

    /// Has a guest begin to boot.
    fn start(kernel: &Path, initrd: &Path, console: PathBuf, machine: Machine) -> Outcome<Self> {
        let address = address(machine.number);
        let mut machine = qemu(kernel, initrd, &console, machine)?;
        let monitor = machine.0.stdin.take().ok_or("QEMU has no monitor")?;
        let (kernel, boot_id, booted) = (String::new(), Mutex::default(), Duration::ZERO);
        Ok(Self { machine, monitor, boot_id, console, address, kernel, booted })
    }

    /// Until its adapter can be opened.
    fn wait_for_agent(&mut self) -> Outcome {
        let start = Clock::now();
        let mut why = String::new();
        while start.elapsed() < BOOT {
            if let Some(status) = self.machine.0.try_wait()? {
                return Err(format!("QEMU ended: {status}\n{}", self.last_words()).into());
            }
            let asked = self.agent().and_then(|mut agent| {
                self.kernel = agent.ask("hello")?.text("kernel")?.to_owned();
                agent.ask("open dev=rxe0")
            });
            match asked.and_then(|_| self.ask_boot_id(PATIENCE)) {
                Ok(boot_id) => {
                    *self.boot_id()? = boot_id;
                    return Ok(());
                }
                Err(error) => why = error.to_string(),
            }
            thread::sleep(Duration::from_millis(200));
        }
        Err(format!("the guest does not come up: {why}\n{}", self.last_words()).into())
    }

    fn agent(&self) -> Outcome<Agent> {
        Agent::connect((self.address, agent::PORT).into())
    }

    /// Resets the guest as a loss of power would, whatever its kernel does, and waits until its
    /// adapter can be opened again.
    pub(crate) fn reset(&self) -> Outcome {
        // It may have come again by itself meanwhile.
        let before = self.ask_boot_id(Duration::from_secs(2)).ok();
        let known = self.boot_id()?.clone();
        (&self.monitor).write_all(b"system_reset\n")?;
        let start = Clock::now();
        while start.elapsed() < BOOT {
            let now = self.ask_boot_id(Duration::from_secs(2));
            let now = now.ok().filter(|now| Some(now) != before.as_ref() && *now != known);
            let opened = |mut agent: Agent| agent.ask("open dev=rxe0");
            if let (Some(now), Ok(_)) = (now, self.agent().and_then(opened)) {
                *self.boot_id()? = now;
                return Ok(());
            }
            thread::sleep(Duration::from_millis(200));
        }
        Err(format!("the guest does not come up again\n{}", self.last_words()).into())
    }

    /// What has become of its kernel, if that runs no program any more, or is another one than was
    /// booted or reset: who panics comes again by itself.
    pub(crate) fn end(&self) -> Option<&'static str> {
        let start = Clock::now();
        while start.elapsed() < HANGS {
            if let Ok(now) = self.ask_boot_id(HANGS) {
                let is_same = self.boot_id().is_ok_and(|known| *known == now);
                return (!is_same).then_some("panicked");
            }
            thread::sleep(Duration::from_millis(200));
        }
        Some("ran no program for 30 s")
    }

    fn ask_boot_id(&self, patience: Duration) -> Outcome<String> {
        self.shell_for(patience, "cat /proc/sys/kernel/random/boot_id")
    }

    fn boot_id(&self) -> Outcome<MutexGuard<'_, String>> {
        self.boot_id.lock().map_err(|_| "a thread panicked".into())
    }

    /// Where what it shows is written.
    #[allow(dead_code, reason = "only who has a guest that stays looks there")]
    pub(crate) fn console(&self) -> &Path {
        &self.console
    }

    /// Waits until it ends, which it does not by itself; says how.
    #[allow(dead_code, reason = "only who has a guest that stays waits for it")]
    pub(crate) fn wait(&mut self) -> String {
        match self.machine.0.wait() {
            Ok(status) => format!("QEMU ended: {status}\n{}", self.last_words()),
            Err(why) => format!("QEMU is gone: {why}"),
        }
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
        self.shell_for(PATIENCE, script)
    }

    /// The same, if it does not take longer.
    pub(crate) fn shell_for(&self, patience: Duration, script: &str) -> Outcome<String> {
        let mut stream = self.post(script)?;
        stream.set_read_timeout(Some(patience))?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        let (_, said) = answer.split_once("\r\n\r\n").ok_or("the guest gave no answer")?;
        ended(said, script)
    }

    /// Hands the guest a script.
    fn post(&self, script: &str) -> Outcome<TcpStream> {
        let at = (self.address, 7000).into();
        let mut stream = TcpStream::connect_timeout(&at, Duration::from_secs(3))?;
        let len = script.len();
        write!(stream, "POST /cgi-bin/run HTTP/1.0\r\nContent-Length: {len}\r\n\r\n{script}")?;
        Ok(stream)
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

/// A program that ends with whoever has this, and with the thread that started it.
pub(crate) struct Running(pub(crate) Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A command that dies with the thread that starts it, however that ends.
pub(crate) fn mortal(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL", "--"]).arg(program);
    command
}

/// A bridge with a tap for the guest and a cable to the host, which has the addresses.
fn lay_cables(switch: &Namespace, host: &Namespace) {
    switch.ip(&format!("link add br0 mtu {MTU} type bridge mcast_snooping 0"));
    switch.ip(&format!(
        "link add up0 mtu {MTU} type veth peer name {INTERFACE} mtu {MTU} netns {}",
        host.path()
    ));
    lay_tap(switch, FIRST, MTU);
    switch.ip("link set up0 master br0 up");
    // A tag has to be in the frame when XDP sees that.
    switch.command("ethtool", "-K up0 txvlan off");
    switch.ip("link set br0 up");
    host.ip(&format!("address add 10.10.0.1/24 dev {INTERFACE}"));
    host.ip(&format!("address add fd10::1/64 dev {INTERFACE} nodad"));
    host.ip(&format!("link set {INTERFACE} up"));
}

/// A tap for a guest, on the bridge.
fn lay_tap(switch: &Namespace, number: u8, mtu: u32) {
    switch.ip(&format!("tuntap add tap{number} mode tap"));
    // A burst of answers waits here for a guest that is slow.
    switch.ip(&format!("link set tap{number} mtu {mtu} txqueuelen 20000 master br0 up"));
}

/// In what guests differ.
#[derive(Clone, Copy)]
struct Machine {
    /// The last part of its addresses.
    number: u8,
    mtu: u32,
    cpu: &'static str,
}

fn qemu(kernel: &Path, initrd: &Path, console: &Path, machine: Machine) -> Outcome<Running> {
    let Machine { number, mtu, cpu } = machine;
    // Without a filter of its own the guest hears of a group as soon as it has joined.
    let device = format!(
        "virtio-net-pci,netdev=n0,mac=52:54:00:10:00:{number:02x},romfile=,csum=off,\
         guest_csum=off,gso=off,guest_tso4=off,guest_tso6=off,guest_ufo=off,ctrl_rx=off,\
         host_mtu={mtu}"
    );
    let append = format!(
        "console=ttyS0 quiet panic=-1 mitigations=off no_timer_check net.ifnames=0 \
         roxe.ip={}/24 roxe.ip6=fd10::{number}/64 roxe.vlan=10.10.100.{number}/24 roxe.mtu={mtu}",
        address(number)
    );
    let said = File::create(console.with_extension("qemu"))?;
    let started = mortal("qemu-system-x86_64")
        .args(["-accel", "tcg", "-cpu", cpu, "-M", "q35", "-m", "384", "-smp", "1"])
        .args(["-display", "none", "-monitor", "stdio"])
        .args(["-serial", &format!("file:{}", console.display())])
        .arg("-kernel")
        .arg(kernel)
        .arg("-initrd")
        .arg(initrd)
        .args(["-append", &append, "-device", &device])
        .args(["-netdev", &format!("tap,id=n0,ifname=tap{number},script=no,downscript=no")])
        .stdin(Stdio::piped())
        .stdout(said.try_clone()?)
        .stderr(said)
        .spawn()
        .map_err(|why| format!("cannot run QEMU (apt-get install qemu-system-x86): {why}"))?;
    Ok(Running(started))
}
