//! Any 256 bytes are a management datagram, or are refused. What was read is written again and
//! means the same; every message has words and fields.

#![no_main]

use roxe_wire::DropReason;
use roxe_wire::mad::{Mad, MadHeader};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    if bytes.len() != Mad::LEN {
        assert_eq!(Mad::parse(bytes), Err(DropReason::MadLength { len: bytes.len() }));
    }
    // The header's first four bytes are hardly ever right by chance: with them right, too.
    let mut room = [0; Mad::LEN];
    room.iter_mut().zip(bytes).for_each(|(to, from)| *to = *from);
    check(&room);
    let method = [0x03, 0x01, 0x81][usize::from(room[3] % 3)];
    room[..4].copy_from_slice(&[1, 7, 2, method]);
    if room[16] % 4 != 0 {
        // … and the attribute one of those there are.
        room[16] = 0;
        room[17] = 0x10 + room[17] % 11;
    }
    check(&room);
});

fn check(bytes: &[u8; Mad::LEN]) {
    let Ok(mad) = Mad::parse(bytes) else { return };
    let mut again = [0xee; Mad::LEN];
    mad.emit(&mut again);
    assert_eq!(Mad::parse(&again), Ok(mad), "written, it means the same");
    let (kept, header) = (MadHeader::parse(again[..24].try_into().unwrap()), mad.header());
    assert_eq!(kept, header);
    for (index, (old, new)) in bytes.iter().zip(&again).enumerate() {
        assert_eq!(new & !old, 0, "byte {index}: nothing is invented, reserved bits are dropped");
    }
    assert!(!mad.to_string().is_empty());
    let mut fields = 0;
    mad.for_each_field(&mut |name, value| {
        assert!(!name.is_empty());
        let _ = value.to_string();
        fields += 1;
    });
    assert!(fields > 9, "those of the header at least");
}
