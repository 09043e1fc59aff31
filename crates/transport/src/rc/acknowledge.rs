//! When an answer is owed, which one wins, and what stands in it.
//!
//! IBA vol 1 §9.7.5.1.2 (coalescing): one acknowledgement may cover many requests, but one that was
//! asked for is not held back for long. Answers leave in the order of PSNs, so data of READs and
//! results of atomics go before the acknowledgement of what follows them.

use roxe_wire::{Psn, Syndrome};

/// The answers that a responder owes besides those of [`Resources`](super::replay::Resources).
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Owed {
    /// A positive acknowledgement of everything executed so far.
    acknowledgement: bool,
    /// A refusal, of the packet with this PSN.
    refusal: Option<(Psn, Syndrome)>,
}

impl Owed {
    /// Somebody asked for an acknowledgement.
    pub(crate) const fn acknowledge(&mut self) {
        self.acknowledgement = true;
    }

    /// A packet is refused. Its NAK acknowledges everything before.
    pub(crate) const fn refuse(&mut self, psn: Psn, syndrome: Syndrome) {
        self.refusal = Some((psn, syndrome));
        self.acknowledgement = false;
    }

    /// The packet that was refused has come again and is executed.
    pub(crate) const fn forget_refusal(&mut self) {
        self.refusal = None;
    }

    /// A response with `psn`, which acknowledges all before it, was sent; `newest` is the newest
    /// request executed.
    //= 04-4.3
    pub(crate) fn implied_by(&mut self, psn: Psn, newest: Psn) {
        if psn.since(newest) >= 0 {
            self.acknowledgement = false;
        }
    }

    /// Whether anything is owed.
    pub(crate) const fn any(&self) -> bool {
        self.acknowledgement || self.refusal.is_some()
    }

    /// Whether a refusal is owed.
    pub(crate) const fn is_refusal(&self) -> bool {
        self.refusal.is_some()
    }

    /// Takes the answer that goes out next, with its PSN; `newest` is the newest request executed
    /// and `ack` what a positive answer says.
    //= R27, 04-4.3
    pub(crate) fn take(&mut self, newest: Psn, ack: Syndrome) -> Option<(Psn, Syndrome)> {
        if let Some(refusal) = self.refusal.take() {
            return Some(refusal);
        }
        core::mem::take(&mut self.acknowledgement).then_some((newest, ack))
    }
}
