use ratatui::Terminal;
use ratatui::backend::TestBackend;

use super::*;

fn load(packets: f64, gigabits: f64) -> Load {
    Load { packets, gigabits }
}

fn queue_pair(qpn: u32, load: Load) -> QueuePairRow {
    QueuePairRow {
        qpn,
        service: "RC".to_owned(),
        state: "rts".to_owned(),
        peer: format!("192.0.2.2:{:#x}", qpn + 1),
        load,
        ..QueuePairRow::default()
    }
}

fn two() -> Vec<Row> {
    let ended = QueuePairRow {
        state: "error".to_owned(),
        sent_again: 7,
        why: Some(
            "WRITE of 8 bytes (wr_id 1) failed: the peer refused it: remote access error, and more"
                .to_owned(),
        ),
        ..queue_pair(0x11, load(0.0, 0.0))
    };
    vec![
        Row {
            name: "roxe0".to_owned(),
            process: "4711".to_owned(),
            mode: "va: native XDP, copy mode, queue 0, path MTU 4096".to_owned(),
            active: true,
            sent: load(1_234_567.0, 18.5),
            received: load(12_345.0, 0.25),
            sent_again: 7,
            dropped: 1500,
            queue_pairs: vec![ended, queue_pair(0x12, load(999_400.0, 12.0))],
            ..Row::default()
        },
        Row {
            name: "roxe1".to_owned(),
            process: "12".to_owned(),
            mode: "udp: 127.0.0.1".to_owned(),
            queue_pairs: vec![queue_pair(0xff_ffff, load(999_600.0, 123.0))],
            ..Row::default()
        },
    ]
}

/// What a terminal of this size shows, without spaces at the end of lines.
fn shown(screen: &Screen, width: u16, height: u16) -> Vec<String> {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).expect("a terminal");
    terminal
        .draw(|frame| {
            let text = screen.text(width.into(), height.into());
            frame.render_widget(text, frame.area());
        })
        .expect("it draws");
    let buffer = terminal.backend().buffer().clone();
    let line = |y| -> String { (0..width).map(|x| buffer[(x, y)].symbol()).collect() };
    let mut lines: Vec<_> = (0..height).map(|y| line(y).trim_end().to_owned()).collect();
    while lines.last().is_some_and(String::is_empty) {
        lines.pop();
    }
    lines
}

#[test]
fn the_busiest_queue_pair_is_the_first_and_all_fits_80_by_24() {
    let mut screen = Screen::default();
    screen.set(two());
    let expected = "\
roxe top: 2 adapters, 3 queue pairs, by rate   (? help)

adapter       process state   sent/s    Gb/s rcvd/s    Gb/s  again   RNR  drops
roxe0            4711 active   1.23M   18.50   12.3k    0.25      7     0  1.50k
  va: native XDP, copy mode, queue 0, path MTU 4096
roxe1              12 down         0    0.00       0    0.00      0     0      0
  udp: 127.0.0.1

      QP svc state  adapter peer                   pkt/s   Gb/s again  RNR drops
0xffffff RC  rts    roxe1   192.0.2.2:0x1000000    1.00M  123.0     0    0     0
    0x12 RC  rts    roxe0   192.0.2.2:0x13          999k  12.00     0    0     0
    0x11 RC  error  roxe0   192.0.2.2:0x12             0   0.00     7    0     0
         WRITE of 8 bytes (wr_id 1) failed: the peer refused it: remote access …";
    let lines = shown(&screen, 80, 24);
    for (line, expected) in lines.iter().zip(expected.lines()) {
        assert_eq!(line, expected, "\n{}", lines.join("\n"));
    }
    assert_eq!(lines.len(), expected.lines().count());
}

fn numbers(lines: &[String]) -> Vec<&str> {
    let first = lines.iter().position(|line| line.contains("QP svc")).expect("titles") + 1;
    let numbers = lines[first..].iter().filter(|line| !line.starts_with("         "));
    numbers.filter_map(|line| line.split_whitespace().next()).collect()
}

#[test]
fn queue_pairs_are_sorted_as_asked_for() {
    let mut screen = Screen::default();
    screen.set(two());
    for expected in
        [["0xffffff", "0x12", "0x11"], ["0x11", "0x12", "0xffffff"], ["0x11", "0x12", "0xffffff"]]
    {
        let lines = shown(&screen, 80, 24);
        assert_eq!(numbers(&lines), expected, "{}", lines.join("\n"));
        screen.sort_otherwise();
    }
    assert!(shown(&screen, 80, 24)[0].contains("by number"));
    screen.sort_otherwise();
    assert!(shown(&screen, 80, 24)[0].contains("by rate"));
}

#[test]
fn more_queue_pairs_than_lines_can_be_scrolled_and_not_beyond_the_last() {
    let mut screen = Screen::default();
    let queue_pairs = (100..200).map(|qpn| queue_pair(qpn, Load::default())).collect();
    screen.set(vec![Row { name: "a".to_owned(), queue_pairs, ..Row::default() }]);
    let lines = shown(&screen, 80, 24);
    assert_eq!((lines.len(), numbers(&lines)[0]), (24, "0x64"));
    screen.scroll(10);
    assert_eq!(numbers(&shown(&screen, 80, 24))[0], "0x6e");
    screen.scroll(1000);
    screen.scroll(-1);
    assert_eq!(numbers(&shown(&screen, 80, 24)), ["0xc7"]);
    screen.scroll(isize::MIN);
    assert_eq!(numbers(&shown(&screen, 80, 24))[0], "0x64");
    assert_eq!(shown(&screen, 20, 3).len(), 3);
    assert_eq!(shown(&screen, 1, 1).len(), 1);
}

/// What an adapter is called tells it from others: it has the room that it needs.
#[test]
fn names_of_adapters_are_whole() {
    let mut screen = Screen::default();
    let name = "udp:192.0.2.100#12";
    let queue_pairs = vec![queue_pair(0x11, load(1.0, 1.0))];
    screen.set(vec![Row { name: name.to_owned(), queue_pairs, ..Row::default() }]);
    for width in [80, 100] {
        let lines = shown(&screen, width, 24);
        let named = lines.iter().filter(|line| line.contains(&format!("{name} ")));
        assert_eq!(named.count(), 2, "{}", lines.join("\n"));
    }
    let lines = shown(&screen, 100, 24);
    let column = |title: &str, line: &str| line.find(title).expect("it is there");
    let titles = lines.iter().find(|line| line.contains("QP svc")).expect("titles");
    let row = lines.last().expect("a queue pair");
    assert_eq!(column("adapter", titles), column(name, row));
    assert_eq!(column("peer", titles), column("192.0.2.2:0x12", row));
    assert!(row.ends_with("0") && titles.ends_with("drops") && row.len() == titles.len());
}

#[test]
fn the_help_fits_and_says_that_the_picture_stands_still() {
    let mut screen = Screen::default();
    screen.help_or_not();
    screen.pause_or_go_on();
    let lines = shown(&screen, 80, 24);
    assert!(lines.iter().all(|line| !line.ends_with('…')), "{}", lines.join("\n"));
    assert_eq!(lines[0], "roxe top: 0 adapters, 0 queue pairs, by rate, paused   (? help)");
    assert!(lines.last().unwrap().contains("why"));
}

#[test]
fn numbers_are_short_and_never_say_a_thousand_of_a_unit() {
    let expected = [
        (0.0, "0"),
        (999.4, "999"),
        (999.5, "1.00k"),
        (9994.0, "9.99k"),
        (9995.0, "10.0k"),
        (99_949.0, "99.9k"),
        (99_950.0, "100k"),
        (999_499.0, "999k"),
        (999_500.0, "1.00M"),
        (1.5e12, "1.50T"),
    ];
    for (number, text) in expected {
        assert_eq!(short(number), text, "{number}");
    }
    assert_eq!([gigabits(99.99), gigabits(99.996), gigabits(0.0)], ["99.99", "100.0", "0.00"]);
}
