//! Immediate data: four bytes that go into the receiver's completion.

/// Immediate data. 4 bytes, delivered unchanged. IBA vol 1 §9.3.
///
/// ```text
///  0-3 | immediate data (32) |
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ImmDt(pub u32);

impl ImmDt {
    /// Bytes.
    pub const LEN: usize = 4;

    /// Reads the value: big-endian, as `ibv_wc.imm_data` has it in memory.
    pub const fn parse(bytes: [u8; Self::LEN]) -> Self {
        Self(u32::from_be_bytes(bytes))
    }

    /// Writes the value.
    pub const fn emit(self) -> [u8; Self::LEN] {
        self.0.to_be_bytes()
    }
}
