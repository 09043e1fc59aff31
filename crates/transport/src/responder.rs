//! The receiving side of a queue pair, by service.

use crate::adapter::Adapter;
use crate::conduct::Conduct;
use crate::qp_state::ServiceType;
use crate::work::Attributes;
use crate::{rc, uc};

/// The side that takes in the peer's requests. For datagrams it keeps nothing:
/// [`handle_datagram`](crate::ud::handle_datagram).
#[derive(Debug)]
pub(crate) enum Responder {
    Rc(rc::Responder),
    Uc(uc::Responder),
    Ud,
}

impl Responder {
    pub(crate) fn new(service: ServiceType, conduct: Conduct) -> Self {
        match service {
            ServiceType::Rc => Self::Rc(rc::Responder::new(conduct)),
            ServiceType::Uc => Self::Uc(uc::Responder::default()),
            ServiceType::Ud => Self::Ud,
        }
    }

    /// The queue pair becomes ready to receive.
    pub(crate) fn begin(&mut self, attributes: &Attributes) {
        match self {
            Self::Rc(responder) => responder.begin(attributes),
            Self::Uc(responder) => responder.begin(attributes),
            Self::Ud => {}
        }
    }

    /// The queue pair goes to error: receives in hand are flushed.
    pub(crate) fn flush_message(&mut self, attributes: &Attributes, adapter: &mut impl Adapter) {
        match self {
            Self::Rc(responder) => responder.flush_message(attributes, adapter),
            Self::Uc(responder) => responder.flush_message(attributes, adapter),
            Self::Ud => {}
        }
    }

    /// The queue pair is reset: receives in hand go back.
    pub(crate) fn forget_message(&mut self, adapter: &mut impl Adapter) {
        match self {
            Self::Rc(responder) => responder.forget_message(adapter),
            Self::Uc(responder) => responder.forget_message(adapter),
            Self::Ud => {}
        }
    }
}
