//! How a queue pair is set.

use roxe_wire::{AckTimeout, Mtu, PKey, Psn, QKey, Qpn, RnrTimer};

use crate::qp_state::{Attribute, AttributeMask, ModifyError, QpState};

use super::AccessFlags;

/// How a queue pair is set: the attributes of `ibv_qp_attr` that its protocol uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attributes {
    /// Our number.
    pub qpn: Qpn,
    /// In which state the application believes the queue pair to be: looked at where it is given,
    /// and not kept.
    pub cur_state: QpState,
    /// The peer's number. Connected services.
    pub dest_qp: Qpn,
    /// The most payload of a packet.
    pub path_mtu: Mtu,
    /// What the peer may do.
    pub access: AccessFlags,
    /// The key of datagrams.
    pub q_key: QKey,
    /// The partition key that packets carry.
    pub p_key: PKey,
    /// The PSN of our first request.
    pub sq_psn: Psn,
    /// The PSN of the peer's first request.
    pub rq_psn: Psn,
    /// How many READs and atomics we may have outstanding.
    pub max_rd_atomic: u8,
    /// How many the peer may have.
    pub max_dest_rd_atomic: u8,
    /// How long to wait for an answer.
    pub timeout: AckTimeout,
    /// How often to try again for want of an answer, 0 ..= 7.
    pub retry_cnt: u8,
    /// How often to try again for want of a receive buffer, 0 ..= 7; 7 is for ever.
    pub rnr_retry: u8,
    /// How long a peer shall wait when we have no receive buffer.
    pub min_rnr_timer: RnrTimer,
}

impl Attributes {
    /// Takes over the values of the attributes in `given`.
    pub(crate) fn take(&mut self, given: AttributeMask, values: &Self) {
        let mut take = |attribute, set: &mut dyn FnMut(&mut Self)| {
            if given.contains(attribute) {
                set(self);
            }
        };
        take(Attribute::AccessFlags, &mut |own| own.access = values.access);
        take(Attribute::PkeyIndex, &mut |own| own.p_key = values.p_key);
        take(Attribute::Qkey, &mut |own| own.q_key = values.q_key);
        take(Attribute::PathMtu, &mut |own| own.path_mtu = values.path_mtu);
        take(Attribute::Timeout, &mut |own| own.timeout = values.timeout);
        take(Attribute::RetryCnt, &mut |own| own.retry_cnt = values.retry_cnt);
        take(Attribute::RnrRetry, &mut |own| own.rnr_retry = values.rnr_retry);
        take(Attribute::RqPsn, &mut |own| own.rq_psn = values.rq_psn);
        take(Attribute::SqPsn, &mut |own| own.sq_psn = values.sq_psn);
        take(Attribute::MaxQpRdAtomic, &mut |own| own.max_rd_atomic = values.max_rd_atomic);
        take(Attribute::MinRnrTimer, &mut |own| own.min_rnr_timer = values.min_rnr_timer);
        take(Attribute::MaxDestRdAtomic, &mut |own| {
            own.max_dest_rd_atomic = values.max_dest_rd_atomic;
        });
        take(Attribute::DestQpn, &mut |own| own.dest_qp = values.dest_qp);
    }

    /// Whether the values of the attributes in `given` may be.
    //= V02
    pub(crate) fn check(&self, given: AttributeMask) -> Result<(), ModifyError> {
        let checks = [
            (Attribute::RetryCnt, self.retry_cnt <= 7),
            (Attribute::RnrRetry, self.rnr_retry <= 7),
        ];
        match checks.into_iter().find(|(attribute, right)| given.contains(*attribute) && !right) {
            Some((attribute, _)) => Err(ModifyError::Value(attribute)),
            None => Ok(()),
        }
    }
}
