//! The application above the connection manager: its calls, and what becomes of its queue pairs.

use roxe_cm::{
    Accept, Agent, Answer, CallError, Connect, GidPair, Listen, PortSpace, QpAttributes,
    RejectReason, Resolve, Service, SidrStatus, Timing, TransportServiceType,
};
use roxe_device::address_handle::AddressVector;
use roxe_transport::qp_state::{AttributeMask, QpState, ServiceType};
use roxe_wire::mad::cm::{Bits, CmTimeout};
use roxe_wire::{Gid, QKey};

use super::super::bench::{Bench, Object};
use super::super::mad::SOURCE_PORT;
use super::super::mistake::Mistake;
use super::super::objects::{Refused, Verb, required};
use super::super::symbols::Symbols as _;
use super::super::syntax::{Arguments, CallVerb};
use super::Connection;

impl From<CallError> for Refused {
    fn from(error: CallError) -> Self {
        let errno = match error {
            CallError::TooMany => "ENOMEM",
            CallError::ServiceInUse => "EADDRINUSE",
            _ => "EINVAL",
        };
        Self::Errno(errno, error.to_string())
    }
}

impl Bench {
    /// `listen`.
    pub(in crate::script) fn make_listener(&mut self, a: &Arguments) -> Result<Object, Refused> {
        let port = self.number(a, "port", None)?.ok_or("a listener needs `port`")? as u16;
        let space = match a.word("space") {
            Some("udp") => PortSpace::Udp,
            Some("ib") => PortSpace::Ib,
            _ => PortSpace::Tcp,
        };
        let backlog = self.number_or(a, "backlog", 16)? as usize;
        let listen = Listen { address: a.address("address"), ..Listen::port(space, port, backlog) };
        Ok(Object::Listener(self.agent()?.listen(listen)?))
    }

    fn agent(&mut self) -> Result<&mut Agent, Mistake> {
        let manager = self.manager.as_mut().ok_or("the device has no `cm`")?;
        Ok(&mut manager.agent)
    }

    /// What the application does about connections.
    pub(in crate::script) fn call_cm(
        &mut self,
        verb: CallVerb,
        target: &str,
        a: &Arguments,
    ) -> Verb {
        // What came so far was before.
        self.collect();
        let now = self.now;
        let private = a.bytes().unwrap_or_default();
        let known = self.objects.get(target).cloned();
        match (verb, known) {
            (CallVerb::Connect, None) => {
                let made = self.connect(a)?;
                self.objects.insert(target.to_owned(), made);
            }
            (CallVerb::Resolve, None) => {
                let made = self.resolve(a)?;
                self.objects.insert(target.to_owned(), made);
            }
            (CallVerb::Connect | CallVerb::Resolve, Some(_)) => {
                return Err(Mistake::at(target, format!("{target} is there already")).into());
            }
            (CallVerb::Accept, Some(Object::Connection(connection))) => {
                self.accept(target, &connection, a)?;
            }
            (CallVerb::Establish, Some(Object::Connection(connection))) => {
                let attributes = self.agent()?.qp_attributes(connection.id);
                self.agent()?.ready(connection.id, private)?;
                if let (Some(qp), Some(attributes)) = (&connection.qp, attributes) {
                    self.join(qp, &attributes)?;
                    self.step(qp, QpState::Rts)?;
                }
            }
            (CallVerb::Reject, Some(Object::Connection(connection))) => {
                let usual = RejectReason::ConsumerReject.code().into();
                let reason = RejectReason::from_code(self.number_or(a, "reason", usual)? as u16);
                self.agent()?.reject(now, connection.id, reason, private)?;
            }
            (CallVerb::Disconnect, Some(Object::Connection(connection))) => {
                self.agent()?.disconnect(now, connection.id, private)?;
                self.part(connection.qp.as_deref())?;
            }
            (CallVerb::Destroy, Some(Object::Listener(listener))) => {
                self.agent()?.unlisten(listener)?;
                self.objects.remove(target);
            }
            (CallVerb::Destroy, Some(Object::Connection(connection))) => {
                self.agent()?.destroy(now, connection.id)?;
            }
            (CallVerb::Destroy, Some(Object::Resolution(resolution))) => {
                self.agent()?.cancel(resolution)?;
            }
            (CallVerb::Answer, Some(Object::Question(question))) => {
                let answer = self.answer_of(a)?;
                self.agent()?.answer(now, question, answer, private)?;
            }
            _ => {
                let what = format!("{target} is no object of this verb");
                return Err(Mistake::at(target, what).into());
            }
        }
        Ok(())
    }

    fn connect(&mut self, a: &Arguments) -> Result<Object, Refused> {
        let qp = a.word("qp").ok_or("`connect` needs `qp`")?;
        let (qpn, service) = (self.qp(qp)?.qpn, self.qp(qp)?.service);
        let (path, ports, timing) = self.target_of(a)?;
        let [source_port, port] = ports;
        let service_id = Service::Ip { space: PortSpace::Tcp, source_port, port };
        let usual = Connect::new(path, service_id, qpn);
        let connect = Connect {
            transport: match service {
                ServiceType::Rc => TransportServiceType::ReliableConnection,
                ServiceType::Uc => TransportServiceType::UnreliableConnection,
                ServiceType::Ud => return Err(CallError::UnsupportedTransport.into()),
            },
            path_mtu: self.settings.path_mtu,
            responder_resources: self.byte_or(a, "responder-resources", READS)?,
            initiator_depth: self.byte_or(a, "initiator-depth", READS)?,
            retry_count: Bits::new(self.byte_or(a, "retry", 7)?),
            rnr_retry_count: Bits::new(self.byte_or(a, "rnr-retry", 7)?),
            traffic_class: self.byte_or(a, "tclass", 0)?,
            hop_limit: self.byte_or(a, "hop", 64)?,
            sl: Bits::new(self.byte_or(a, "sl", 0)?),
            timing,
            private_data: a.bytes().unwrap_or_default(),
            ..usual
        };
        let now = self.now;
        let agent = self.agent()?;
        let id = agent.connect(now, &connect)?;
        let psn = agent.qp_attributes(id).map_or(0, |attributes| attributes.rq_psn.get());
        Ok(Object::Connection(Connection { id, qp: Some(qp.to_owned()), psn }))
    }

    fn resolve(&mut self, a: &Arguments) -> Result<Object, Refused> {
        let (path, [source_port, port], timing) = self.target_of(a)?;
        let private_data = a.bytes().unwrap_or_default();
        let resolve = Resolve { timing, private_data, ..Resolve::port(path, source_port, port) };
        let now = self.now;
        Ok(Object::Resolution(self.agent()?.resolve(now, &resolve)?))
    }

    /// From where to where, from which port to which, and how patiently.
    fn target_of(&self, a: &Arguments) -> Result<(GidPair, [u16; 2], Timing), Refused> {
        let gid = self.number_or(a, "gid", 0)? as u32;
        let own = self.device.gids().get(gid).copied();
        let own = own.ok_or_else(|| format!("the device has no GID {gid}"))?;
        let remote = Gid::from_ip(a.address("to").unwrap_or(self.settings.peer));
        let path = GidPair { local: own.gid, remote, vlan: own.vlan };
        let port = self.number(a, "port", None)?.ok_or("it needs `port`")? as u16;
        let source_port = self.number_or(a, "source-port", SOURCE_PORT)? as u16;
        let usual = Timing::LINUX;
        let timing = Timing {
            response_timeout: self.timeout_or(a, "response-timeout", usual.response_timeout)?,
            max_retries: Bits::new(self.byte_or(a, "max-cm-retries", usual.max_retries.get())?),
            packet_lifetime: self.timeout_or(a, "packet-lifetime", usual.packet_lifetime)?,
        };
        Ok((path, [source_port, port], timing))
    }

    fn accept(&mut self, target: &str, connection: &Connection, a: &Arguments) -> Verb {
        let qp = a.word("qp").ok_or("`accept` needs `qp`")?;
        let accept = Accept {
            responder_resources: self.byte_or(a, "responder-resources", READS)?,
            initiator_depth: self.byte_or(a, "initiator-depth", READS)?,
            rnr_retry_count: Bits::new(self.byte_or(a, "rnr-retry", 7)?),
            private_data: a.bytes().unwrap_or_default(),
            ..Accept::new(self.qp(qp)?.qpn)
        };
        let now = self.now;
        let attributes = self.agent()?.accept(now, connection.id, &accept)?;
        let psn = attributes.rq_psn.get();
        let known = Connection { id: connection.id, qp: Some(qp.to_owned()), psn };
        self.objects.insert(target.to_owned(), Object::Connection(known));
        self.join(qp, &attributes)
    }

    fn answer_of(&self, a: &Arguments) -> Result<Answer, Mistake> {
        let status = self.number(a, "status", None)?;
        let q_key = self.number(a, "qkey", None)?.map(|key| QKey(key as u32));
        match (a.word("qp"), status) {
            (Some(qp), None) => Ok(Answer::Serve { qpn: self.qp(qp)?.qpn, q_key }),
            (None, Some(status)) => Ok(Answer::Refuse(SidrStatus::from_code(status as u8))),
            _ => Err("`answer` needs `qp` or `status`".into()),
        }
    }

    /// A queue pair is ready to receive what its connection says.
    fn join(&mut self, name: &str, to: &QpAttributes) -> Verb {
        let source_gid = self.device.gids().find_address(to.path.local, to.path.vlan);
        let source_gid = source_gid.ok_or("the device has the address no more")?;
        if let Some(Object::Qp(qp)) = self.objects.get_mut(name) {
            let values = &mut qp.values;
            (values.dest_qp, values.path_mtu, values.p_key) = (to.dest_qpn, to.path_mtu, to.p_key);
            (values.rq_psn, values.sq_psn) = (to.rq_psn, to.sq_psn);
            values.max_dest_rd_atomic = to.max_dest_rd_atomic;
            values.max_rd_atomic = to.max_rd_atomic;
            values.timeout = to.timeout;
            (values.retry_cnt, values.rnr_retry) = (to.retry_count.get(), to.rnr_retry.get());
            qp.vector = AddressVector {
                traffic_class: to.traffic_class,
                hop_limit: to.hop_limit,
                flow_label: to.flow_label.get(),
                service_level: to.sl.get().min(7),
                ..AddressVector::new(source_gid, to.path.remote)
            };
            qp.own_address = to.path.local.to_ip();
            qp.peer_address = to.path.remote.to_ip();
            qp.vlan = to.path.vlan;
            qp.source_port = None;
        }
        self.step(name, QpState::Rtr)
    }

    /// Moves a queue pair one state on.
    pub(super) fn step(&mut self, name: &str, to: QpState) -> Verb {
        let (qpn, service) = (self.qp(name)?.qpn, self.qp(name)?.service);
        let from = self.device.query_queue_pair(qpn)?.state;
        self.modify_with(name, to, required(service, from, to))
    }

    /// The queue pair of a connection that is over.
    pub(super) fn part(&mut self, qp: Option<&str>) -> Verb {
        match qp {
            Some(qp) => self.modify_with(qp, QpState::Error, AttributeMask::NONE),
            None => Ok(()),
        }
    }

    /// A timeout's code, or what it is otherwise.
    pub(super) fn timeout_or(
        &self,
        a: &Arguments,
        name: &str,
        usual: CmTimeout,
    ) -> Result<CmTimeout, Mistake> {
        Ok(CmTimeout::from_bits(self.byte_or(a, name, usual.code())?))
    }

    /// A number of eight bits, or what it is otherwise.
    pub(super) fn byte_or(&self, a: &Arguments, name: &str, usual: u8) -> Result<u8, Mistake> {
        Ok(self.number_or(a, name, usual.into())? as u8)
    }
}

/// READs each way, as queue pairs of scripts have them.
pub(super) const READS: u8 = 4;
