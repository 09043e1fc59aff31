//! How queue pairs are to be moved, by what is known of their connections.

use roxe_cm::{CallError, PortSpace, State as Stands, TransportServiceType};
use roxe_device::address_handle::AddressVector;
use roxe_transport::qp_state::{Attribute as A, AttributeMask, QpState};
use roxe_transport::work::{AccessFlags, Attributes};
use roxe_wire::{AckTimeout, Mtu, PKey, Psn, QKey, Qpn, RnrTimer};

use crate::cm::error::CmError;
use crate::cm::id::CmId;
use crate::cm::manager::Role;
use crate::context::seed;
use crate::error::Error;

/// How a queue pair goes to a state: what `rdma_init_qp_attr` fills in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QpStep {
    /// To where.
    pub to: QpState,
    /// Which attributes have a meaning.
    pub given: AttributeMask,
    /// Their values.
    pub values: Attributes,
    /// The address vector, where it is one of them.
    pub vector: Option<AddressVector>,
}

impl CmId {
    /// How a queue pair is to be moved to a state: `rdma_init_qp_attr`. To Init it is known from
    /// the beginning, but what peers may do only when they are known: so a connected one is moved
    /// from Init to Init before it is moved to RTR. To RTR and RTS it is known to who has a
    /// request or a response. On the accepting side the READs are those offered; what else
    /// [`CmParameters`](crate::cm::CmParameters) will say, `values` is to be changed to.
    ///
    /// # Errors
    /// [`CmError::Call`] when the connection is gone or nothing is known of the peer yet;
    /// [`CmError::WrongRole`] for other states, [`CmError::NotOurs`] when the adapter has lost the
    /// address.
    pub fn qp_attributes(&self, to: QpState) -> Result<QpStep, Error> {
        let is_datagram = self.port_space() == PortSpace::Udp;
        let known = self.shared().look(|state| {
            let record = state.ids.get(&self.key())?;
            let Role::Connection(connection) = record.role else { return None };
            let stands = state.agent.state(connection)?;
            let asked = matches!(stands, Stands::ReqSent | Stands::MraReqRcvd);
            Some((state.agent.qp_attributes(connection)?, asked))
        });
        let mut values = blank(self.context().path_mtu());
        let step = |given: &[A], values| QpStep {
            to,
            given: AttributeMask::of(given),
            values,
            vector: None,
        };
        if is_datagram {
            values.q_key = QKey::RDMA_CM;
            return Ok(match to {
                QpState::Init => step(&[A::PkeyIndex, A::Port, A::Qkey], values),
                QpState::Rtr => step(&[], values),
                QpState::Rts => {
                    values.sq_psn = Psn::new(seed() as u32);
                    step(&[A::SqPsn], values)
                }
                _ => return Err(CmError::WrongRole("knows no such step").into()),
            });
        }
        if let Some((known, _)) = known {
            values = Attributes {
                dest_qp: known.dest_qpn,
                path_mtu: known.path_mtu,
                access: access(known.max_dest_rd_atomic),
                p_key: known.p_key,
                sq_psn: known.sq_psn,
                rq_psn: known.rq_psn,
                max_rd_atomic: known.max_rd_atomic,
                max_dest_rd_atomic: known.max_dest_rd_atomic,
                timeout: known.timeout,
                retry_cnt: known.retry_count.get(),
                rnr_retry: known.rnr_retry.get(),
                ..values
            };
        }
        let known = known.filter(|(_, asked)| !asked).map(|(known, _)| known);
        let peer = known.ok_or(CmError::Call(CallError::WrongState));
        let is_reliable =
            known.is_none_or(|it| it.transport == TransportServiceType::ReliableConnection);
        match (to, is_reliable) {
            (QpState::Init, _) => Ok(step(&[A::PkeyIndex, A::Port, A::AccessFlags], values)),
            (QpState::Rtr, _) => {
                let known = peer?;
                let local = known.path.local;
                let source_gid = self
                    .context()
                    .with(|driver| driver.device.gids().find_address(local, known.path.vlan));
                let vector = AddressVector {
                    traffic_class: known.traffic_class,
                    hop_limit: known.hop_limit,
                    flow_label: known.flow_label.get(),
                    service_level: known.sl.get().min(7),
                    ..AddressVector::new(
                        source_gid.ok_or_else(|| CmError::NotOurs(local.to_ip()))?,
                        known.path.remote,
                    )
                };
                let path: &[A] = match is_reliable {
                    true => &[
                        A::Av,
                        A::PathMtu,
                        A::DestQpn,
                        A::RqPsn,
                        A::MaxDestRdAtomic,
                        A::MinRnrTimer,
                    ],
                    false => &[A::Av, A::PathMtu, A::DestQpn, A::RqPsn],
                };
                Ok(QpStep { vector: Some(vector), ..step(path, values) })
            }
            (QpState::Rts, true) => {
                peer?;
                let given = [A::SqPsn, A::Timeout, A::RetryCnt, A::RnrRetry, A::MaxQpRdAtomic];
                Ok(step(&given, values))
            }
            (QpState::Rts, false) => {
                peer?;
                Ok(step(&[A::SqPsn], values))
            }
            _ => Err(CmError::WrongRole("knows no such step").into()),
        }
    }
}

/// What peers may do whose READs and atomics are answered up to this many at once.
fn access(responder_resources: u8) -> AccessFlags {
    match responder_resources {
        0 => AccessFlags::REMOTE_WRITE,
        _ => AccessFlags::REMOTE_WRITE | AccessFlags::REMOTE_READ | AccessFlags::REMOTE_ATOMIC,
    }
}

/// Attributes of which nothing is known.
fn blank(path_mtu: Mtu) -> Attributes {
    Attributes {
        qpn: Qpn::default(),
        cur_state: QpState::default(),
        dest_qp: Qpn::default(),
        path_mtu,
        access: AccessFlags::NONE,
        q_key: QKey::default(),
        p_key: PKey::DEFAULT,
        sq_psn: Psn::default(),
        rq_psn: Psn::default(),
        max_rd_atomic: 0,
        max_dest_rd_atomic: 0,
        timeout: AckTimeout::default(),
        retry_cnt: 0,
        rnr_retry: 0,
        // 655 ms, as Linux says it.
        min_rnr_timer: RnrTimer::from_bits(0),
    }
}
