//! Making, changing and destroying the objects of a device: the verbs that are not on the data
//! path, one family a file; what all of them share is here.
//!
//! IBA vol 1 §11.2. An object that others use cannot be destroyed.

mod address;
mod completion_queue;
mod memory;
mod queue_pair;
mod receive_queue;

use std::fmt;

use roxe_transport::qp_state::ModifyError;
use roxe_wire::Mtu;

use crate::address_handle::AddressError;
use crate::completion_queue::ResizeError;
use crate::counters::Counters;
use crate::device::Device;
use crate::gid_table::{GidError, GidTable};
use crate::host_memory::HostMemory;
use crate::limits::Limits;
use crate::memory::MemoryError;
use crate::multicast::MulticastError;
use crate::path::Paths;
use crate::protection_domain::{Pd, PdError};
use crate::queue_pair_numbers::QpnError;
use crate::receive_queue::ModifyError as ReceiveQueueError;
use crate::tables::Tables;
use crate::users::InUse;

pub use queue_pair::QueuePairInfo;
pub use receive_queue::ReceiveQueueInfo;

/// Why an object was not made, changed or destroyed: the caller's mistake, or a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum VerbError {
    /// No such object. `EINVAL`.
    NoSuchObject,
    /// A value is out of range. `EINVAL`.
    Invalid(&'static str),
    /// The path MTU is more than the port's. `EINVAL`.
    PathMtu {
        /// What was wanted.
        path: Mtu,
        /// What the port has.
        port: Mtu,
    },
    /// A limit of the device is reached. `ENOMEM`.
    Limit(&'static str),
    /// Others use the object. `EBUSY`.
    InUse(InUse),
    /// A protection domain.
    Pd(PdError),
    /// Memory.
    Memory(MemoryError),
    /// A step of a queue pair.
    Modify(ModifyError),
    /// An address.
    Address(AddressError),
    /// A GID.
    Gid(GidError),
    /// A multicast group.
    Multicast(MulticastError),
    /// A queue pair number.
    Number(QpnError),
    /// A completion queue's new size.
    Resize(ResizeError),
    /// A shared receive queue's change.
    ReceiveQueue(ReceiveQueueError),
}

macro_rules! from_error {
    ($($variant:ident($error:ty)),* $(,)?) => {
        $(impl From<$error> for VerbError {
            fn from(error: $error) -> Self {
                Self::$variant(error)
            }
        })*

        impl fmt::Display for VerbError {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match self {
                    Self::NoSuchObject => f.write_str("no such object"),
                    Self::Invalid(what) => write!(f, "{what} is out of range"),
                    Self::PathMtu { path, port } => write!(
                        f,
                        "path MTU {} is more than {}, the port's: `roxe doctor` says what the \
                         interface lacks for more",
                        path.bytes(),
                        port.bytes(),
                    ),
                    Self::Limit(what) => write!(f, "the device has no room for more: {what}"),
                    $(Self::$variant(error) => error.fmt(f),)*
                }
            }
        }
    };
}

from_error!(
    InUse(InUse),
    Pd(PdError),
    Memory(MemoryError),
    Modify(ModifyError),
    Address(AddressError),
    Gid(GidError),
    Multicast(MulticastError),
    Number(QpnError),
    Resize(ResizeError),
    ReceiveQueue(ReceiveQueueError),
);

impl std::error::Error for VerbError {}

impl<H: HostMemory> Device<H> {
    /// How much of everything there can be.
    pub const fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Everything that was counted.
    pub const fn counters(&self) -> &Counters {
        &self.tables.counters
    }

    /// The memory behind regions.
    pub const fn host(&self) -> &H {
        &self.tables.host
    }

    /// The memory behind regions.
    pub const fn host_mut(&mut self) -> &mut H {
        &mut self.tables.host
    }

    /// The addresses of the port.
    pub const fn gids(&self) -> &GidTable {
        &self.tables.gids
    }

    /// All paths, for whoever frames packets.
    pub const fn paths(&self) -> &Paths {
        &self.tables.paths
    }

    /// `ibv_alloc_pd`.
    ///
    /// # Errors
    /// [`VerbError::Pd`].
    pub fn alloc_pd(&mut self) -> Result<Pd, VerbError> {
        Ok(self.tables.pds.allocate()?)
    }

    /// `ibv_dealloc_pd`.
    ///
    /// # Errors
    /// [`VerbError::Pd`]; also while something belongs to it.
    pub fn dealloc_pd(&mut self, pd: Pd) -> Result<(), VerbError> {
        Ok(self.tables.pds.deallocate(pd)?)
    }

    /// Makes something that belongs to a protection domain.
    fn in_domain<T>(
        &mut self,
        pd: Pd,
        make: impl FnOnce(&mut Tables<H>) -> Result<T, VerbError>,
    ) -> Result<T, VerbError> {
        self.tables.pds.acquire(pd)?;
        let made = make(&mut self.tables);
        if made.is_err() {
            self.tables.pds.release(pd);
        }
        made
    }
}
