//! Hard use of our libibverbs.so.1, by programs of our own in C: many threads, forks, signals, ends
//! at any moment, and programs that have nothing to do with RDMA.

mod huge_pages;
#[path = "../../../net/tests/namespace/mod.rs"]
mod namespace;
#[path = "../ours/mod.rs"]
mod ours;
mod suite;

use std::fs::File;
use std::io::{BufRead as _, BufReader};
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio, id};
use std::time::{Duration, Instant};
use std::{env, fs, thread};

use namespace::{Cable, is_root};
use ours::with_ours;
use roxe_net::capture_file::{CaptureReader, Direction};
use roxe_verbs::cm::Bequest;

/// A program that was compiled for a test.
struct Program {
    folder: PathBuf,
}

impl Program {
    fn new(name: &str, source: &str) -> Self {
        let folder = env::temp_dir().join(format!("roxe-hard-{}-{name}", id()));
        fs::create_dir_all(&folder).expect("there is room");
        let program = Self { folder };
        let file = program.folder.join("program.c");
        let beginning = concat!(include_str!("../programs/c/connected.h"), include_str!("hard.h"));
        fs::write(&file, format!("{beginning}{source}")).expect("there is room");
        let mut compiler = Command::new("cc");
        compiler.args(["-pthread", "-o"]).arg(program.path()).arg(&file);
        let compiled = compiler.args(["-libverbs", "-lrdmacm"]).output();
        let compiled = compiled.expect("apt-get install gcc");
        let says = String::from_utf8_lossy(&compiled.stderr).into_owned();
        assert!(compiled.status.success(), "apt-get install libibverbs-dev librdmacm-dev\n{says}");
        program
    }

    fn path(&self) -> PathBuf {
        self.folder.join("program")
    }

    fn command(&self, devices: &str) -> Command {
        with_library(self.path(), devices)
    }

    /// Where it shall tell why what it began failed.
    fn stories(&self) -> PathBuf {
        let stories = self.folder.join("stories");
        fs::write(&stories, "").expect("there is room");
        stories
    }

    /// Runs it to its end; says what it printed.
    fn run(&self, devices: &str) -> String {
        printed(&self.command(devices).output().expect("it runs"))
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// A program with our library and these adapters.
fn with_library(program: impl AsRef<Path>, devices: &str) -> Command {
    let mut command = Command::new(program.as_ref());
    with_ours(&mut command, devices).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn printed(output: &Output) -> String {
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let complained = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{:?}: {said}{complained}", output.status);
    said
}

#[test]
fn eight_threads_post_to_one_completion_queue() {
    let said = Program::new("threads", include_str!("threads.c")).run("udp:127.0.10.1");
    assert_eq!(said, "done 16000, failed 0\n");
}

#[test]
fn eight_threads_post_to_one_queue_pair() {
    let said = Program::new("one_qp", include_str!("one_qp.c")).run("udp:127.0.10.2");
    assert_eq!(said, "done 4000, failed 0\n");
}

#[test]
fn a_program_may_fork_before_it_opens_an_adapter_and_behind_it() {
    let devices = "udp:127.0.10.3;udp:127.0.10.4";
    let said = Program::new("forks", include_str!("forks.c")).run(devices);
    let expected = "before: child 1, parent 0\n\
                    after: child 1, parent's failed 0, behind it 0\n\
                    system: 0, behind it 0\n";
    assert_eq!(said, expected);
}

#[test]
fn an_adapter_that_is_closed_with_objects_left_can_be_opened_again() {
    let said = Program::new("closes", include_str!("closes.c")).run("udp:127.0.10.14");
    assert_eq!(said, "close 0, threads 1, again; of what is left: 16 5 0 0 0 0\n");
}

#[test]
fn a_batch_is_posted_as_a_whole_or_not_at_all() {
    let said = Program::new("batch", include_str!("batch.c")).run("udp:127.0.10.15");
    let expected = "one too many: 12\n\
                    a wrong one: 22\n\
                    behind a window: 12, key 1\n\
                    as many as fit: 0: 0 1 2 3 4 5 6 7, and 0\n";
    assert_eq!(said, expected);
}

#[test]
fn a_queue_pair_is_in_a_group_once() {
    let said = Program::new("groups", include_str!("groups.c")).run("udp:127.0.10.16");
    let expected = "attach 0 0 0 none 22, detach none 22 0 22, destroy 16, detach 0, destroy 0\n";
    assert_eq!(said, expected);
}

/// Linux says so in every state of a connection; what has none is no connection.
#[test]
fn what_never_stood_or_is_over_can_be_disconnected() {
    let program = Program::new("over", concat!(include_str!("events.h"), include_str!("over.c")));
    let stories = program.stories();
    let mut command = program.command("udp:127.0.10.17");
    command.env("ROXE_STORIES", &stories);
    let said = printed(&command.arg("127.0.10.17").output().expect("it runs"));
    assert_eq!(fs::read_to_string(&stories).expect("it is there"), "", "nothing has failed");
    let expected = "a listener: -1 22\n\
                    before it stands: 0\n\
                    the other was first: 0\n\
                    long over: 0 0\n";
    assert_eq!(said, expected);
}

#[test]
fn who_asks_for_events_of_a_channel_that_is_destroyed_waits() {
    let program = Program::new("late", concat!(include_str!("events.h"), include_str!("late.c")));
    assert_eq!(program.run("udp:127.0.10.21"), "they wait\n");
}

#[test]
fn what_is_still_done_with_a_channel_that_is_destroyed_does_no_harm() {
    let program = Program::new("gone", concat!(include_str!("events.h"), include_str!("gone.c")));
    let expected = "who does not wait: -1 1\nmoved there: -1 1 1\ntwice: there\n";
    assert_eq!(program.run("udp:127.0.10.22"), expected);
}

/// Runs a program of sockets at this address; says what it printed.
fn run_sockets(name: &str, source: &str, address: &str) -> String {
    let source = format!("{}{source}", include_str!("sockets.h"));
    let program = Program::new(name, &source);
    let mut command = program.command(&format!("udp:{address}"));
    printed(&command.arg(address).output().expect("it runs"))
}

#[test]
fn a_signal_ends_each_of_several_waits_at_one_socket() {
    let said = run_sockets("several", include_str!("several.c"), "127.0.10.23");
    assert_eq!(said, "interrupted ".repeat(4) + "\n");
}

#[test]
fn the_largest_buffers_of_a_socket_take_what_is_used_of_them() {
    let said = run_sockets("large", include_str!("large.c"), "127.0.10.24");
    assert_eq!(said, "wanted: 2147483647, has: 536870912, used: 0, without room: ENOMEM\n");
}

#[test]
fn pieces_of_one_call_are_one_message() {
    let said = run_sockets("pieces", include_str!("pieces.c"), "127.0.10.70");
    let expected = "of one byte: 1024\n\
                    around the ring: 64\n\
                    without waiting: some, all of it came\n\
                    none: 0 0, nowhere: EFAULT, too many: EINVAL, too long: EINVAL\n\
                    connects again: EISCONN EISCONN\n";
    assert_eq!(said, expected);
}

#[test]
fn any_port_at_any_address_is_free_on_all_adapters() {
    let program = Program::new("ports", include_str!("ports.c"));
    let mut command = program.command("udp:127.0.10.18;udp:127.0.10.19");
    let output = command.args(["127.0.10.18", "127.0.10.19"]).output().expect("it runs");
    assert_eq!(printed(&output), "any: 1, taken: 0\n");
}

#[test]
fn a_child_gives_up_what_it_inherited() {
    let said = Program::new("inherits", include_str!("inherits.c")).run("udp:127.0.10.20");
    let expected = "child: 0 0 0 0 0 0\n\
                    parent: 0 0\n\
                    to where nothing is: -4 1, on demand: 0\n";
    assert_eq!(said, expected);
}

#[test]
fn two_processes_share_an_adapter_and_its_address() {
    let said = Program::new("share", include_str!("share.c")).run("host:127.0.10.10");
    assert_eq!(said, "both\n");
}

#[test]
fn a_port_is_of_one_process_at_an_address_and_one_of_nobody_is_refused() {
    let source =
        concat!(include_str!("events.h"), include_str!("ask.h"), include_str!("reserves.c"));
    let program = Program::new("reserves", source);
    let mut command = program.command("host:127.0.10.31");
    command.arg("127.0.10.31").env("ROXE_STORIES", program.stories());
    let expected = "taken: 1 1 1\n\
                    datagrams: 0 1\n\
                    nobody:\n\
                    RDMA_CM_EVENT_REJECTED 8\n\
                    RDMA_CM_EVENT_UNREACHABLE 1\n\
                    stream: 1\n\
                    bound: RDMA_CM_EVENT_REJECTED 8\n\
                    the other: 0\n\
                    killed: 0 0\n";
    assert_eq!(printed(&command.output().expect("it runs")), expected);
}

/// A client that comes first is refused, and comes again.
#[test]
fn programs_of_two_processes_connect_at_one_address() {
    let rping = |side: &str| {
        let mut command = with_library("rping", "host:127.0.10.11");
        command.args([side, "-a", "127.0.10.11", "-C", "10", "-V"]);
        command.spawn().expect("apt-get install rdmacm-utils")
    };
    let mut server = rping("-s");
    let begun = Instant::now();
    loop {
        let client = rping("-c").wait_with_output().expect("it runs");
        if client.status.success() {
            break;
        }
        let is_over = server.try_wait().expect("it is ours").is_some();
        if is_over || begun.elapsed() > Duration::from_secs(60) {
            server.kill().and_then(|()| server.wait()).expect("it is ours");
            printed(&client);
        }
    }
    printed(&server.wait_with_output().expect("it runs"));
}

#[test]
fn a_child_parts_from_its_peers_when_it_ends() {
    let program = Program::new("parts", concat!(include_str!("events.h"), include_str!("parts.c")));
    let mut command = program.command("host:127.0.10.13");
    assert_eq!(printed(&command.arg("127.0.10.13").output().expect("it runs")), "parted\n");
}

#[test]
fn a_signal_ends_a_wait_where_the_program_says_so() {
    let said = Program::new("signals", include_str!("signals.c")).run("udp:127.0.10.5");
    let expected = "cq event: 1\nasync event: 1\ncm event: 1\nhandled 1, over 0\ncame: 0\n";
    assert_eq!(said, expected);
}

/// The time-out that was asked for is kept where the kernel sends the packets, too.
#[test]
fn a_peer_that_is_not_there_is_told_of_in_time() {
    if !is_root() {
        return;
    }
    let program = Program::new("nobody", include_str!("nobody.c"));
    let cable = Cable::new(1500);
    for device in ["xdp:va", "udp:192.0.2.1"] {
        let found = |address: &str| {
            let stories = program.stories();
            let mut command = program.command(device);
            command.arg(address).env("ROXE_STORIES", &stories);
            let said = printed(&cable.a.run(|| command.output()).expect("it runs"));
            said + &fs::read_to_string(&stories).expect("it is there")
        };
        let error = "RDMA_CM_EVENT_ADDR_ERROR";
        let silent = format!("{error} -110\nroxe0: no neighbour answers for 192.0.2.99 on va\n");
        assert_eq!(found("192.0.2.99"), silent, "{device}");
        assert_eq!(found("192.0.2.2"), "RDMA_CM_EVENT_ADDR_RESOLVED 0\n", "{device}");
        let nowhere = format!(
            "{error} -101\nroxe0: no route from va to 10.1.1.1: \
             `ip route` shows those that there are\n"
        );
        assert_eq!(found("10.1.1.1"), nowhere, "{device}");
    }
}

/// Kills the program at moments of all its phases, and says whether the adapter is free at once.
fn killed_at_any_moment(start: impl Fn(&mut Command) -> Child, program: &Program, device: &str) {
    // A fixed sequence of moments, up to some tens of milliseconds.
    let mut random = 7_u32;
    for round in 0..30 {
        random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let mut victim = start(&mut program.command(device));
        thread::sleep(Duration::from_micros(u64::from(random >> 16)));
        let ended = victim.kill().and_then(|()| victim.wait()).expect("it is ours");
        assert_eq!(ended.signal(), Some(libc::SIGKILL), "round {round}: it ended by itself");
        let next = start(program.command(device).arg("once"));
        let said = printed(&next.wait_with_output().expect("it runs"));
        assert_eq!(said, "all of it\n", "round {round}");
    }
}

#[test]
fn a_program_that_is_killed_leaves_its_udp_socket_free() {
    let program = Program::new("busy", include_str!("busy.c"));
    let start = |command: &mut Command| command.spawn().expect("it runs");
    killed_at_any_moment(start, &program, "udp:127.0.10.6");
}

#[test]
fn a_program_that_is_killed_leaves_its_interface_free() {
    if !is_root() {
        return;
    }
    let program = Program::new("busy-xdp", include_str!("busy.c"));
    let cable = Cable::new(1500);
    let start = |command: &mut Command| cable.a.run(|| command.spawn()).expect("it runs");
    killed_at_any_moment(start, &program, "xdp:va");
}

#[test]
fn who_names_a_peer_without_a_gid_is_told_what_is_missing() {
    let program = Program::new("without_gid", include_str!("without_gid.c"));
    let stories = program.stories();
    let mut command = program.command("udp:127.0.10.7");
    let output = command.env("ROXE_STORIES", &stories).output().expect("it runs");
    assert_eq!(printed(&output), "rtr: 22, ah: 0\nsocket: -1 1, rpoll: 1 1\ninline: 1\n");
    let told = fs::read_to_string(&stories).expect("it is there");
    let lines: Vec<_> = told.lines().collect();
    assert_eq!(lines.len(), 5, "{told}");
    assert!(lines[0].starts_with("roxe0: queue pair 0x"), "{told}");
    assert!(lines[1].starts_with("roxe0: an address handle: "), "{told}");
    assert!(lines[..2].iter().all(|line| line.contains("without a GID")), "{told}");
    assert!(lines[2].ends_with(": ibv_modify_qp to rtr: attr_mask lacks IBV_QP_AV"), "{told}");
    let index = "no address has GID index 7, but 0 (::ffff:127.0.10.7)";
    assert!(lines[3].ends_with(index), "{told}");
    assert!(lines[4].starts_with("datagram sockets over RDMA (rsocket"), "{told}");
}

#[test]
fn every_call_that_is_refused_has_its_reason() {
    let events = concat!(include_str!("events.h"), include_str!("mistakes.c"));
    let program = Program::new("mistakes", events);
    let stories = program.stories();
    let mut command = program.command("udp:127.0.10.51");
    let output = command.env("ROXE_STORIES", &stories).output().expect("it runs");
    let expected = "init: 22 22\n\
                    rtr: 0 22 22\n\
                    sends: 0 0 22 22 0 0 0 22 22 0 0 0 22 22\n\
                    receives: 22\n\
                    made: 0 0 0 0 0 0\n\
                    bound: -1 1 -1 1\n";
    assert_eq!(printed(&output), expected);
    let told = fs::read_to_string(&stories).expect("it is there");
    // Without the numbers of queue pairs.
    let lines: Vec<_> = told
        .lines()
        .map(|line| match line.strip_prefix("roxe0: queue pair 0x") {
            Some(line) => line.split_once(' ').map_or(line, |(_, rest)| rest),
            None => line,
        })
        .collect();
    let segments = "2 scatter/gather elements, the queue was made for 1";
    let expected = [
        "ibv_modify_qp to init: port_num is 2, and there is port 1 alone",
        "ibv_modify_qp to rtr: ah_attr.port_num is 2, and there is port 1 alone",
        "ibv_post_send in state rtr: the queue pair's state takes no such request",
        &format!("ibv_post_send in state rts: {segments}"),
        "ibv_post_send in state rts: its number of scatter/gather elements, its opcode or its \
         inline data, if it has these, are more than any queue pair takes",
        &format!("ibv_post_recv in state rts: {segments}"),
        "roxe0: ibv_create_qp: max_send_wr is out of range: 0 to 32768 are possible",
        "roxe0: ibv_create_qp: max_recv_sge is out of range: 0 to 32 are possible",
        "roxe0: ibv_create_cq: cqe is out of range: 1 to 4194303 are possible",
        "roxe0: ibv_create_srq: max_wr is out of range: 1 to 65536 are possible",
        "roxe0: ibv_reg_mr: remote write and atomic need local write",
        "127.9.9.9 is the address of no adapter: roxe0 has 127.0.10.51",
        "127.9.9.8 is the address of no adapter: roxe0 has 127.0.10.51",
    ];
    assert_eq!(lines, expected);
}

#[test]
fn sockets_and_pipes_are_waited_for_together() {
    let program = Program::new("polls", include_str!("polls.c"));
    let output = program.command("udp:127.0.10.25").arg("127.0.10.25").output();
    let expected = "pipes: 1 of 0 1\n\
                    sockets: 0 of 0 0\n\
                    both: 2 of 0 0 1 0 0 1\n\
                    in a while: 1 of 0 0 1\n\
                    sockets: 1 of 0 1\n\
                    both: 2 of 1 1 0 0\n";
    assert_eq!(printed(&output.expect("it runs")), expected);
}

#[test]
fn who_asks_where_nobody_listens_is_told_so() {
    let events =
        concat!(include_str!("events.h"), include_str!("ask.h"), include_str!("refused.c"));
    let program = Program::new("refused", events);
    let stories = program.stories();
    let mut command = program.command("udp:127.0.10.28;udp:127.0.10.29");
    command.arg("127.0.10.29").env("ROXE_STORIES", &stories);
    let said = printed(&command.output().expect("it runs"));
    let expected = "RDMA_CM_EVENT_REJECTED 8\n\
                    RDMA_CM_EVENT_REJECTED 8\n\
                    RDMA_CM_EVENT_UNREACHABLE 1\n\
                    stream -1 1\n";
    assert_eq!(said, expected);
    // Nor is the program said to have moved its queue pairs.
    let told = fs::read_to_string(&stories).expect("it is there");
    let why = "its adapter is there, nobody listens on that port";
    let expected = format!(
        "roxe1: 127.0.10.29 refused the connection to port 7174: {why}\n\
         roxe1: 127.0.10.29 refused datagrams to port 7174: {why}\n\
         roxe1: 127.0.10.29 refused the connection to port 7175: {why}\n"
    );
    assert_eq!(told, expected);
}

/// While it still asks: the library gives up after more than a minute.
#[test]
fn who_asks_where_no_adapter_is_is_told_what_is_meant() {
    let mut command = with_library("rping", "udp:127.0.10.30");
    command.args(["-c", "-a", "127.9.9.9", "-C", "1"]).env("ROXE_STORIES", "/dev/null");
    let mut child = command.spawn().expect("apt-get install rdmacm-utils");
    let mut line = String::new();
    let heard = child.stderr.take().map(BufReader::new).expect("it is piped").read_line(&mut line);
    let is_asking = child.try_wait().expect("it is ours").is_none();
    child.kill().and_then(|()| child.wait()).expect("it is ours");
    heard.expect("it is text");
    let expected = "roxe: roxe0: 127.9.9.9:7174 has not answered yet, still asking: \
                    is the server's program running, on the adapter with this address? \
                    (rdma_cm wants the adapter's, its `-d`, not where TCP meets)\n";
    assert_eq!(line, expected);
    assert!(is_asking, "it has given up");
}

/// Nor does it end a program that asks for an adapter that is not there.
#[test]
fn what_is_told_where_nothing_can_be_written_is_lost() {
    let program = Program::new("untold", include_str!("busy.c"));
    for devices in ["udp:", "xdp:no-such"] {
        let full = fs::OpenOptions::new().write(true).open("/dev/full").expect("it is there");
        let ended = program.command(devices).stderr(full).status().expect("it runs");
        assert_eq!(ended.code(), Some(1), "{devices}");
    }
}

#[test]
fn who_ends_in_the_handler_of_a_signal_takes_no_memory() {
    let said = Program::new("handler", include_str!("handler.c")).run("udp:127.0.10.33");
    assert_eq!(said, "ends\n");
}

#[test]
fn a_socket_at_which_a_thread_waits_parts_from_its_peer_at_the_end() {
    let source = format!("{}{}", include_str!("sockets.h"), include_str!("reads_on.c"));
    let program = Program::new("reads_on", &source);
    let mut command = program.command("host:127.0.10.32");
    assert_eq!(printed(&command.arg("127.0.10.32").output().expect("it runs")), "0, 0\n");
}

#[test]
fn who_waits_for_events_that_are_not_given_back_is_told_so() {
    let events = concat!(include_str!("events.h"), include_str!("forgets.c"));
    let program = Program::new("forgets", events);
    let mut command = program.command("udp:127.0.10.50");
    command.arg("127.0.10.50").env("ROXE_STORIES", "/dev/null").stdin(Stdio::piped());
    let mut child = command.spawn().expect("it runs");
    let complains = child.stderr.take().map(BufReader::new).expect("it is piped");
    let mut lines: Vec<_> = complains.lines().take(3).map(|line| line.expect("text")).collect();
    lines.sort();
    let has = "the program has not acknowledged";
    let expected = [
        format!("roxe: ibv_destroy_cq waits for ibv_ack_cq_events: {has} 2 events"),
        format!("roxe: ibv_destroy_qp waits for ibv_ack_async_event: {has} 1 event"),
        format!("roxe: rdma_destroy_id waits for rdma_ack_cm_event: {has} 1 event"),
    ];
    assert_eq!(lines, expected);
    drop(child.stdin.take());
    assert_eq!(printed(&child.wait_with_output().expect("it runs")), "destroyed\n");
}

#[test]
fn both_sides_of_a_connection_without_receives_are_told_so() {
    let program = Program::new("unready", include_str!("unready.c"));
    let mut command = program.command("udp:127.0.10.52");
    command.env("ROXE_STORIES", "/dev/null").stdin(Stdio::piped());
    let mut child = command.spawn().expect("it runs");
    let mut says = child.stdout.take().map(BufReader::new).expect("it is piped");
    let mut numbers = String::new();
    says.read_line(&mut numbers).expect("it is text");
    let (sends, takes) = numbers.trim().split_once(' ').expect("two numbers");
    let complains = child.stderr.take().map(BufReader::new).expect("it is piped");
    let mut lines: Vec<_> = complains.lines().take(2).map(|line| line.expect("text")).collect();
    lines.sort_by_key(|line| !line.contains("receiver not ready"));
    let expected = [
        format!(
            "roxe: roxe0: queue pair {sends}: its peer, 127.0.10.52, queue pair {takes}, says \
             \"receiver not ready\" for seconds: it posts no receives (or none to its SRQ); it is \
             asked for ever, as rnr_retry is 7"
        ),
        format!(
            "roxe: roxe0: queue pair {takes}: its peer, 127.0.10.52, queue pair {sends}, sends \
             for seconds what finds no receive: post some (ibv_post_recv)"
        ),
    ];
    assert_eq!(lines, expected);
    drop(child.stdin.take());
    let mut rest = String::new();
    says.read_line(&mut rest).expect("it is text");
    assert_eq!(rest, "sent: 0 0\n");
    printed(&child.wait_with_output().expect("it runs"));
}

#[test]
fn a_child_that_opens_what_its_parent_has_open_is_told_so() {
    let program = Program::new("forked_open", include_str!("forked_open.c"));
    let output = program.command("udp:127.0.10.53;udp:127.0.10.54").output().expect("it runs");
    assert_eq!(printed(&output), "0 in the child\n");
    let line = "roxe: roxe0: the process that forked this one has it open, and so UDP port 4791 on \
                127.0.10.53: open it behind the fork, give the child another adapter, or let both \
                be `host:127.0.10.53`\n";
    assert_eq!(String::from_utf8_lossy(&output.stderr), line.repeat(2));
}

/// A disk that is full, by way of a limit for files.
#[test]
fn a_recording_that_cannot_go_on_is_told_of_and_the_program_goes_on() {
    let program = Program::new("full", include_str!("busy.c"));
    let file = program.folder.join("x.pcapng");
    let limited = "trap '' XFSZ; ulimit -f 8; exec \"$0\" once";
    let mut command =
        with_library("/bin/sh", &format!("udp:127.0.10.8,capture={}", file.display()));
    let output = command.args(["-c", limited]).arg(program.path()).output().expect("it runs");
    assert_eq!(printed(&output), "all of it\n");
    let complained = String::from_utf8_lossy(&output.stderr);
    assert_eq!(complained.lines().count(), 1, "{complained}");
    assert!(complained.starts_with("roxe: roxe0: "), "{complained}");
    assert!(complained.contains("x.pcapng: File too large"), "{complained}");
}

/// The packets of a capture that went this way, without the headers that the kernel makes.
fn packets(file: &Path, way: Direction) -> Vec<Vec<u8>> {
    const IPV4_AND_UDP: usize = 28;
    let mut reader = CaptureReader::open(file).expect("a capture");
    let mut all = Vec::new();
    while let Some(record) = reader.next().expect("a record") {
        if record.direction == Some(way) {
            all.push(record.data[IPV4_AND_UDP..].to_vec());
        }
    }
    assert!(reader.truncated().is_none(), "whole frames only");
    all
}

/// Each file ends with the DREQ or its answer, whoever ends first.
#[test]
fn recordings_of_programs_that_close_nothing_are_whole() {
    let program =
        Program::new("leaves", concat!(include_str!("events.h"), include_str!("leaves.c")));
    for does in ["leaves", "parts"] {
        let [server, client] = ["server", "client"].map(|side| program.folder.join(side));
        let start = |does: &str, address: &str, file: &Path| {
            let mut command = program.command(&format!("udp:{address},capture={}", file.display()));
            command.args([does, "127.0.10.26"]).spawn().expect("it runs")
        };
        let mut serves = start("serves", "127.0.10.26", &server);
        let mut says = BufReader::new(serves.stdout.take().expect("a pipe"));
        says.read_line(&mut String::new()).expect("it listens, or has failed");
        let calls = start(does, "127.0.10.27", &client);
        for side in [calls, serves] {
            printed(&side.wait_with_output().expect("it runs"));
        }
        let (there, back) =
            (packets(&client, Direction::Outbound), packets(&client, Direction::Inbound));
        assert_eq!(there, packets(&server, Direction::Inbound), "{does}");
        assert_eq!(back, packets(&server, Direction::Outbound), "{does}");
        // Behind BTH and DETH, in the header of the management datagram.
        let attribute = |packet: Option<&Vec<u8>>| packet.map(|packet| packet[36..38].to_vec());
        assert_eq!(attribute(there.last()), Some(vec![0, 0x15]), "{does}: no DREQ");
        assert_eq!(attribute(back.last()), Some(vec![0, 0x16]), "{does}: no DREP");
    }
}

/// Who is killed is parted from its peer by whoever started it, who was told what stood.
#[test]
fn a_program_that_is_killed_leaves_word_of_its_connections() {
    let program =
        Program::new("stays", concat!(include_str!("events.h"), include_str!("leaves.c")));
    let will = program.folder.join("will");
    fs::write(&will, "").expect("there is room");
    let left = || Bequest::read_all(&File::open(&will).expect("it is there")).expect("it is read");
    let start = |does: &str, device: &str| {
        let mut command = program.command(device);
        let mut child =
            command.args([does, "127.0.10.40"]).env("ROXE_WILL", &will).spawn().expect("it runs");
        let mut says = BufReader::new(child.stdout.take().expect("a pipe"));
        says.read_line(&mut String::new()).expect("it is there, or has failed");
        child
    };
    let serves = start("serves", "server=udp:127.0.10.40");
    let mut stays = start("stays", "client=udp:127.0.10.41");
    stays.kill().expect("it is ours");
    stays.wait().expect("it is ours");
    let of_client: Vec<_> = left().into_iter().filter(|it| it.device == "client").collect();
    assert_eq!(of_client.len(), 1, "{of_client:?}");
    assert_eq!(of_client[0].process, stays.id());
    let heir = roxe_verbs::open("udp:127.0.10.41").expect("the adapter is free");
    heir.part_for(&[of_client[0].connection], Duration::from_secs(20));
    printed(&serves.wait_with_output().expect("it runs"));
    assert_eq!(left(), of_client, "the server's own is gone");
}

/// Behind a pipe that is full, it cannot be told.
#[test]
fn the_program_goes_on_too_where_nobody_reads_what_it_is_told() {
    let program = Program::new("unheard", include_str!("busy.c"));
    let file = program.folder.join("x.pcapng");
    let limited = "dd if=/dev/zero bs=64K count=1 status=none >&2; \
                   trap '' XFSZ; ulimit -f 8; exec \"$0\" once";
    let mut command =
        with_library("/bin/sh", &format!("udp:127.0.10.12,capture={}", file.display()));
    let mut child = command.args(["-c", limited]).arg(program.path()).spawn().expect("it runs");
    let begun = Instant::now();
    while child.try_wait().expect("it is ours").is_none() {
        if begun.elapsed() > Duration::from_secs(60) {
            child.kill().and_then(|()| child.wait()).expect("it is ours");
        }
        thread::sleep(Duration::from_millis(5));
    }
    let output = child.wait_with_output().expect("it ran");
    assert_eq!(printed(&output), "all of it\n");
    assert!(output.stderr.len() >= 64 << 10, "the pipe was not full");
}

/// What a program is that does not ask for an adapter: the same as without us.
#[test]
fn who_has_nothing_to_do_with_rdma_notices_nothing() {
    let program = Program::new("unrelated", include_str!("unrelated.c"));
    let bare = printed(&Command::new(program.path()).output().expect("it runs"));
    assert_eq!(program.run("udp:127.0.10.9"), bare);

    // Who does not link it does not even get it.
    let maps = printed(
        &with_library("/bin/cat", "udp:127.0.10.9")
            .arg("/proc/self/maps")
            .output()
            .expect("it runs"),
    );
    assert!(maps.contains("libc.so") && !maps.contains("libibverbs"), "{maps}");
    for words in ["ls /", "sh -c \"echo $HOME\"", "python3 -c print(1+1)"] {
        let mut words = words.split_whitespace();
        let name = words.next().expect("a program");
        let arguments: Vec<_> = words.collect();
        let bare = Command::new(name).args(&arguments).output().expect("it runs");
        let ours = with_library(name, "udp:127.0.10.9").args(&arguments).output().expect("it runs");
        assert_eq!(
            (ours.status, ours.stdout, ours.stderr),
            (bare.status, bare.stdout, bare.stderr)
        );
    }
}
