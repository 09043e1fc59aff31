//! Two devices back to back: what one sends, the other receives, framed and sealed as on a wire.

use std::net::{IpAddr, Ipv4Addr};

use roxe_device::address_handle::AddressVector;
use roxe_device::gid_table::GidEntry;
use roxe_device::memory::Registration;
use roxe_device::protection_domain::Pd;
use roxe_device::{
    CqId, Device, HostMemory, HostRegion, Limits, QueuePairInit, ReceiveCapacity, ReceiveQueueId,
    VecMemory,
};
use roxe_transport::qp_state::{Attribute as A, AttributeMask, QpState, ServiceType};
use roxe_transport::work::{
    AccessFlags, Attributes, Completion, Data, DatagramTarget, PathId, ReceiveRequest,
    SendOperation, SendRequest, Sge,
};
use roxe_transport::{Outlet, SendCapacity};
use roxe_wire::{
    AckTimeout, Frame, FrameTemplate, Gid, GidType, Instant, LKey, MacAddress, Mtu, PKey, Path,
    Psn, QKey, Qpn, RKey, RawFrame, RnrTimer, Room, icrc,
};

/// One end.
pub(crate) struct End<H = VecMemory> {
    pub(crate) device: Device<H>,
    pub(crate) address: IpAddr,
    pub(crate) pd: Pd,
    pub(crate) cq: CqId,
    pub(crate) region: HostRegion,
    /// Key of a region over all of `region`, from address 0 on.
    pub(crate) key: LKey,
}

pub(crate) const MEMORY: usize = 1 << 20;

pub(crate) fn all_rights() -> AccessFlags {
    AccessFlags::from_bits(0x31f).unwrap()
}

impl End {
    pub(crate) fn new(number: u8) -> Self {
        let mut host = VecMemory::default();
        let region = host.add(vec![0; MEMORY]);
        Self::with_memory(number, host, region, MEMORY as u64)
    }

    pub(crate) fn bytes(&self, at: usize, len: usize) -> &[u8] {
        &self.device.host().bytes(self.region).unwrap()[at..at + len]
    }

    pub(crate) fn fill(&mut self, at: usize, bytes: &[u8]) {
        let memory = self.device.host_mut().bytes_mut(self.region).unwrap();
        memory[at..at + bytes.len()].copy_from_slice(bytes);
    }

    pub(crate) fn vector(to: IpAddr) -> AddressVector {
        AddressVector { hop_limit: 64, ..AddressVector::new(0, Gid::from_ip(to)) }
    }
}

impl<H: HostMemory> End<H> {
    /// A device with `len` bytes of memory registered.
    pub(crate) fn with_memory(number: u8, host: H, region: HostRegion, len: u64) -> Self {
        let mut device = Device::new(Limits::DEFAULT, u64::from(number), host);
        let address = IpAddr::V4(Ipv4Addr::new(192, 0, 2, number));
        let gid = Gid::from_ip(address);
        device.add_gid(GidEntry { gid, gid_type: GidType::RoceV2, vlan: None }).unwrap();
        let pd = device.alloc_pd().unwrap();
        let cq = device.create_completion_queue(4096).unwrap();
        let access = all_rights();
        let what = Registration { pd, host: region, va: 0, len, access };
        let key = device.register_memory(&what).unwrap();
        Self { device, address, pd, cq, region, key }
    }

    pub(crate) fn create(&mut self, service: ServiceType, srq: Option<ReceiveQueueId>) -> Qpn {
        self.device
            .create_queue_pair(&QueuePairInit {
                service,
                pd: self.pd,
                send_cq: self.cq,
                receive_cq: self.cq,
                srq,
                send: SendCapacity { depth: 64, max_sge: 4, max_inline: 128 },
                receive: ReceiveCapacity { depth: 64, max_sge: 4 },
                signal_all: true,
            })
            .unwrap()
    }

    /// Takes a queue pair through the states to RTS.
    pub(crate) fn connect(&mut self, qpn: Qpn, peer: Qpn, to: IpAddr, mtu: Mtu) {
        self.connect_with(to, &attributes(qpn, peer, mtu));
    }

    /// The same with other values than the usual ones.
    pub(crate) fn connect_with(&mut self, to: IpAddr, values: &Attributes) {
        let qpn = values.qpn;
        let service = self.device.query_queue_pair(qpn).unwrap().service;
        let vector = End::vector(to);
        for (state, given) in steps(service) {
            let given = AttributeMask::of(given);
            self.device
                .modify_queue_pair(qpn, state, given, values, Some(&vector))
                .unwrap_or_else(|error| panic!("to {state}: {error}"));
        }
    }

    pub(crate) fn sge(&self, va: u64, len: u32) -> Sge {
        Sge { va, len, l_key: self.key }
    }

    pub(crate) fn post(&mut self, qpn: Qpn, wr_id: u64, operation: SendOperation, sge: Sge) {
        let sges = [sge];
        let request = SendRequest {
            wr_id,
            operation,
            data: Data::Regions(&sges),
            signaled: true,
            solicited: false,
            fence: false,
            target: None,
        };
        self.device.post_send(qpn, &request).unwrap();
    }

    pub(crate) fn post_receive(&mut self, qpn: Qpn, wr_id: u64, sge: Sge) {
        let request = ReceiveRequest { wr_id, sges: &[sge] };
        self.device.post_receive(qpn, &request).unwrap();
    }

    /// All completions that wait.
    pub(crate) fn completions(&mut self) -> Vec<Completion> {
        let mut room = [Completion::BLANK; 64];
        let mut all = Vec::new();
        loop {
            let some = self.device.poll_completions(self.cq, &mut room);
            if some == 0 {
                return all;
            }
            all.extend_from_slice(&room[..some]);
        }
    }

    /// The next frame that leaves.
    pub(crate) fn frame(&mut self, now: Instant) -> Option<Vec<u8>> {
        let mut packet = vec![0; 4200];
        let outlet = Outlet { room: Room::whole(&mut packet), elide: false };
        let transmit = self.device.poll_transmit(now, outlet)?;
        let len = transmit.packet.len + roxe_wire::ICRC_LEN;
        let mut to = self.device.paths().get(transmit.path).unwrap().addressing;
        to.traffic_class = transmit.traffic_class.unwrap_or(to.traffic_class);
        let ethernet = (MacAddress([2, 0, 0, 0, 0, 1]), MacAddress([2, 0, 0, 0, 0, 2]));
        let template = FrameTemplate::new(&Path { ethernet, ..to.path().unwrap() });
        let at = template.headers_len();
        let mut frame = vec![0; at + len];
        frame[at..].copy_from_slice(&packet[..len]);
        let (outer, body) = frame.split_at_mut(at);
        let cover = template.write(u16::try_from(len).unwrap(), 7, outer).unwrap();
        let value = icrc::expected(&cover, roxe_wire::Body::whole(body)).unwrap();
        *body.last_chunk_mut().unwrap() = value.to_le_bytes();
        Some(frame)
    }

    pub(crate) fn receive(&mut self, now: Instant, frame: &[u8]) {
        let frame = Frame::parse(RawFrame::ethernet(frame)).unwrap();
        self.device.handle_packet(now, frame.received());
    }
}

/// The key of datagrams.
pub(crate) const Q_KEY: QKey = QKey(0x1111_1111);

pub(crate) fn attributes(qpn: Qpn, peer: Qpn, mtu: Mtu) -> Attributes {
    Attributes {
        qpn,
        cur_state: QpState::default(),
        dest_qp: peer,
        path_mtu: mtu,
        access: all_rights(),
        q_key: Q_KEY,
        p_key: PKey::DEFAULT,
        sq_psn: Psn::new(qpn.get()),
        rq_psn: Psn::new(peer.get()),
        max_rd_atomic: 8,
        max_dest_rd_atomic: 8,
        timeout: AckTimeout::new(14).unwrap(),
        retry_cnt: 6,
        rnr_retry: 6,
        min_rnr_timer: RnrTimer::from_bits(12),
    }
}

fn steps(service: ServiceType) -> Vec<(QpState, &'static [A])> {
    match service {
        ServiceType::Rc => vec![
            (QpState::Init, &[A::PkeyIndex, A::Port, A::AccessFlags]),
            (
                QpState::Rtr,
                &[A::Av, A::PathMtu, A::DestQpn, A::RqPsn, A::MaxDestRdAtomic, A::MinRnrTimer],
            ),
            (QpState::Rts, &[A::Timeout, A::RetryCnt, A::RnrRetry, A::SqPsn, A::MaxQpRdAtomic]),
        ],
        ServiceType::Uc => vec![
            (QpState::Init, &[A::PkeyIndex, A::Port, A::AccessFlags]),
            (QpState::Rtr, &[A::Av, A::PathMtu, A::DestQpn, A::RqPsn]),
            (QpState::Rts, &[A::SqPsn]),
        ],
        ServiceType::Ud => vec![
            (QpState::Init, &[A::PkeyIndex, A::Port, A::Qkey]),
            (QpState::Rtr, &[]),
            (QpState::Rts, &[A::SqPsn]),
        ],
    }
}

/// Posts a datagram with these bytes.
pub(crate) fn send_datagram(
    end: &mut End,
    from: Qpn,
    path: PathId,
    qpn: Qpn,
    q_key: QKey,
    bytes: &[u8],
) {
    let request = SendRequest {
        wr_id: 1,
        operation: SendOperation::Send,
        data: Data::Inline(bytes),
        signaled: true,
        solicited: false,
        fence: false,
        target: Some(DatagramTarget { path, qpn, q_key }),
    };
    end.device.post_send(from, &request).unwrap();
}

/// Moves frames both ways until nothing moves.
pub(crate) fn settle(a: &mut End, b: &mut End, now: Instant) {
    loop {
        let mut moved = false;
        while let Some(frame) = a.frame(now) {
            b.receive(now, &frame);
            moved = true;
        }
        while let Some(frame) = b.frame(now) {
            a.receive(now, &frame);
            moved = true;
        }
        if !moved {
            return;
        }
    }
}

pub(crate) fn pair(service: ServiceType, mtu: Mtu) -> (End, Qpn, End, Qpn) {
    let (mut a, mut b) = (End::new(1), End::new(2));
    let (qa, qb) = (a.create(service, None), b.create(service, None));
    let (to_a, to_b) = (a.address, b.address);
    a.connect(qa, qb, to_b, mtu);
    b.connect(qb, qa, to_a, mtu);
    (a, qa, b, qb)
}

pub(crate) const fn remote(va: u64, key: LKey) -> roxe_transport::work::Remote {
    roxe_transport::work::Remote { va, r_key: RKey(key.0) }
}
