//! The states of a queue pair in numbers and words that others know: `ibv_qp_attr_mask`, the names
//! of `ibv_qp_state`, and what is said of a step that is refused.

use roxe_transport::qp_state::{
    Attribute as A, AttributeMask, ModifyError, QpState, ServiceType, TRANSITIONS, check_transition,
};

use QpState::{Error, Init, Reset, Rtr, Rts, SqDrain, SqError};
use ServiceType::{Rc, Uc, Ud};

/// The masks as `ib_modify_qp_is_ok` has them, computed apart from our table.
//= 05-5.1, V02 test
#[test]
fn each_step_has_the_masks_of_libibverbs() {
    let rows = [
        (Reset, Init, Rc, 0x38, 0),
        (Reset, Init, Uc, 0x38, 0),
        (Reset, Init, Ud, 0x70, 0),
        (Init, Init, Rc, 0, 0x38),
        (Init, Init, Uc, 0, 0x38),
        (Init, Init, Ud, 0, 0x70),
        (Init, Rtr, Rc, 0x12_9180, 0x4018),
        (Init, Rtr, Uc, 0x10_1180, 0x4018),
        (Init, Rtr, Ud, 0, 0x50),
        (Rtr, Rts, Rc, 0x1_2e00, 0x4_c00a),
        (Rtr, Rts, Uc, 0x1_0000, 0x4_400a),
        (Rtr, Rts, Ud, 0x1_0000, 0x42),
        (Rts, Rts, Rc, 0, 0x4_c00a),
        (Rts, Rts, Uc, 0, 0x4_400a),
        (Rts, Rts, Ud, 0, 0x42),
        (Rts, SqDrain, Rc, 0, 0x4),
        (Rts, SqDrain, Uc, 0, 0x4),
        (Rts, SqDrain, Ud, 0, 0x4),
        (SqDrain, Rts, Rc, 0, 0x4_c00a),
        (SqDrain, Rts, Uc, 0, 0x4_400a),
        (SqDrain, Rts, Ud, 0, 0x42),
        (SqDrain, SqDrain, Rc, 0, 0x6_eeb8),
        (SqDrain, SqDrain, Uc, 0, 0x4_4098),
        (SqDrain, SqDrain, Ud, 0, 0x50),
        (SqError, Rts, Uc, 0, 0xa),
        (SqError, Rts, Ud, 0, 0x42),
    ];
    let ours = TRANSITIONS
        .iter()
        .map(|row| (row.from, row.to, row.service, row.required.bits(), row.optional.bits()));
    assert!(ours.eq(rows), "{TRANSITIONS:#x?}");
}

/// The state itself counts as given, and so does no other attribute.
//= V01 test
#[test]
fn the_state_is_always_given() {
    let state = AttributeMask::of(&[A::State]);
    for to in [Reset, Error] {
        assert_eq!(check_transition(Rc, Rts, to, state), Ok(()));
        assert_eq!(check_transition(Rc, Rts, to, AttributeMask::NONE), Ok(()));
        let more = AttributeMask::of(&[A::State, A::Qkey]);
        let strange = AttributeMask::of(&[A::Qkey]);
        assert_eq!(check_transition(Rc, Rts, to, more), Err(ModifyError::NotAllowed(strange)));
    }
}

#[test]
fn a_mask_is_a_set_of_attributes() {
    let mask = AttributeMask::of(&[A::Port, A::RateLimit]);
    assert_eq!((mask.bits(), mask), (0x200_0020, AttributeMask::from_bits(0x200_0020)));
    assert!(mask.contains(A::Port) && mask.contains(A::RateLimit));
    assert!(!mask.contains(A::PkeyIndex) && !mask.contains(A::Qkey));
    let other = AttributeMask::of(&[A::Port, A::Qkey]);
    assert_eq!(mask.with(other).bits(), 0x200_0060);
    assert_eq!(mask.without(other).bits(), 0x200_0000);
    assert!(!mask.is_empty() && mask.without(mask).is_empty() && AttributeMask::NONE.is_empty());
}

//= R33, V04 test
#[test]
fn each_state_says_what_may_happen_in_it() {
    #[rustfmt::skip]
    let rows = [
        //        name     receives sends  takes receives, sends
        (Reset,   "reset", false,   false, false,          false),
        (Init,    "init",  false,   false, true,           false),
        (Rtr,     "rtr",   true,    false, true,           false),
        (Rts,     "rts",   true,    true,  true,           true),
        (SqDrain, "sqd",   true,    true,  true,           true),
        (SqError, "sqe",   true,    false, true,           true),
        (Error,   "error", false,   false, true,           true),
    ];
    let ours = QpState::ALL.iter().map(|&state| {
        let (takes_receives, takes_sends) = (state.takes_receives(), state.takes_sends());
        (state, state.name(), state.receives(), state.sends(), takes_receives, takes_sends)
    });
    assert!(ours.eq(rows));
    assert_eq!(format!("{Rts:>5}|{SqDrain}"), "  rts|sqd");
}

#[test]
fn a_refused_step_says_why() {
    let qkey = AttributeMask::of(&[A::Qkey]);
    for (error, said) in [
        (ModifyError::NoSuchTransition { from: Reset, to: Rts }, "no step from reset to rts"),
        (ModifyError::Missing(qkey), "attr_mask lacks IBV_QP_QKEY"),
        (ModifyError::NotAllowed(qkey), "attr_mask has IBV_QP_QKEY, which has no place there"),
        (ModifyError::WrongCurrentState, "cur_qp_state is not the present state"),
        (ModifyError::Value(A::RqPsn), "the value of IBV_QP_RQ_PSN is out of range"),
        (ModifyError::NoSuchQueuePair, "no such queue pair"),
    ] {
        assert_eq!(error.to_string(), said);
    }
}
