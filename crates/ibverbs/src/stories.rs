//! Why queue pairs ended, for who started the program: a sentence each, a line each, into the file
//! that `ROXE_STORIES` names. `roxe run` names one, and shows it when the program fails.

use std::collections::BTreeSet;
use std::env;
use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::net::SocketAddr;
use std::sync::{Mutex, Once, PoisonError};

use roxe_verbs::{
    AddressError, Completion, CompletionStatus, Error, QpState, QueuePair, VerbError,
};

use crate::import;
use crate::layout::{ibv_ah_attr, ibv_context};
use crate::queue_pair;
use crate::session::Session;

/// What is told, and of whom it was.
struct Stories {
    file: File,
    told: BTreeSet<(usize, u32)>,
}

static STORIES: Mutex<Option<Stories>> = Mutex::new(None);

/// Opens the file, if somebody wants to know.
pub(crate) fn begin() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let Some(path) = env::var_os("ROXE_STORIES").filter(|path| !path.is_empty()) else {
            return;
        };
        let opened = OpenOptions::new().append(true).open(path);
        *stories() = opened.ok().map(|file| Stories { file, told: BTreeSet::new() });
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
    if let Some(Stories { file, .. }) = &mut *stories() {
        // Who wants to know has gone, then.
        let _ = writeln!(file, "{sentence}");
    }
}

/// Nobody answers the connection manager of an adapter at this address.
pub(crate) fn of_silence(adapter: &str, peer: Option<SocketAddr>) {
    if let Some(peer) = peer {
        of_what_is_missing(&format!(
            "{adapter}: no adapter answered at {peer}: rdma_cm wants the address of the server's \
             adapter (of its `-d udp:…`, say), and not where TCP meets"
        ));
    }
}

/// The story of a queue pair, once.
fn tell(session: &Session, qpn: u32, sentence: &str) {
    if let Some(Stories { file, told }) = &mut *stories()
        && told.insert((std::ptr::from_ref(session).addr(), qpn))
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
    if let Some(sentence) = queue_pair::explain(session, qpn, why) {
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
    // SAFETY: the caller promises it.
    let Ok(session) = (unsafe { Session::of(context) }) else { return };
    let mut sentence = format!("ibv_modify_qp to {to}: {error}");
    if let Error::Verb(VerbError::Address(AddressError::NoSuchGid(_))) = error
        && let Ok(context) = session.context()
    {
        let gids = context.gids().into_iter();
        let there: Vec<_> = gids.map(|(index, it)| format!("{index} ({})", it.gid)).collect();
        sentence += &format!(", but {}", there.join(", "));
    }
    tell(session, qpn, &sentence);
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
