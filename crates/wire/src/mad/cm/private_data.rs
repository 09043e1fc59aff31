//! The parts of a CM message that CM only carries: private data and additional information.

use core::fmt;

use crate::DropReason;
use crate::field::{FieldValue, FieldVisitor};
use crate::mad::layout::{InBytes, Show};

use super::IpCmHeader;

/// Private data of a CM message: `N` bytes for the applications, padded with zeros.
///
/// The wire has no length for them. A receiver always sees all `N`, and cannot tell trailing zeros
/// from padding. Held by value, so that a message can be kept for a retransmission as it is.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct PrivateData<const N: usize>(pub [u8; N]);

impl<const N: usize> PrivateData<N> {
    /// No private data.
    pub const ZERO: Self = Self([0; N]);

    /// `bytes`, padded; `None` when they are more than `N`.
    pub fn new(bytes: &[u8]) -> Option<Self> {
        let mut data = [0; N];
        data.get_mut(..bytes.len())?.copy_from_slice(bytes);
        Some(Self(data))
    }

    /// The header of the RDMA IP CM service and the application's `bytes` behind it; `None` when
    /// they are more than `N` - 36.
    pub fn with_ip_cm(header: IpCmHeader, bytes: &[u8]) -> Option<Self> {
        let mut data = [0; N];
        let (front, rest) = data.split_first_chunk_mut()?;
        *front = header.emit();
        rest.get_mut(..bytes.len())?.copy_from_slice(bytes);
        Some(Self(data))
    }

    /// The header of the RDMA IP CM service and what follows it; `None` when there is none. Only
    /// the service ID says whether to expect one.
    pub fn ip_cm(&self) -> Option<(IpCmHeader, &[u8])> {
        let (front, rest) = self.0.split_first_chunk()?;
        Some((IpCmHeader::parse(*front)?, rest))
    }

    /// All `N` bytes.
    pub const fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl<const N: usize> Default for PrivateData<N> {
    fn default() -> Self {
        Self::ZERO
    }
}

/// Hexadecimal, without the zeros at the end.
impl<const N: usize> fmt::Debug for PrivateData<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let len = self.0.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
        write!(f, "PrivateData({})", FieldValue::Bytes(&self.0[..len]))
    }
}

impl<const N: usize> InBytes<N> for PrivateData<N> {
    fn from_bytes(bytes: [u8; N]) -> Self {
        Self(bytes)
    }
    fn to_bytes(self) -> [u8; N] {
        self.0
    }
}

/// `None` where the message shows its private data itself.
impl<const N: usize> Show for PrivateData<N> {
    type Names = Option<&'static str>;
    fn show(&self, name: Self::Names, visit: &mut FieldVisitor<'_>) {
        if let Some(name) = name {
            visit(name, FieldValue::Bytes(&self.0));
        }
    }
}

/// What a refusal adds to its code, such as the GID to use instead: up to 72 bytes with a length.
///
/// The specification calls it ARI in a REJ, and additional information in an APR and a SIDR_REP.
/// The rest of its area is reserved: accepted with any value, not kept, emitted as zeros.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct AdditionalInfo {
    /// At most `MAX_LEN`.
    len: u8,
    /// Zero from `len` on.
    bytes: [u8; Self::MAX_LEN],
}

impl AdditionalInfo {
    /// The size of the area.
    pub const MAX_LEN: usize = 72;

    /// No additional information.
    pub const NONE: Self = Self { len: 0, bytes: [0; Self::MAX_LEN] };

    /// `None` when `info` is longer than the area.
    pub fn new(info: &[u8]) -> Option<Self> {
        let mut bytes = [0; Self::MAX_LEN];
        bytes.get_mut(..info.len())?.copy_from_slice(info);
        Some(Self { len: u8::try_from(info.len()).ok()?, bytes })
    }

    /// The information.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }

    pub(crate) fn read(len: u8, area: [u8; Self::MAX_LEN]) -> Result<Self, DropReason> {
        let need = usize::from(len);
        let too_long = DropReason::Truncated { have: Self::MAX_LEN, need };
        area.get(..need).and_then(Self::new).ok_or(too_long)
    }

    pub(crate) const fn wire_len(&self) -> u8 {
        self.len
    }

    pub(crate) const fn wire_bytes(&self) -> [u8; Self::MAX_LEN] {
        self.bytes
    }
}

impl Default for AdditionalInfo {
    fn default() -> Self {
        Self::NONE
    }
}

impl fmt::Debug for AdditionalInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AdditionalInfo({})", FieldValue::Bytes(self.as_bytes()))
    }
}

/// Length and bytes.
impl Show for AdditionalInfo {
    type Names = [&'static str; 2];
    fn show(&self, [len, bytes]: Self::Names, visit: &mut FieldVisitor<'_>) {
        visit(len, FieldValue::Number(self.len.into()));
        visit(bytes, FieldValue::Bytes(self.as_bytes()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::format;

    #[test]
    fn private_data_pads_and_refuses_too_much() {
        assert_eq!(PrivateData::<4>::new(b"ab"), Some(PrivateData(*b"ab\0\0")));
        assert_eq!(PrivateData::<4>::new(b"abcd"), Some(PrivateData(*b"abcd")));
        assert_eq!(PrivateData::<4>::new(b"abcde"), None);
        assert_eq!(format!("{:?}", PrivateData(*b"ab\0\0")), "PrivateData(6162)");
        assert_eq!(format!("{:?}", PrivateData::<4>::ZERO), "PrivateData()");
    }

    #[test]
    fn information_is_as_long_as_it_says() {
        let mut area = [7; AdditionalInfo::MAX_LEN];
        for len in 0..=255 {
            let read = AdditionalInfo::read(len, area);
            if len <= 72 {
                assert_eq!(read.unwrap().as_bytes(), &area[..usize::from(len)]);
            } else {
                let need = usize::from(len);
                assert_eq!(read, Err(DropReason::Truncated { have: 72, need }));
            }
        }
        area[8..].fill(0);
        assert_eq!(AdditionalInfo::read(8, [7; 72]).unwrap().wire_bytes(), area, "rest not kept");
        assert_eq!(AdditionalInfo::new(&[0; 73]), None);
    }
}
