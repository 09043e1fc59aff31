//! Ports of the RDMA CM on addresses that several processes of the host have, `host:` adapters.
//!
//! Each port of an address is a [`Name`] of the host, as long as somebody has it. A thread keeps
//! them, in a table of file descriptors of its own: so a child of `fork` has no part in them, and
//! does not keep the port of a parent that is gone, and they take no number that the program could
//! want. They go with the process, however it ends.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

use roxe_cm::PortSpace;
use roxe_net::host::{Name, Names, leave_descriptors};

/// What is reserved for an adapter on the whole host.
pub(super) struct HostPorts {
    /// Those of the adapter, which do not change.
    addresses: Vec<IpAddr>,
    names: Names,
    calls: Option<Sender<Call>>,
    keeper: Option<JoinHandle<()>>,
}

/// What the thread is to do, and whom it tells how that went.
struct Call {
    names: Vec<String>,
    takes: bool,
    done: Sender<io::Result<()>>,
}

impl HostPorts {
    /// For an adapter with these addresses, in the calling thread's network namespace.
    pub(super) fn open(addresses: Vec<IpAddr>) -> io::Result<Self> {
        let (calls, to_do) = channel();
        let keeper = std::thread::Builder::new()
            .name("roxe-ports".to_owned())
            .stack_size(STACK)
            .spawn(move || keep(&to_do))?;
        let (calls, keeper) = (Some(calls), Some(keeper));
        Ok(Self { addresses, names: Names::of_host()?, calls, keeper })
    }

    /// Reserves a port: an unspecified address is all of its family that the adapter has, which
    /// others' addresses have nothing to do with. False when another adapter has it.
    pub(super) fn take(&self, space: PortSpace, address: SocketAddr) -> io::Result<bool> {
        match self.call(space, address, true) {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => Ok(false),
            taken => taken.map(|()| true),
        }
    }

    /// Gives it back; it is free behind this.
    pub(super) fn release(&self, space: PortSpace, address: SocketAddr) {
        // A thread that is gone has nothing any more.
        let _ = self.call(space, address, false);
    }

    /// Whether some adapter of the host has a port at this address.
    pub(super) fn is_taken(&self, space: PortSpace, address: SocketAddr) -> bool {
        self.names.is_taken(&name(space, address))
    }

    fn call(&self, space: PortSpace, address: SocketAddr, takes: bool) -> io::Result<()> {
        let ip = address.ip();
        let is_meant =
            |own: &&IpAddr| **own == ip || ip.is_unspecified() && own.is_ipv4() == ip.is_ipv4();
        let named = |own: &IpAddr| name(space, SocketAddr::new(*own, address.port()));
        let names = self.addresses.iter().filter(is_meant).map(named).collect();
        let (done, answer) = channel();
        let gone = || io::Error::from(io::ErrorKind::BrokenPipe);
        let calls = self.calls.as_ref().ok_or_else(gone)?;
        calls.send(Call { names, takes, done }).map_err(|_| gone())?;
        answer.recv().map_err(|_| gone())?
    }
}

impl Drop for HostPorts {
    fn drop(&mut self) {
        self.calls = None;
        if let Some(keeper) = self.keeper.take() {
            let _ = keeper.join();
        }
    }
}

/// The thread.
#[allow(unsafe_code, reason = "a table of descriptors of one's own")]
fn keep(calls: &Receiver<Call>) {
    // SAFETY: names alone have descriptors here, and they stay here.
    unsafe { leave_descriptors() };
    let mut kept = HashMap::new();
    while let Ok(Call { names, takes, done }) = calls.recv() {
        let result = if takes { take_all(&mut kept, names) } else { release(&mut kept, &names) };
        // Who asked may be gone.
        let _ = done.send(result);
    }
}

/// Takes all of them, or none.
fn take_all(kept: &mut HashMap<String, Name>, names: Vec<String>) -> io::Result<()> {
    let taken = names.into_iter().map(|name| Ok((Name::take(&name)?, name)));
    let taken: Vec<_> = taken.collect::<io::Result<_>>()?;
    kept.extend(taken.into_iter().map(|(held, name)| (name, held)));
    Ok(())
}

fn release(kept: &mut HashMap<String, Name>, names: &[String]) -> io::Result<()> {
    names.iter().for_each(|name| drop(kept.remove(name)));
    Ok(())
}

fn name(space: PortSpace, address: SocketAddr) -> String {
    format!("roxe-port/{}/{address}", space.protocol())
}

/// Bytes of the thread's stack.
const STACK: usize = 256 * 1024;
