//! Why queue pairs ended, for who started the program: a sentence each, a line each, into the file
//! that `ROXE_STORIES` names. `roxe run` names one, and shows it when the program fails.

use std::collections::BTreeSet;
use std::env;
use std::ffi::c_int;
use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::net::SocketAddr;
use std::ptr;
use std::sync::{Mutex, Once, PoisonError};

use roxe_verbs::cm::{Obstacle, RejectReason, SidrStatus};
use roxe_verbs::{
    AddressError, Completion, CompletionStatus, Context, Error, PostError, QpState, QueuePair,
    Stalled, Unready, VerbError,
};

use crate::device::say;
use crate::errno;
use crate::import;
use crate::layout::{ibv_ah_attr, ibv_context, ibv_qp};
use crate::queue_pair;
use crate::session::{Session, Waits};

/// What is told, and of whom it was.
struct Stories {
    file: File,
    /// The queue pairs whose end is told of, and those of which a call was refused, by its name.
    told: BTreeSet<(usize, u32, &'static str)>,
    /// Lines that programs would cause again and again.
    lines: BTreeSet<String>,
}

impl Stories {
    /// Tells it once.
    fn tell_once(&mut self, line: String) {
        if is_news(&mut self.lines, &line) {
            // Who wants to know has gone, then.
            let _ = writeln!(self.file, "{line}");
        }
    }
}

static STORIES: Mutex<Option<Stories>> = Mutex::new(None);

/// So many lines are told: behind them nobody reads on.
const MOST_LINES: usize = 1000;

/// Opens the file, if somebody wants to know.
pub(crate) fn begin() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let Some(path) = env::var_os("ROXE_STORIES").filter(|path| !path.is_empty()) else {
            return;
        };
        let opened = OpenOptions::new().append(true).open(path);
        *stories() =
            opened.ok().map(|file| Stories { file, told: BTreeSet::new(), lines: BTreeSet::new() });
    });
}

/// Those of all queue pairs that there are: many programs end without destroying anything.
pub(crate) fn of_all() {
    if stories().is_none() {
        return;
    }
    let _: Option<()> = import::find_in_ours(|session| {
        let objects = session.objects();
        for &pair in objects.queue_pairs.values() {
            // SAFETY: it is in the list, and the list is locked.
            if let Some(pair) = unsafe { &(*pair).pair } {
                of_end(session, pair);
            }
        }
        None
    });
}

fn stories() -> std::sync::MutexGuard<'static, Option<Stories>> {
    STORIES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A program asks for what is not there, and will go no further.
pub(crate) fn of_what_is_missing(sentence: &str) {
    begin();
    if let Some(stories) = &mut *stories() {
        stories.tell_once(sentence.to_owned());
    }
}

/// A call waits for events that the program has not given back, perhaps for ever.
pub(crate) fn of_wait(waits: &Waits, events: u32) {
    begin();
    if stories().is_some() {
        let Waits { call, for_call } = waits;
        let events = if events == 1 { "1 event".to_owned() } else { format!("{events} events") };
        let has_not = "the program has not acknowledged";
        say(format!("roxe: {call} waits for {for_call}: {has_not} {events}\n"));
    }
}

/// From now on it is told what stands between programs on an adapter and their peers.
pub(crate) fn watch(name: &str, context: &Context) {
    if stories().is_none() {
        return;
    }
    let (name, interface) = (name.to_owned(), context.interface().map(str::to_owned));
    let its_name = name.clone();
    context.on_stalled(move |stalled| of_stalled(&its_name, stalled));
    context.on_obstacle(move |peer, obstacle| {
        let Some(sentence) = of_obstacle(peer, obstacle, interface.as_deref()) else { return };
        let line = format!("{name}: {sentence}");
        let Some(stories) = &mut *stories() else { return };
        if !is_news(&mut stories.lines, &line) {
            return;
        }
        // What is still waited for is told at once, and did not fail.
        if obstacle == Obstacle::Unanswered {
            say(format!("roxe: {line}\n"));
        } else {
            // Who wants to know has gone, then.
            let _ = writeln!(stories.file, "{line}");
        }
    });
}

/// Whether it is told: once, and not without end.
fn is_news(told: &mut BTreeSet<String>, line: &str) -> bool {
    told.len() < MOST_LINES && told.insert(line.to_owned())
}

/// What is still asked for is told at once, and did not fail.
fn of_stalled(name: &str, stalled: Stalled) {
    let Stalled { qpn, peer, peer_address, side } = stalled;
    let at = peer_address.map_or(String::new(), |address| format!("{address}, "));
    let peer = format!("{at}queue pair 0x{:x}", peer.get());
    let sentence = match side {
        Unready::Peer => format!(
            "its peer, {peer}, says \"receiver not ready\" for seconds: it posts no receives (or \
             none to its SRQ); it is asked for ever, as rnr_retry is 7"
        ),
        Unready::Own => format!(
            "its peer, {peer}, sends for seconds what finds no receive: post some (ibv_post_recv)"
        ),
        Unready::OwnShared => format!(
            "its peer, {peer}, sends for seconds what finds no receive: post some to the SRQ \
             (ibv_post_srq_recv)"
        ),
    };
    let line = format!("{name}: queue pair 0x{:x}: {sentence}", qpn.get());
    if stories().as_mut().is_some_and(|stories| is_news(&mut stories.lines, &line)) {
        say(format!("roxe: {line}\n"));
    }
}

fn of_obstacle(peer: SocketAddr, obstacle: Obstacle, interface: Option<&str>) -> Option<String> {
    let (ip, port) = (peer.ip(), peer.port());
    let in_front = |word: &str| interface.map_or(String::new(), |name| format!(" {word} {name}"));
    Some(match obstacle {
        Obstacle::NoRoute => {
            let from = in_front("from");
            format!("no route{from} to {ip}: `ip route` shows those that there are")
        }
        Obstacle::OutOfReach => format!(
            "{ip} is in no network of the adapter's own addresses, and its device string names no \
             router (`gw=`)"
        ),
        Obstacle::NoNeighbor => format!("no neighbour answers for {ip}{}", in_front("on")),
        Obstacle::Unanswered => format!(
            "{peer} has not answered yet, still asking: is the server's program running, on the \
             adapter with this address? (rdma_cm wants the adapter's, its `-d`, not where TCP \
             meets)"
        ),
        Obstacle::Silent => format!("no adapter answered at {peer}"),
        Obstacle::Refused(reason) => {
            let why = match reason {
                RejectReason::InvalidServiceId => NOBODY_LISTENS,
                RejectReason::ConsumerReject => NOT_TAKEN,
                RejectReason::StaleConnection => {
                    "it takes an earlier connection of this queue pair for one that stands"
                }
                RejectReason::NoQp | RejectReason::NoResources => "it has no room for one more",
                other => other.words(),
            };
            format!("{ip} refused the connection to port {port}: {why}")
        }
        Obstacle::NoDatagrams(status) => {
            let why = match status {
                SidrStatus::UnsupportedServiceId => NOBODY_LISTENS,
                SidrStatus::Rejected => NOT_TAKEN,
                other => other.words(),
            };
            format!("{ip} refused datagrams to port {port}: {why}")
        }
        _ => return None,
    })
}

const NOBODY_LISTENS: &str = "its adapter is there, nobody listens on that port";

/// A program may refuse, end, or have too many that wait.
const NOT_TAKEN: &str = "the program that listens there did not take it";

/// A queue pair is moved to error because its connection is over, by us: that is no story.
///
/// # Safety
/// It is there.
pub(crate) unsafe fn of_parting(qp: *mut ibv_qp) {
    if stories().is_none() {
        return;
    }
    // SAFETY: the caller promises it, and the context of an object that is there is open.
    let (session, qpn) = unsafe { (Session::of((*qp).context), (*qp).qp_num) };
    let Ok(session) = session else { return };
    let works = queue_pair::look(session, qpn, |pair| pair.story().ending.is_none());
    if works == Some(true)
        && let Some(Stories { told, .. }) = &mut *stories()
    {
        told.insert((ptr::from_ref(session).addr(), qpn, ITS_LIFE));
    }
}

/// The story of a queue pair, once.
fn tell(session: &Session, qpn: u32, sentence: &str) {
    tell_of(session, qpn, ITS_LIFE, sentence);
}

/// What is told of a queue pair that is not about one call.
const ITS_LIFE: &str = "";

/// What is told of a queue pair about a call, once.
fn tell_of(session: &Session, qpn: u32, call: &'static str, sentence: &str) {
    if let Some(Stories { file, told, .. }) = &mut *stories()
        && told.insert((ptr::from_ref(session).addr(), qpn, call))
    {
        let name = session.device.name();
        // Who wants to know has gone, then.
        let _ = match qpn {
            NO_QUEUE_PAIR => writeln!(file, "{name}: an address handle: {sentence}"),
            _ => writeln!(file, "{name}: queue pair 0x{qpn:x}: {sentence}"),
        };
    }
}

/// A request failed: its queue pair has a story.
///
/// # Safety
/// The context is open.
pub(crate) unsafe fn of_failure(context: *mut ibv_context, completion: &Completion) {
    // What is flushed failed for another reason, which is told.
    if completion.status == CompletionStatus::Flushed || stories().is_none() {
        return;
    }
    // SAFETY: the caller promises it.
    let Ok(session) = (unsafe { Session::of(context) }) else { return };
    let qpn = completion.qpn.get();
    let why = |pair: &QueuePair| pair.explain(completion.status);
    if let Some(sentence) = queue_pair::look(session, qpn, why) {
        tell(session, qpn, &sentence);
    }
}

/// Where something was to be sent is no address: the usual reason has a sentence.
///
/// # Safety
/// The context is open.
pub(crate) unsafe fn of_address(context: *mut ibv_context, attr: &ibv_ah_attr, qpn: Option<u32>) {
    if attr.is_global != 0 || stories().is_none() {
        return;
    }
    // SAFETY: the caller promises it.
    let Ok(session) = (unsafe { Session::of(context) }) else { return };
    // An address handle has no number: one is told of.
    tell(session, qpn.unwrap_or(NO_QUEUE_PAIR), NO_GID);
}

/// A queue pair may not go to a state, with these values.
///
/// # Safety
/// The context is open.
pub(crate) unsafe fn of_step(context: *mut ibv_context, qpn: u32, to: QpState, error: &Error) {
    if stories().is_none() {
        return;
    }
    // SAFETY: the caller promises it.
    let Ok(session) = (unsafe { Session::of(context) }) else { return };
    let mut sentence = format!("ibv_modify_qp to {to}: {}", with_range(session, error));
    if let Error::Verb(VerbError::Address(AddressError::NoSuchGid(_))) = error
        && let Ok(context) = session.context()
    {
        let gids = context.gids().into_iter();
        let there: Vec<_> = gids.map(|(index, it)| format!("{index} ({})", it.gid)).collect();
        sentence += &format!(", but {}", there.join(", "));
    }
    tell(session, qpn, &sentence);
}

/// A queue pair may not go to a state, with a value that no adapter has.
///
/// # Safety
/// The context is open.
pub(crate) unsafe fn of_value(context: *mut ibv_context, qpn: u32, to: QpState, sentence: &str) {
    // SAFETY: the caller promises it.
    if let Ok(session) = unsafe { Session::of(context) } {
        tell(session, qpn, &format!("ibv_modify_qp to {to}: {sentence}"));
    }
}

/// A queue pair does not take a request, for another reason than that it has no room for it now.
///
/// # Safety
/// The context is open.
#[cold]
pub(crate) unsafe fn of_post(
    context: *mut ibv_context,
    qpn: u32,
    call: &'static str,
    reason: Option<PostError>,
) {
    if stories().is_none() {
        return;
    }
    // SAFETY: the caller promises it.
    let Ok(session) = (unsafe { Session::of(context) }) else { return };
    let state = queue_pair::look(session, qpn, |pair| pair.query().state);
    let state = state.map_or(String::new(), |state| format!(" in state {state}"));
    let reason = reason.map_or_else(|| NO_SUCH_REQUEST.to_owned(), |reason| reason.to_string());
    tell_of(session, qpn, call, &format!("{call}{state}: {reason}"));
}

const NO_SUCH_REQUEST: &str = "its number of scatter/gather elements, its opcode or its inline \
                               data, if it has these, are more than any queue pair takes";

/// What a call that makes something was refused for, and errno of it.
pub(crate) fn refused(session: &Session, call: &str) -> impl FnOnce(Error) -> c_int {
    move |error| {
        if let Some(stories) = &mut *stories() {
            let name = session.device.name();
            stories.tell_once(format!("{name}: {call}: {}", with_range(session, &error)));
        }
        errno::of(error)
    }
}

/// An error, and between what a value may be.
fn with_range(session: &Session, error: &Error) -> String {
    let limits = session.context().map(Context::query_device);
    match (error, limits) {
        (Error::Verb(VerbError::Invalid(what)), Ok(limits)) => {
            let (least, most) = match *what {
                "max_send_wr" | "max_recv_wr" => (0, limits.max_qp_wr),
                "max_send_sge" | "max_recv_sge" => (0, limits.max_sge),
                "max_inline_data" => (0, limits.max_inline_data),
                "max_rd_atomic" => (0, limits.max_qp_init_rd_atom.into()),
                "max_dest_rd_atomic" => (0, limits.max_qp_rd_atom.into()),
                "cqe" => (1, limits.max_cqe),
                "max_wr" => (1, limits.max_srq_wr),
                "max_sge" => (0, limits.max_srq_sge),
                _ => return error.to_string(),
            };
            format!("{error}: {least} to {most} are possible")
        }
        _ => error.to_string(),
    }
}

/// What is told of no queue pair.
const NO_QUEUE_PAIR: u32 = 1 << 24;

const NO_GID: &str = "its peer is named without a GID (is_global = 0), and RoCE has no other \
                      addresses: both sides must say which GID of theirs is meant, by \
                      `-g 0` with ibv_rc_pingpong and its like, by `-x 0` with perftest; an \
                      index that is empty counts as none";

/// A queue pair is destroyed: the last moment to say why it ended.
pub(crate) fn of_end(session: &Session, pair: &QueuePair) {
    if stories().is_some() && pair.story().ending.is_some() {
        tell(session, pair.qpn().get(), &pair.why());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_met_again_and_again_is_told_once_and_not_of_everybody() {
        let mut told = BTreeSet::new();
        assert!(is_news(&mut told, "a"));
        assert!(!is_news(&mut told, "a"));
        let news = (0..2000).filter(|number| is_news(&mut told, &number.to_string()));
        assert_eq!(news.count(), MOST_LINES - 1);
    }

    #[test]
    fn what_stands_between_a_program_and_its_peer_has_a_sentence() {
        let peer: SocketAddr = "192.0.2.77:7174".parse().expect("an address");
        let told =
            |obstacle, interface| of_obstacle(peer, obstacle, interface).expect("a sentence");
        let routes = "`ip route` shows those that there are";
        assert_eq!(
            told(Obstacle::NoRoute, Some("va")),
            format!("no route from va to 192.0.2.77: {routes}")
        );
        assert_eq!(told(Obstacle::NoRoute, None), format!("no route to 192.0.2.77: {routes}"));
        assert_eq!(
            told(Obstacle::NoNeighbor, Some("va")),
            "no neighbour answers for 192.0.2.77 on va"
        );
        let refused = |reason| told(Obstacle::Refused(reason), None);
        let begin = "192.0.2.77 refused the connection to port 7174: ";
        for (reason, why) in [
            (RejectReason::ConsumerReject, "the program that listens there did not take it"),
            (RejectReason::NoResources, "it has no room for one more"),
            (RejectReason::InvalidGid, "invalid GID"),
        ] {
            assert_eq!(refused(reason), format!("{begin}{why}"));
        }
    }
}
