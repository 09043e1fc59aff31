//! Address handles: where datagrams go.

use std::sync::Arc;

use roxe_device::address_handle::AddressVector;
use roxe_transport::work::{DatagramTarget, PathId};
use roxe_wire::{QKey, Qpn};

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
        let ethernet = context.ethernet(vector)?;
        let path = context.with(|driver| {
            let path = driver.device.create_address_handle(domain.pd(), vector)?;
            driver.set_ethernet(path, ethernet);
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
