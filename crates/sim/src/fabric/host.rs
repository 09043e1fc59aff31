//! A host: the adapter, with memory of which only the length is known, and its port.

use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr};

use roxe_device::address_handle::AddressVector;
use roxe_device::gid_table::GidEntry;
use roxe_device::memory::Registration;
use roxe_device::protection_domain::Pd;
use roxe_device::{
    Congestion, CqId, Device, HostMemory, HostRegion, Limits, MemoryGone, QueuePairInit,
    ReceiveCapacity, VerbError,
};
use roxe_transport::conduct::Conduct;
use roxe_transport::congestion::hpcc::Hop;
use roxe_transport::qp_state::{Attribute as A, AttributeMask, QpState, ServiceType};
use roxe_transport::work::{
    AccessFlags, Attributes, Completion, Data, PostError, ReceiveRequest, Remote, SendOperation,
    SendRequest, Sge,
};
use roxe_transport::{Outlet, SendCapacity};
use roxe_wire::{
    AckTimeout, Addressing, Body, Gid, GidType, ICRC_LEN, ImmDt, Instant, LKey, MAX_HEADERS_LEN,
    Mtu, PKey, Psn, QKey, Qpn, RKey, Received, RnrTimer, Room, TrafficClass,
};

use super::telemetry::Which;

/// How hosts are.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct HostSettings {
    /// The most payload of a packet.
    pub path_mtu: Mtu,
    /// What controls queue pairs, and how marks are answered.
    pub congestion: Congestion,
    /// Packets that a queue pair may have on their way unacknowledged.
    pub window: u32,
    /// The DSCP of data; its upper three bits are the priority.
    pub dscp: u8,
}

/// A packet on its way, with all of it but its payload.
#[derive(Clone, Copy, Debug)]
pub(super) struct Frame {
    pub(super) from: u32,
    pub(super) to: u32,
    pub(super) source_port: u16,
    pub(super) traffic_class: u8,
    /// Which flow it is of; answers are of the flow that they answer.
    pub(super) flow: u32,
    /// On Ethernet, from the first address to the FCS.
    pub(super) bytes: u32,
    /// From BTH to ICRC.
    body: u16,
    pub(super) payload: u16,
    digest: u32,
    headers: [u8; MAX_HEADERS_LEN],
}

impl Frame {
    /// Its priority: the upper three bits of the DSCP.
    pub(super) const fn priority(&self) -> u8 {
        self.traffic_class >> 5
    }

    /// Which packet it is to who tells of links.
    pub(super) const fn which(&self, id: u32) -> Which {
        Which { id, flow: self.flow, data: self.payload > 0 }
    }

    /// Whether it may be marked.
    pub(super) const fn is_ecn_capable(&self) -> bool {
        self.traffic_class & 0x3 != 0
    }

    /// Congestion is experienced.
    pub(super) const fn mark(&mut self) {
        self.traffic_class |= 0x3;
    }
}

/// Frames on their way, by number; places are used again.
#[derive(Debug, Default)]
pub(super) struct Frames {
    frames: Vec<Frame>,
    free: Vec<u32>,
}

impl Frames {
    fn add(&mut self, frame: Frame) -> u32 {
        match self.free.pop() {
            Some(id) => {
                self.frames[id as usize] = frame;
                id
            }
            None => {
                self.frames.push(frame);
                (self.frames.len() - 1) as u32
            }
        }
    }

    pub(super) fn get(&self, id: u32) -> &Frame {
        &self.frames[id as usize]
    }

    pub(super) fn get_mut(&mut self, id: u32) -> &mut Frame {
        &mut self.frames[id as usize]
    }

    pub(super) fn remove(&mut self, id: u32) -> Frame {
        self.free.push(id);
        self.frames[id as usize]
    }

    /// How many are on their way.
    pub(super) const fn len(&self) -> usize {
        self.frames.len() - self.free.len()
    }
}

/// Memory of any length without content.
#[derive(Debug)]
struct NoBytes;

impl HostMemory for NoBytes {
    fn read(&self, _: HostRegion, _: u64, into: &mut [u8]) -> Result<(), MemoryGone> {
        into.fill(0);
        Ok(())
    }

    fn write(&mut self, _: HostRegion, _: u64, _: &[u8]) -> Result<(), MemoryGone> {
        Ok(())
    }

    fn fetch_modify(
        &mut self,
        _: HostRegion,
        _: u64,
        change: &mut dyn FnMut(u64) -> Option<u64>,
    ) -> Result<u64, MemoryGone> {
        change(0);
        Ok(0)
    }

    fn digest(&self, _: HostRegion, _: u64, _: u64) -> Result<u32, MemoryGone> {
        Ok(0)
    }

    fn write_digest(&mut self, _: HostRegion, _: u64, _: u64, _: u32) -> Result<(), MemoryGone> {
        Ok(())
    }

    fn release(&mut self, _: HostRegion) {}
}

/// A host.
#[derive(Debug)]
pub(super) struct Host {
    number: u32,
    settings: HostSettings,
    device: Device<NoBytes>,
    pd: Pd,
    cq: CqId,
    key: LKey,
    /// Packets of priorities that were stopped when the adapter gave them.
    waiting: VecDeque<u32>,
    /// The flow of each path.
    flows: Vec<u32>,
    /// When its timers are looked at next, if that stands in the queue of events.
    pub(super) timer: Option<Instant>,
}

/// The address of a host.
const fn address(number: u32) -> IpAddr {
    let [_, a, b, c] = number.to_be_bytes();
    IpAddr::V4(Ipv4Addr::new(10, a, b, c))
}

/// Whose address this is.
const fn number_of(address: IpAddr) -> Option<u32> {
    match address {
        IpAddr::V4(address) => Some(address.to_bits() & 0x00ff_ffff),
        IpAddr::V6(_) => None,
    }
}

impl Host {
    pub(super) fn new(number: u32, settings: HostSettings, seed: u64) -> Result<Self, VerbError> {
        let mut device = Device::new(Limits::DEFAULT, seed.wrapping_add(number.into()), NoBytes);
        let mut conduct = Conduct::DEFAULT;
        conduct.ask_after = Some(ASK_AFTER);
        device.set_conduct(conduct);
        device.set_congestion(settings.congestion);
        let gid = Gid::from_ip(address(number));
        device.add_gid(GidEntry { gid, gid_type: GidType::RoceV2, vlan: None })?;
        let pd = device.alloc_pd()?;
        let cq = device.create_completion_queue(COMPLETIONS)?;
        let access = AccessFlags::from_bits(ALL_RIGHTS).unwrap_or_default();
        let whole = Registration { pd, host: HostRegion(0), va: 0, len: u64::MAX, access };
        let key = device.register_memory(&whole)?;
        let (waiting, flows) = (VecDeque::new(), Vec::new());
        Ok(Self { number, settings, device, pd, cq, key, waiting, flows, timer: None })
    }

    pub(super) const fn device_counters(&self) -> &roxe_device::counters::Counters {
        self.device.counters()
    }

    /// A queue pair, and the key of the memory that the peer writes to.
    pub(super) fn create(&mut self) -> Result<(Qpn, LKey), VerbError> {
        let qpn = self.device.create_queue_pair(&QueuePairInit {
            service: ServiceType::Rc,
            pd: self.pd,
            send_cq: self.cq,
            receive_cq: self.cq,
            srq: None,
            send: SendCapacity { depth: POSTED, max_sge: 1, max_inline: 0 },
            receive: ReceiveCapacity { depth: RECEIVES, max_sge: 1 },
            signal_all: true,
        })?;
        Ok((qpn, self.key))
    }

    /// Connects a queue pair to that of another host, for a flow.
    pub(super) fn connect(
        &mut self,
        qpn: Qpn,
        (to, peer): (u32, Qpn),
        flow: u32,
    ) -> Result<(), VerbError> {
        let values = Attributes {
            qpn,
            cur_state: QpState::default(),
            dest_qp: peer,
            path_mtu: self.settings.path_mtu,
            access: AccessFlags::from_bits(ALL_RIGHTS).unwrap_or_default(),
            q_key: QKey(0),
            p_key: PKey::DEFAULT,
            sq_psn: Psn::new(qpn.get()),
            rq_psn: Psn::new(peer.get()),
            max_rd_atomic: 1,
            max_dest_rd_atomic: 1,
            timeout: AckTimeout::new(TIMEOUT).ok_or(VerbError::Invalid("timeout"))?,
            retry_cnt: 7,
            rnr_retry: 7,
            min_rnr_timer: RnrTimer::from_bits(1),
        };
        let traffic_class = self.settings.dscp << 2;
        let vector = AddressVector::new(0, Gid::from_ip(address(to)));
        let vector = AddressVector { traffic_class, ..vector };
        let steps: [(QpState, &[A]); 3] = [
            (QpState::Init, &[A::PkeyIndex, A::Port, A::AccessFlags]),
            (
                QpState::Rtr,
                &[A::Av, A::PathMtu, A::DestQpn, A::RqPsn, A::MaxDestRdAtomic, A::MinRnrTimer],
            ),
            (QpState::Rts, &[A::Timeout, A::RetryCnt, A::RnrRetry, A::SqPsn, A::MaxQpRdAtomic]),
        ];
        for (state, given) in steps {
            let given = AttributeMask::of(given);
            self.device.modify_queue_pair(qpn, state, given, &values, Some(&vector))?;
        }
        self.device.set_window(qpn, self.settings.window)?;
        let path = self.device.query_queue_pair(qpn)?.path.ok_or(VerbError::NoSuchObject)?;
        let index = path.0 as usize;
        if self.flows.len() <= index {
            self.flows.resize(index + 1, u32::MAX);
        }
        self.flows[index] = flow;
        Ok(())
    }

    /// A message of a flow, to the peer's memory. Whoever is `told` of it has a receive for it.
    pub(super) fn write(
        &mut self,
        qpn: Qpn,
        flow: u32,
        len: u32,
        peer_key: LKey,
        told: bool,
    ) -> Result<(), PostError> {
        let sges = [Sge { va: 0, len, l_key: self.key }];
        let remote = Remote { va: 0, r_key: RKey(peer_key.0) };
        let operation = if told {
            SendOperation::WriteWithImm(remote, ImmDt(flow))
        } else {
            SendOperation::Write(remote)
        };
        let request = SendRequest {
            wr_id: flow.into(),
            operation,
            data: Data::Regions(&sges),
            signaled: true,
            solicited: false,
            fence: false,
            target: None,
        };
        self.device.post_send(qpn, &request)
    }

    /// A receive for what the peer tells of a flow.
    pub(super) fn await_piece(&mut self, qpn: Qpn, flow: u32) -> Result<(), PostError> {
        let request = ReceiveRequest { wr_id: flow.into(), sges: &[] };
        self.device.post_receive(qpn, &request)
    }

    /// Completions, as many as there is room for.
    pub(super) fn completions(&mut self, room: &mut [Completion]) -> usize {
        self.device.poll_completions(self.cq, room)
    }

    /// A frame came in.
    pub(super) fn receive(&mut self, now: Instant, frame: &Frame) {
        let addressing = Addressing {
            source: address(frame.from),
            destination: address(frame.to),
            source_port: frame.source_port,
            traffic_class: TrafficClass(frame.traffic_class),
            hop_limit: 64,
            flow_label: 0,
            vlan: None,
        };
        let Frame { headers, body, digest, .. } = frame;
        let body = Body::Elided { start: headers, len: usize::from(*body), digest: *digest };
        self.device.handle_packet(now, Received { addressing, ip_header: None, cover: None, body });
    }

    /// The frame that came in was an answer that brought telemetry.
    pub(super) fn telemetry(&mut self, now: Instant, qpn: Qpn, hops: &[Hop]) {
        self.device.handle_telemetry(now, qpn, hops);
    }

    pub(super) fn handle_timeout(&mut self, now: Instant) {
        self.device.handle_timeout(now);
    }

    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        self.device.poll_timeout()
    }

    /// The next frame to send, of a priority that is not `closed`.
    ///
    /// The adapter has one queue of packets for all priorities. What it gives of one that is
    /// stopped waits here; then only answers and notifications are taken, which come first.
    pub(super) fn next(&mut self, now: Instant, closed: u8, frames: &mut Frames) -> Option<u32> {
        let is_open = |frame: &Frame| closed >> frame.priority() & 1 == 0;
        let mut waiting = self.waiting.iter();
        if let Some(at) = waiting.position(|id| is_open(frames.get(*id))) {
            return self.waiting.remove(at);
        }
        loop {
            let blocked = !self.waiting.is_empty();
            if blocked && (self.waiting.len() >= WAITING || !self.device.has_response()) {
                return None;
            }
            let frame = self.poll(now)?;
            let open = is_open(&frame);
            let id = frames.add(frame);
            if open {
                return Some(id);
            }
            self.waiting.push_back(id);
        }
    }

    fn poll(&mut self, now: Instant) -> Option<Frame> {
        let mut headers = [0; MAX_HEADERS_LEN];
        let room = Room::whole(&mut headers);
        let transmit = self.device.poll_transmit(now, Outlet { room, elide: true })?;
        let path = self.device.paths().get(transmit.path)?.addressing;
        let body = transmit.packet.len + ICRC_LEN;
        let flow = self.flows.get(transmit.path.0 as usize);
        Some(Frame {
            from: self.number,
            to: number_of(path.destination)?,
            source_port: path.source_port,
            traffic_class: transmit.traffic_class.unwrap_or(path.traffic_class).0,
            flow: flow.copied().unwrap_or(u32::MAX),
            bytes: (body + AROUND) as u32,
            body: u16::try_from(body).ok()?,
            payload: u16::try_from(transmit.packet.payload).ok()?,
            digest: transmit.packet.digest,
            headers,
        })
    }
}

/// An acknowledgement is asked for after so many packets.
const ASK_AFTER: u32 = 64;

/// Messages that a queue pair may have posted.
const POSTED: u32 = 16;

/// Receives that a queue pair has posted: more pieces than come before the next one is.
pub(super) const RECEIVES: u32 = 4;

/// Completions that may wait: all of what any host has posted.
const COMPLETIONS: u32 = 1 << 16;

/// Frames that may wait for their priority.
const WAITING: usize = 8;

/// 4.096 µs × 2^14: 67 ms, longer than any queue.
const TIMEOUT: u8 = 14;

/// Local write, remote write.
const ALL_RIGHTS: u32 = 0x3;

/// Ethernet, IPv4, UDP and FCS.
const AROUND: usize = 14 + 20 + 8 + 4;
