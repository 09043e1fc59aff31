//! Network namespaces without names: they go with the last descriptor, thread and process in them,
//! so that a test leaves nothing behind however it ends, and any number of tests run side by side.

#![allow(dead_code, reason = "each user takes what it needs")]
#![allow(unsafe_code, reason = "a thread leaves its namespace")]

use std::fs::File;
use std::io;
use std::net::UdpSocket;
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::process::Command;
use std::thread;
use std::time::Duration;

use rustix::thread::{LinkNameSpaceType, UnshareFlags, move_into_link_name_space, unshare_unsafe};

pub(crate) mod switch;

/// A network namespace.
pub(crate) struct Namespace(File);

impl Namespace {
    /// A new one, in which only loopback is there, and up.
    pub(crate) fn new() -> Self {
        let fresh = thread::spawn(|| {
            // SAFETY: what is unshared is not the table of file descriptors.
            unsafe { unshare_unsafe(UnshareFlags::NEWNET) }.expect("root may make a namespace");
            File::open("/proc/thread-self/ns/net").expect("a thread has a namespace")
        });
        let namespace = Self(fresh.join().expect("the thread does not panic"));
        namespace.ip("link set lo up");
        namespace
    }

    /// Runs something in the namespace, on a thread of its own.
    pub(crate) fn run<R: Send>(&self, run: impl FnOnce() -> R + Send) -> R {
        thread::scope(|scope| {
            let inside = scope.spawn(|| {
                move_into_link_name_space(self.0.as_fd(), Some(LinkNameSpaceType::Network))
                    .expect("root may enter a namespace");
                run()
            });
            inside.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }

    /// Runs `ip` in the namespace; says what it printed.
    pub(crate) fn ip(&self, arguments: &str) -> String {
        self.command("ip", arguments)
    }

    /// Runs a program in the namespace; says what it printed.
    pub(crate) fn command(&self, program: &str, arguments: &str) -> String {
        let output = self
            .run(|| Command::new(program).args(arguments.split_whitespace()).output())
            .unwrap_or_else(|error| {
                panic!("{program} (apt-get install iproute2 ethtool): {error}")
            });
        let [said, complained] = [output.stdout, output.stderr]
            .map(|bytes| String::from_utf8(bytes).expect("it prints text"));
        assert!(output.status.success(), "{program} {arguments}: {complained}");
        said
    }

    /// How another process finds it.
    pub(crate) fn path(&self) -> String {
        format!("/proc/{}/fd/{}", std::process::id(), self.0.as_raw_fd())
    }
}

/// Two namespaces joined by a cable: `va` in the first, 192.0.2.1 and fd00::1, MAC 02::0a; `vb` in
/// the second, 192.0.2.2 and fd00::2, MAC 02::0b.
pub(crate) struct Cable {
    pub(crate) a: Namespace,
    pub(crate) b: Namespace,
}

impl Cable {
    /// A cable whose ends have this MTU.
    pub(crate) fn new(mtu: u32) -> Self {
        let cable = Self { a: Namespace::new(), b: Namespace::new() };
        cable.a.ip(&format!(
            "link add va mtu {mtu} address 02:00:00:00:00:0a type veth \
             peer name vb mtu {mtu} address 02:00:00:00:00:0b netns {}",
            cable.b.path()
        ));
        for (end, name, number) in [(&cable.a, "va", 1), (&cable.b, "vb", 2)] {
            end.ip(&format!("address add 192.0.2.{number}/24 dev {name}"));
            end.ip(&format!("address add fd00::{number}/64 dev {name} nodad"));
            end.ip(&format!("link set {name} up"));
        }
        cable
    }

    /// Waits until one end has found the other over IPv6. An interface that has just come up does
    /// not hear yet that it is asked for, and who asks asks again a second later.
    ///
    /// # Panics
    /// If it has not in ten seconds.
    pub(crate) fn wait_for_ipv6(&self) {
        let finds = || -> io::Result<bool> {
            let socket = UdpSocket::bind("[fd00::1]:0")?;
            socket.connect("[fd00::2]:9")?;
            socket.set_read_timeout(Some(Duration::from_millis(20)))?;
            // Nobody has that port, which only the other end can say.
            let is_refused = |_| {
                let asked = socket.send(&[0]).and_then(|_| socket.recv(&mut [0]));
                asked.is_err_and(|why| why.kind() == io::ErrorKind::ConnectionRefused)
            };
            Ok((0..500).any(is_refused))
        };
        let found = self.a.run(finds);
        assert!(matches!(found, Ok(true)), "fd00::2 is not found: {found:?}");
    }
}

/// Whether namespaces can be made. If not, says what is missing; then a test has nothing to do.
pub(crate) fn is_root() -> bool {
    let is_root = rustix::process::geteuid().is_root();
    if !is_root {
        eprintln!("skipped: needs root for network namespaces and AF_XDP; run it by sudo -E");
    }
    is_root
}
