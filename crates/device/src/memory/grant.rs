//! What a valid key opens, whatever stands behind it, a region or a window.

use roxe_transport::adapter::{Access, KeyViolation};
use roxe_transport::work::{AccessFlags, Span};
use roxe_wire::Qpn;

use crate::host_memory::HostRegion;
use crate::protection_domain::Pd;

/// Where checked bytes begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostPlace {
    /// In which memory.
    pub region: HostRegion,
    /// How many bytes from its beginning.
    pub offset: u64,
}

/// What a valid key opens: some bytes, to some queue pairs, for some uses.
#[derive(Clone, Copy, Debug)]
pub(super) struct Grant {
    /// The address of the first byte.
    pub(super) start: u64,
    /// Bytes. `start + len` is at most 2⁶⁴.
    pub(super) len: u64,
    /// Where the first byte is in the host's memory.
    pub(super) offset: u64,
    pub(super) host: HostRegion,
    pub(super) pd: Pd,
    pub(super) access: AccessFlags,
    pub(super) kind: GrantKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum GrantKind {
    Region,
    /// A window of type 1.
    Window,
    /// A window of type 2B, and the queue pair it was bound on.
    WindowOf(Qpn),
}

impl Grant {
    /// Regions and type 1 windows are for their protection domain, a type 2B window besides for one
    /// queue pair.
    //= 05-5.6, R37
    pub(super) fn check_domain(&self, pd: Pd, qpn: Qpn) -> Result<(), KeyViolation> {
        let other_qp = matches!(self.kind, GrantKind::WindowOf(bound) if bound != qpn);
        if self.pd != pd || other_qp {
            return Err(KeyViolation::WrongDomain);
        }
        Ok(())
    }

    /// The right that each request needs.
    //= 05-5.6, R19
    pub(super) fn check_right(&self, access: Access) -> Result<(), KeyViolation> {
        if self.access.contain(access.right()) { Ok(()) } else { Err(KeyViolation::AccessDenied) }
    }

    /// Where the bytes of a span are, if all of them lie inside. Differences only: a sum could
    /// overflow.
    //= 05-5.6, R18, BC-084
    pub(super) fn place(&self, span: Span) -> Result<HostPlace, KeyViolation> {
        match span.va.checked_sub(self.start) {
            Some(at) if at <= self.len && span.len <= self.len - at => {
                Ok(HostPlace { region: self.host, offset: self.offset + at })
            }
            _ => Err(KeyViolation::OutsideRegion),
        }
    }

    pub(super) fn first_byte(&self) -> HostPlace {
        HostPlace { region: self.host, offset: self.offset }
    }
}

/// The address of the first byte.
pub(super) fn start_of(access: AccessFlags, va: u64) -> u64 {
    if access.contain(AccessFlags::ZERO_BASED) { 0 } else { va }
}
