//! What is still to be done when a process ends.

use std::sync::mpsc;
use std::thread;
use std::time::Duration;

/// Does it, but waits no longer than [`AT_MOST`]: whoever ends may hold a lock that it needs. Says
/// whether it was done in time.
pub(crate) fn in_time(what: impl FnOnce() + Send + 'static) -> bool {
    let (done, wait) = mpsc::channel();
    let begun = thread::Builder::new().spawn(move || {
        what();
        done.send(())
    });
    // Without a thread to be had it is not done.
    begun.is_ok() && wait.recv_timeout(AT_MOST).is_ok()
}

/// How long a process that ends takes for it.
const AT_MOST: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    #[test]
    fn who_ends_with_a_lock_in_hand_ends() {
        static LOCK: Mutex<u32> = Mutex::new(0);
        let count = || *LOCK.lock().expect("nobody panicked") += 1;
        assert!(in_time(count));
        let held = LOCK.lock().expect("nobody panicked");
        assert!(!in_time(count));
        assert_eq!(*held, 1);
    }
}
