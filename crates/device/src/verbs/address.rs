//! Addresses of the port, address handles, multicast groups.

use roxe_transport::qp_state::ServiceType;
use roxe_transport::work::PathId;
use roxe_wire::{Gid, Qpn, source_port};

use super::VerbError;
use crate::address_handle::AddressVector;
use crate::congestion::with_ect;
use crate::device::Device;
use crate::gid_table::GidEntry;
use crate::host_memory::HostMemory;
use crate::multicast::MulticastGroups;
use crate::path::Path;
use crate::protection_domain::Pd;

impl<H: HostMemory> Device<H> {
    /// The port has one more address.
    ///
    /// # Errors
    /// [`VerbError::Gid`].
    pub fn add_gid(&mut self, entry: GidEntry) -> Result<u32, VerbError> {
        Ok(self.tables.gids.add(entry)?)
    }

    /// The port lost an address. Queue pairs that use it keep their path.
    //= BC-123
    pub fn remove_gid(&mut self, index: u32) -> Option<GidEntry> {
        self.tables.gids.remove(index)
    }

    /// `ibv_create_ah`: where datagrams may go.
    ///
    /// # Errors
    /// [`VerbError::Pd`], [`VerbError::Address`], [`VerbError::Limit`].
    pub fn create_address_handle(
        &mut self,
        pd: Pd,
        vector: &AddressVector,
    ) -> Result<PathId, VerbError> {
        let port = source_port::from_flow_label(vector.flow_label);
        let mut addressing = vector.resolve(&self.tables.gids, port)?;
        if self.congestion.control.wants_marks() {
            addressing.traffic_class = with_ect(addressing.traffic_class);
        }
        let path = Path { vector: *vector, addressing, pd: Some(pd) };
        self.in_domain(pd, |tables| {
            tables.paths.add(path).ok_or(VerbError::Limit("address handles"))
        })
    }

    /// `ibv_destroy_ah`.
    ///
    /// # Errors
    /// [`VerbError::NoSuchObject`].
    pub fn destroy_address_handle(&mut self, id: PathId) -> Result<(), VerbError> {
        let pd = self.tables.paths.get(id).and_then(|path| path.pd);
        let pd = pd.ok_or(VerbError::NoSuchObject)?;
        self.tables.paths.remove(id);
        self.tables.pds.release(pd);
        Ok(())
    }

    /// `ibv_attach_mcast`.
    ///
    /// # Errors
    /// [`VerbError::Multicast`]; [`VerbError::Invalid`] unless the queue pair is for datagrams.
    pub fn attach_multicast(&mut self, group: Gid, qpn: Qpn) -> Result<(), VerbError> {
        let slot = self.slot_of(qpn).ok_or(VerbError::NoSuchObject)?;
        if slot.qp.service() != ServiceType::Ud {
            return Err(VerbError::Invalid("qp_type"));
        }
        self.tables.groups.attach(group, qpn)?;
        Ok(())
    }

    /// `ibv_detach_mcast`.
    ///
    /// # Errors
    /// [`VerbError::Multicast`].
    pub fn detach_multicast(&mut self, group: Gid, qpn: Qpn) -> Result<(), VerbError> {
        self.tables.groups.detach(group, qpn)?;
        Ok(())
    }

    /// Takes a queue pair out of all its groups, so that it can be destroyed.
    pub fn detach_multicasts(&mut self, qpn: Qpn) {
        self.tables.groups.detach_all(qpn);
    }

    /// All groups and their members.
    pub const fn multicast(&self) -> &MulticastGroups {
        &self.tables.groups
    }
}
