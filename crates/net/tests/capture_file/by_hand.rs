//! Captures made byte by byte, in either byte order.

/// Writes integers in one byte order.
#[derive(Clone, Copy)]
pub(crate) struct Order {
    pub(crate) big: bool,
}

pub(crate) const LITTLE: Order = Order { big: false };
pub(crate) const BIG: Order = Order { big: true };

impl Order {
    pub(crate) fn u16(self, value: u16) -> [u8; 2] {
        if self.big { value.to_be_bytes() } else { value.to_le_bytes() }
    }

    pub(crate) fn u32(self, value: u32) -> [u8; 4] {
        if self.big { value.to_be_bytes() } else { value.to_le_bytes() }
    }

    pub(crate) fn u64(self, value: u64) -> [u8; 8] {
        if self.big { value.to_be_bytes() } else { value.to_le_bytes() }
    }

    fn words(self, words: &[u32]) -> Vec<u8> {
        words.iter().flat_map(|word| self.u32(*word)).collect()
    }

    pub(crate) fn pcap(self, magic: u32, link_type: u32) -> Vec<u8> {
        let version = [self.u16(2), self.u16(4)].concat();
        [self.words(&[magic]), version, self.words(&[0, 0, 65_535, link_type])].concat()
    }

    pub(crate) fn pcap_record(self, seconds: u32, fraction: u32, data: &[u8]) -> Vec<u8> {
        let len = data.len() as u32;
        [&self.words(&[seconds, fraction, len, len]), data].concat()
    }

    /// A pcapng block around `body`, which is padded.
    pub(crate) fn block(self, kind: u32, body: &[u8]) -> Vec<u8> {
        let body = padded(body);
        let len = self.u32(12 + body.len() as u32);
        [&self.u32(kind), &len, &body[..], &len].concat()
    }

    pub(crate) fn section(self) -> Vec<u8> {
        let version = [self.u16(1), self.u16(0)].concat();
        let body = [&self.u32(0x1a2b_3c4d)[..], &version, &[0xff; 8]].concat();
        self.block(0x0a0d_0d0a, &body)
    }

    pub(crate) fn interface(self, link_type: u16, snap_len: u32, options: &[u8]) -> Vec<u8> {
        let fixed = [&self.u16(link_type)[..], &[0, 0], &self.u32(snap_len)].concat();
        self.block(1, &[&fixed, options].concat())
    }

    pub(crate) fn option(self, code: u16, value: &[u8]) -> Vec<u8> {
        [&self.u16(code)[..], &self.u16(value.len() as u16), &padded(value)].concat()
    }

    pub(crate) fn enhanced(self, interface: u32, ticks: u64, data: &[u8], wire: u32) -> Vec<u8> {
        self.enhanced_with(interface, ticks, data, wire, &[])
    }

    pub(crate) fn enhanced_with(
        self,
        interface: u32,
        ticks: u64,
        data: &[u8],
        wire_len: u32,
        options: &[u8],
    ) -> Vec<u8> {
        let (high, low) = ((ticks >> 32) as u32, ticks as u32);
        let fixed = self.words(&[interface, high, low, data.len() as u32, wire_len]);
        self.block(6, &[&fixed, &padded(data)[..], options].concat())
    }

    /// The block that the enhanced packet block replaced.
    pub(crate) fn obsolete(self, interface: u16, ticks: u64, data: &[u8]) -> Vec<u8> {
        let drops = [self.u16(interface), self.u16(7)].concat();
        let (high, low, len) = ((ticks >> 32) as u32, ticks as u32, data.len() as u32);
        self.block(2, &[drops, self.words(&[high, low, len, len]), padded(data)].concat())
    }

    pub(crate) fn simple(self, data: &[u8], wire_len: u32) -> Vec<u8> {
        self.block(3, &[&self.u32(wire_len)[..], data].concat())
    }
}

fn padded(bytes: &[u8]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}
