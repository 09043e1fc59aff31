use libbpf_rs::ProgramInput;

use super::*;

#[test]
fn counters_have_the_names_of_the_header() {
    let header = include_str!("../../../../bpf/mark_ce.h");
    let names = header.lines().filter_map(|line| {
        let name = line.trim().strip_prefix("MARK_")?.split_once(',')?.0;
        (name != "STATS").then(|| name.to_lowercase())
    });
    assert_eq!(names.collect::<Vec<_>>(), MARKS);
}

const FRAME: usize = 100;

/// An IPv4 packet with a right checksum, and its ECN field.
fn ipv4(ecn: u8) -> [u8; FRAME] {
    let mut frame = [0; FRAME];
    frame[12..14].copy_from_slice(&[0x08, 0x00]);
    frame[14..34].copy_from_slice(&[
        0x45, 0xb8, 0, 86, 0, 0, 0x40, 0, 64, 17, 0, 0, 192, 0, 2, 1, 192, 0, 2, 2,
    ]);
    frame[15] |= ecn;
    let checksum = !sum(&frame);
    frame[24..26].copy_from_slice(&checksum.to_be_bytes());
    frame
}

/// The ones' complement sum of the IPv4 header: all ones when its checksum is right.
fn sum(frame: &[u8]) -> u16 {
    let words = frame[14..34].chunks(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(pair[1]));
    let sum = words.sum::<u32>();
    (sum % 0xffff) as u16
}

fn ipv6(ecn: u8) -> [u8; FRAME] {
    let mut frame = [0; FRAME];
    frame[12..16].copy_from_slice(&[0x86, 0xdd, 0x6b, 0x80 | ecn << 4]);
    (frame[19], frame[20], frame[21]) = (46, 17, 64);
    frame
}

/// What the program makes of frames that come one after the other, at a link so slow that none
/// leaves its queue meanwhile; and what it counted.
fn play(marking: &Marking, frames: &[[u8; FRAME]]) -> (Vec<[u8; FRAME]>, [u64; MARKS.len()]) {
    let mut storage = MaybeUninit::uninit();
    let loaded = load(&mut storage, marking).expect("the verifier takes it");
    let run = |frame: &[u8; FRAME]| {
        let mut after = [0; FRAME];
        let input = ProgramInput {
            data_in: Some(frame),
            data_out: Some(&mut after),
            ..ProgramInput::default()
        };
        let verdict = loaded.progs.mark_ce.test_run(input).expect("it runs").return_value;
        assert_eq!(verdict, u32::MAX, "TC_ACT_UNSPEC: it decides nothing");
        after
    };
    let after = frames.iter().map(run).collect();
    let marks = MapHandle::try_from(&loaded.maps.marks).expect("it is there");
    (after, totals(&marks))
}

const SLOW: Marking = Marking { rate: 8, k_min: 0, k_max: 0, p_max: 0.0, limit: 1 << 30 };

#[test]
fn what_may_be_marked_is_and_nothing_else_is_changed() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    const CE: u8 = 3;
    for make in [ipv4, ipv6] {
        let (after, counted) = play(&SLOW, &[0, 1, 2, 3].map(make));
        assert_eq!(after, [make(0), make(CE), make(CE), make(CE)]);
        assert_eq!(counted, [0, 3, 1, 0]);
    }
    assert_eq!(sum(&play(&SLOW, &[ipv4(2)]).0[0]), 0, "the checksum is right");
    let mut arp = ipv4(2);
    arp[12..14].copy_from_slice(&[0x08, 0x06]);
    assert_eq!(play(&SLOW, &[arp]), (vec![arp], [0, 0, 1, 0]));
}

#[test]
fn marks_begin_at_kmin_and_are_certain_from_kmax() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let is_marked = |frame: &[u8; FRAME]| *frame == ipv4(3);
    // The frame at place n finds n × 100 bytes.
    let marking = Marking { k_min: 1050, k_max: 40_950, p_max: 0.5, ..SLOW };
    let (after, counted) = play(&marking, &[ipv4(2); 500]);
    let marked = |places: std::ops::Range<usize>| after[places].iter().filter(|it| is_marked(it));
    assert_eq!(marked(0..11).count(), 0);
    assert_eq!(marked(410..500).count(), 90);
    // Of these 400 a quarter is expected; one in 10^9 runs has fewer than 50 or more than 160.
    let some = marked(11..410).count();
    assert!((50..160).contains(&some), "{some}");
    assert!(marked(11..150).count() < marked(270..410).count(), "more and more");
    assert_eq!(counted[1], some as u64 + 90);
}

#[test]
fn a_full_queue_takes_no_more() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let marking = Marking { k_min: 1 << 20, k_max: 1 << 20, limit: 1050, ..SLOW };
    assert_eq!(play(&marking, &[ipv4(2); 15]), (vec![ipv4(2); 15], [10, 0, 0, 5]));
}

#[test]
fn an_interface_that_is_not_there_is_named() {
    let error = Marker::attach("nowhere7", &SLOW).err().expect("there is none");
    assert_eq!(error.to_string(), "no interface nowhere7");
}
