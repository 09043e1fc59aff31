//! The fuzzer's bytes, taken one decision at a time.

/// What is left of them. Behind the end everything is 0.
pub struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn byte(&mut self) -> u8 {
        self.0.split_off_first().copied().unwrap_or(0)
    }

    pub fn u16(&mut self) -> u16 {
        u16::from_le_bytes([self.byte(), self.byte()])
    }

    pub fn u32(&mut self) -> u32 {
        u32::from_le_bytes([self.byte(), self.byte(), self.byte(), self.byte()])
    }

    pub fn u64(&mut self) -> u64 {
        u64::from(self.u32()) << 32 | u64::from(self.u32())
    }

    /// A number below `count`, which is at least 1.
    pub fn below(&mut self, count: usize) -> usize {
        usize::from(self.byte()) % count
    }

    /// One of these.
    pub fn one<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len())]
    }

    /// One of these, if there is any.
    pub fn any<T: Copy>(&mut self, of: &[T]) -> Option<T> {
        if of.is_empty() { None } else { Some(self.one(of)) }
    }

    /// Mostly not: once in `times`.
    pub fn rarely(&mut self, times: u8) -> bool {
        self.byte() % times == times - 1
    }

    pub fn flag(&mut self) -> bool {
        self.byte() & 1 == 1
    }

    /// A length or an address: mostly small, sometimes next to where something ends.
    pub fn number(&mut self) -> u64 {
        match self.byte() {
            small @ 0..=0xbf => u64::from(small) & 0x3f,
            0xc0..=0xcf => self.u16().into(),
            0xd0..=0xd7 => self.u32().into(),
            0xd8..=0xdf => self.u64(),
            power @ 0xe0..=0xef => (1 << (4 * u32::from(power & 0xf))) - 1 + u64::from(self.flag()),
            0xf0..=0xf7 => u64::MAX - u64::from(self.byte()),
            _ => (1 << 31) - 1 + u64::from(self.byte() & 3),
        }
    }

    pub fn bytes(&mut self, most: usize) -> &'a [u8] {
        let len = most.min(self.0.len());
        self.0.split_off(..len).unwrap_or_default()
    }
}
