//! How many objects there are: what `rdma resource show` tells of a device.

use crate::device::Device;
use crate::host_memory::HostMemory;

/// How many objects of each kind a device has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Resources {
    /// Protection domains.
    pub protection_domains: u32,
    /// Completion queues.
    pub completion_queues: u32,
    /// Queue pairs.
    pub queue_pairs: u32,
    /// Receive queues: shared ones, and one for each queue pair that has its own.
    pub receive_queues: u32,
    /// Memory regions.
    pub regions: u32,
    /// Memory windows.
    pub windows: u32,
    /// Address handles, and paths of connected queue pairs.
    pub paths: u32,
    /// Multicast groups with members here.
    pub groups: u32,
}

impl<H: HostMemory> Device<H> {
    /// How many objects there are now.
    pub fn resources(&self) -> Resources {
        let tables = &self.tables;
        Resources {
            protection_domains: tables.pds.len(),
            completion_queues: tables.completion_queues.len(),
            queue_pairs: self.queue_pairs.iter().count() as u32,
            receive_queues: tables.receive_queues.len(),
            regions: tables.memory.regions(),
            windows: tables.memory.windows(),
            paths: tables.paths.len(),
            groups: tables.groups.iter().count() as u32,
        }
    }
}
