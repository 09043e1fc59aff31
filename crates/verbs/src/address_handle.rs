//! Address handles: where datagrams go.

use std::sync::Arc;

use roxe_device::address_handle::AddressVector;
use roxe_device::gid_table::GidEntry;
use roxe_transport::work::{DatagramTarget, PathId};
use roxe_wire::{Gid, Grh, QKey, Qpn};

use crate::error::Error;
use crate::protection_domain::ProtectionDomain;

/// Where datagrams go: `ibv_ah`. Clones are the same handle; it goes with the last one, and
/// datagrams that were posted and not sent yet then fail.
#[derive(Clone)]
pub struct AddressHandle {
    inner: Arc<Inner>,
}

struct Inner {
    domain: ProtectionDomain,
    path: PathId,
}

impl AddressHandle {
    pub(crate) fn create(domain: &ProtectionDomain, vector: &AddressVector) -> Result<Self, Error> {
        let context = domain.context();
        let link = context.link(vector)?;
        let path = context.with(|driver| {
            let path = driver.device.create_address_handle(domain.pd(), vector)?;
            driver.set_link(path, link);
            Ok::<_, Error>(path)
        })?;
        Ok(Self { inner: Arc::new(Inner { domain: domain.clone(), path }) })
    }

    /// The queue pair with this number there. The key is the one that it asks for.
    pub fn target(&self, qpn: Qpn, q_key: QKey) -> DatagramTarget {
        DatagramTarget { path: self.inner.path, qpn, q_key }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        // It can only be gone already.
        let _ =
            self.domain.context().with(|driver| driver.device.destroy_address_handle(self.path));
    }
}

/// From the address that a datagram went to, or one of its family if it went to a group, back to
/// where it came from. The answer has its DSCP; that the network was congested is not answered.
pub(crate) fn to_sender(gids: &[(u32, GidEntry)], area: &Grh) -> Result<AddressVector, Error> {
    let header = area.ip_header().ok_or(Error::NoSender)?;
    let [own, sender] = [header.destination(), header.source()].map(Gid::from_ip);
    let here = gids.iter().find(|(_, entry)| entry.gid == own);
    let family = || gids.iter().find(|(_, entry)| entry.gid.is_ipv4() == sender.is_ipv4());
    let (index, _) = here.or_else(family).ok_or(Error::NoSender)?;
    let traffic_class = header.traffic_class().0 & !0b11;
    Ok(AddressVector { traffic_class, ..AddressVector::new(*index, sender) })
}
