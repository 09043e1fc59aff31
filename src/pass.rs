//! One pass over a capture, shared by two threads: the caller's reads frames, the other follows
//! conversations and tells of them. Batches of frames go round and are used again, so a capture of
//! any length takes the same memory.

use std::io;
use std::sync::mpsc::{self, Receiver, Sender, SyncSender, TryRecvError};
use std::thread;

use roxe_net::capture_file::{CaptureError, CaptureReader};

use crate::examine::{Batch, Dissector, Examiner};
use crate::outcome::is_unheard;
use crate::progress::Progress;

/// Tells what frames mean.
pub(crate) trait Teller: Send {
    /// How many of a frame's first bytes a batch shall keep.
    fn wants_bytes(&self) -> usize;

    /// Of the next frames.
    fn tell(&mut self, batch: &Batch) -> io::Result<()>;

    /// Whatever was kept back: it may take a while until more comes.
    fn flush(&mut self) -> io::Result<()>;
}

/// How many batches go round.
const BATCHES: usize = 4;

/// Reads a capture to its end. Tells how reading ended and how telling did. That nobody reads what
/// is told is an error of the telling, whoever came upon it.
pub(crate) fn pass(
    reader: &mut CaptureReader,
    examiner: &mut Examiner,
    teller: &mut impl Teller,
) -> (Result<(), CaptureError>, io::Result<()>) {
    let dissector = Dissector::new(teller.wants_bytes());
    thread::scope(|scope| {
        let (full_to, full_from) = mpsc::sync_channel(BATCHES);
        let (empty_to, empty_from) = mpsc::channel();
        for _ in 0..BATCHES {
            // The other end is here.
            let _ = empty_to.send(Batch::default());
        }
        let telling = thread::Builder::new()
            .name("tell".to_owned())
            .spawn_scoped(scope, move || tell_all(examiner, teller, &full_from, &empty_to));
        let telling = match telling {
            Ok(telling) => telling,
            Err(error) => return (Ok(()), Err(error)),
        };
        let read = read_all(reader, dissector, &full_to, &empty_from);
        drop(full_to);
        match telling.join() {
            Ok(Ok(())) if read.as_ref().is_err_and(is_unheard) => {
                (Ok(()), Err(io::ErrorKind::BrokenPipe.into()))
            }
            Ok(told) => (read, told),
            Err(panic) => std::panic::resume_unwind(panic),
        }
    })
}

fn read_all(
    reader: &mut CaptureReader,
    mut dissector: Dissector,
    full: &SyncSender<Batch>,
    empty: &Receiver<Batch>,
) -> Result<(), CaptureError> {
    let progress = Progress::of(reader);
    // Through a pipe comes what happens just now, perhaps: nothing waits for company there.
    let limit = if reader.total_len().is_some() { Batch::CAPACITY } else { 1 };
    // Where the teller has given up, so do we: it says why.
    while let Ok(mut batch) = empty.recv() {
        batch.clear();
        let mut end = Ok(false);
        while batch.len() < limit {
            match reader.next() {
                Ok(Some(record)) => dissector.read(&record, &mut batch),
                Ok(None) => {
                    end = Ok(true);
                    break;
                }
                Err(error) => {
                    end = Err(error);
                    break;
                }
            }
        }
        progress.at(reader);
        if full.send(batch).is_err() || end? {
            break;
        }
    }
    Ok(())
}

fn tell_all(
    examiner: &mut Examiner,
    teller: &mut impl Teller,
    full: &Receiver<Batch>,
    empty: &Sender<Batch>,
) -> io::Result<()> {
    loop {
        let mut batch = match full.try_recv() {
            Ok(batch) => batch,
            Err(TryRecvError::Disconnected) => return teller.flush(),
            Err(TryRecvError::Empty) => {
                // Time to show what there is.
                teller.flush()?;
                let Ok(batch) = full.recv() else { return Ok(()) };
                batch
            }
        };
        examiner.examine(&mut batch);
        teller.tell(&batch)?;
        // The reader may be through.
        let _ = empty.send(batch);
    }
}
