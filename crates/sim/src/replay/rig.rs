//! One device set up for one side of a conversation, and frames into it and out of it.
//!
//! A device chooses its queue pair numbers and keys by itself, so that nobody can guess them, and
//! there is no way to ask for certain ones: a recording that could would be a recording that could
//! clash. So the numbers are changed in the frames that are played: the destination queue pair, and
//! the keys of the device's own memory, in RETH, AtomicETH and IETH. The frame is then sealed anew
//! over its recorded outer headers; one whose ICRC was wrong gets one that is wrong by the same
//! bits. All else stays as it was recorded: addresses, PSNs, virtual addresses, the peer's numbers
//! and keys, so the device's own frames need no translation but for the source of datagrams. VLAN
//! tags are left out: a recording has or lacks them by where in a host it was taken.

use std::collections::BTreeMap;
use std::net::IpAddr;

use roxe_device::address_handle::AddressVector;
use roxe_device::gid_table::GidEntry;
use roxe_device::memory::Registration;
use roxe_device::protection_domain::Pd;
use roxe_device::{
    CqId, Device, HostMemory, HostRegion, Limits, QueuePairInit, ReceiveCapacity, VecMemory,
};
use roxe_trace::IcrcVerdict;
use roxe_transport::conduct::Conduct;
use roxe_transport::qp_state::{Attribute, AttributeMask, QpState, ServiceType, TRANSITIONS};
use roxe_transport::work::{
    AccessFlags, Attributes, Completion, Data, FastRegistration, LocalOperation, ReceiveRequest,
    SendOperation, SendRequest, Sge, Span,
};
use roxe_transport::{Outlet, SendCapacity};
use roxe_wire::{
    AckTimeout, Addressing, Body, Gid, GidType, Headers, ICRC_LEN, Instant, LKey, Mtu, Opcode,
    PKey, Packet, Psn, QKey, Qpn, RKey, Received, RnrTimer, Room, icrc,
};

use super::record::Item;

/// A packet that the device sent.
#[derive(Clone, Debug)]
pub(super) struct Sent {
    pub(super) opcode: &'static Opcode,
    pub(super) headers: Headers,
    pub(super) payload: Vec<u8>,
}

/// How a queue pair is set.
#[derive(Clone, Copy, Debug)]
pub(super) struct Setup {
    pub(super) service: ServiceType,
    pub(super) peer_address: IpAddr,
    pub(super) peer_qp: Qpn,
    pub(super) path_mtu: Mtu,
    pub(super) p_key: PKey,
    pub(super) q_key: QKey,
    pub(super) sq_psn: Psn,
    pub(super) rq_psn: Psn,
    pub(super) access: AccessFlags,
    pub(super) min_rnr_timer: RnrTimer,
    pub(super) is_gsi: bool,
    pub(super) retries: Retries,
}

/// How often a requester tries once more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Retries {
    /// When its timer ran out.
    pub(super) timeouts: u8,
    /// After RNR NAKs.
    pub(super) not_ready: u8,
}

impl Retries {
    /// As often as there is; after RNR NAKs always.
    pub(super) const ENDLESS: Self = Self { timeouts: 7, not_ready: 7 };
}

/// The device.
#[derive(Debug)]
pub(super) struct Rig {
    pub(super) device: Device<VecMemory>,
    pub(super) now: Instant,
    pub(super) pd: Pd,
    cq: CqId,
    room: Vec<u8>,
    wr_id: u64,
    /// Memory that is given back once a request is done.
    lent: BTreeMap<u64, LKey>,
    /// Memory of the request that was done last.
    done: Option<LKey>,
    /// How long regions are, by their keys.
    lens: BTreeMap<u32, u64>,
    /// How many bytes further ones may have.
    left: u64,
}

impl Rig {
    /// A device with one address.
    pub(super) fn new(own: IpAddr, conduct: Conduct) -> Result<Self, String> {
        let mut device = Device::new(Limits::DEFAULT, SEED, VecMemory::new());
        device.set_conduct(conduct);
        let gid = Gid::from_ip(own);
        let entry = GidEntry { gid, gid_type: GidType::RoceV2, vlan: None };
        device.add_gid(entry).map_err(|error| error.to_string())?;
        let pd = device.alloc_pd().map_err(|error| error.to_string())?;
        let cq = device.create_completion_queue(4096).map_err(|error| error.to_string())?;
        let room = vec![0; Mtu::B4096.bytes() as usize + 128];
        Ok(Self {
            device,
            now: Instant::ZERO,
            pd,
            cq,
            room,
            wr_id: 0,
            lent: BTreeMap::new(),
            done: None,
            lens: BTreeMap::new(),
            left: MOST_MEMORY,
        })
    }

    /// A queue pair in RTS.
    pub(super) fn queue_pair(&mut self, setup: &Setup) -> Result<Qpn, String> {
        let init = QueuePairInit {
            service: setup.service,
            pd: self.pd,
            send_cq: self.cq,
            receive_cq: self.cq,
            srq: None,
            send: SendCapacity { depth: 4096, max_sge: 1, max_inline: 0 },
            receive: ReceiveCapacity { depth: 16, max_sge: 1 },
            signal_all: true,
        };
        let made = match setup.is_gsi {
            true => self.device.create_gsi_queue_pair(&init),
            false => self.device.create_queue_pair(&init),
        };
        let qpn = made.map_err(|error| error.to_string())?;
        self.device.set_window(qpn, WINDOW).map_err(|error| error.to_string())?;
        let values = Attributes {
            qpn,
            cur_state: QpState::default(),
            dest_qp: setup.peer_qp,
            path_mtu: setup.path_mtu,
            access: setup.access,
            q_key: setup.q_key,
            p_key: setup.p_key,
            sq_psn: setup.sq_psn,
            rq_psn: setup.rq_psn,
            max_rd_atomic: MOST_READS,
            max_dest_rd_atomic: MOST_READS,
            timeout: AckTimeout::new(LONGEST_TIMEOUT).unwrap_or_default(),
            retry_cnt: setup.retries.timeouts,
            rnr_retry: setup.retries.not_ready,
            min_rnr_timer: setup.min_rnr_timer,
        };
        let vector = Self::vector(setup.peer_address);
        let steps = [QpState::Reset, QpState::Init, QpState::Rtr, QpState::Rts];
        for pair in steps.windows(2) {
            let required = TRANSITIONS
                .iter()
                .find(|step| {
                    (step.service, step.from, step.to) == (setup.service, pair[0], pair[1])
                })
                .map_or(AttributeMask::NONE, |step| step.required);
            self.device
                .modify_queue_pair(qpn, pair[1], required, &values, Some(&vector))
                .map_err(|error| error.to_string())?;
        }
        Ok(qpn)
    }

    /// A queue pair grants other rights from now on.
    pub(super) fn grant(&mut self, qpn: Qpn, access: AccessFlags) -> Result<(), String> {
        let info = self.device.query_queue_pair(qpn).map_err(|error| error.to_string())?;
        let values = Attributes { access, ..info.attributes };
        let given = AttributeMask::of(&[Attribute::AccessFlags]);
        self.device
            .modify_queue_pair(qpn, QpState::Rts, given, &values, None)
            .map_err(|error| error.to_string())
    }

    pub(super) fn vector(to: IpAddr) -> AddressVector {
        AddressVector::new(0, Gid::from_ip(to))
    }

    /// Memory with these bytes at this address.
    pub(super) fn register(
        &mut self,
        va: u64,
        bytes: Vec<u8>,
        access: AccessFlags,
    ) -> Result<(HostRegion, LKey), String> {
        let len = bytes.len() as u64;
        self.left = self.left.checked_sub(len).ok_or("its memory is too large to hold")?;
        let host = self.device.host_mut().add(bytes);
        let what = Registration { pd: self.pd, host, va, len, access };
        let key = self.device.register_memory(&what).map_err(|error| error.to_string())?;
        self.lens.insert(key.0, len);
        Ok((host, key))
    }

    /// Memory whose key a peer can take away: registered by a work request of the queue pair.
    pub(super) fn register_fast(
        &mut self,
        qpn: Qpn,
        va: u64,
        bytes: Vec<u8>,
        access: AccessFlags,
    ) -> Result<(HostRegion, LKey), String> {
        let len = bytes.len() as u64;
        let host = self.device.host_mut().add(bytes);
        let key = self.device.alloc_fast_memory(self.pd, host, len);
        let key = key.map_err(|error| error.to_string())?;
        let (region, new_key) = (RKey(key.0), RKey(key.0));
        let what = FastRegistration { region, new_key, span: Span { va, len }, access };
        let operation = SendOperation::Local(LocalOperation::RegisterMemory(what));
        self.post(qpn, operation, &[], false, None)?;
        while self.poll().is_some() {}
        while self.completion().is_some() {}
        Ok((host, key))
    }

    /// A receive for a message of `len` bytes; says where it will lie.
    pub(super) fn post_receive(&mut self, qpn: Qpn, len: u32) -> Result<HostRegion, String> {
        let (host, l_key) =
            self.register(RECEIVES, vec![0; len as usize], AccessFlags::LOCAL_WRITE)?;
        let sges = [Sge { va: RECEIVES, len, l_key }];
        self.wr_id += 1;
        let request = ReceiveRequest { wr_id: self.wr_id, sges: &sges };
        self.device.post_receive(qpn, &request).map_err(|error| error.to_string())?;
        self.lent.insert(self.wr_id, l_key);
        Ok(host)
    }

    pub(super) fn post(
        &mut self,
        qpn: Qpn,
        operation: SendOperation,
        sges: &[Sge],
        solicited: bool,
        target: Option<roxe_transport::work::DatagramTarget>,
    ) -> Result<u64, String> {
        self.wr_id += 1;
        let request = SendRequest {
            wr_id: self.wr_id,
            operation,
            data: Data::Regions(sges),
            signaled: true,
            solicited,
            fence: false,
            target,
        };
        self.device.post_send(qpn, &request).map_err(|error| error.to_string())?;
        Ok(self.wr_id)
    }

    /// Plays a recorded frame to queue pair `to`, with `keys` in the place of those recorded.
    pub(super) fn feed(&mut self, item: &Item, to: Qpn, keys: &BTreeMap<u32, LKey>) {
        let mut body = item.body.clone();
        let mut headers = item.headers;
        if headers.bth.dest_qp != Qpn::MULTICAST {
            headers.bth.dest_qp = to;
        }
        let ours = |key: RKey| match keys.get(&key.0) {
            Some(ours) => RKey(ours.0),
            None => key,
        };
        if let Some(reth) = &mut headers.reth {
            reth.r_key = ours(reth.r_key);
        }
        if let Some(atomic) = &mut headers.atomic_eth {
            atomic.r_key = ours(atomic.r_key);
        }
        if let Some(ieth) = &mut headers.ieth {
            ieth.r_key = ours(ieth.r_key);
        }
        let sealed = body.len().saturating_sub(ICRC_LEN);
        if headers.emit(&mut body[..sealed]).is_err() {
            return;
        }
        let right = icrc::compute(&item.cover, &body[..sealed], &[]);
        let wrong_by = match item.icrc {
            IcrcVerdict::Bad { expected, found } => expected ^ found,
            _ => 0,
        };
        body[sealed..].copy_from_slice(&(right ^ wrong_by).to_le_bytes());
        let received = Received {
            // Tags are what the place of the recording made of them.
            addressing: Addressing { vlan: None, ..item.addressing },
            ip_header: Some(item.ip.header()),
            cover: Some(item.cover),
            body: Body::whole(&body),
        };
        self.device.handle_packet(self.now, received);
    }

    /// The next packet that the device sends.
    pub(super) fn poll(&mut self) -> Option<Sent> {
        let outlet = Outlet { room: Room::whole(&mut self.room), elide: false };
        let transmit = self.device.poll_transmit(self.now, outlet)?;
        let packet = &self.room[..transmit.packet.len + ICRC_LEN];
        let packet = Packet::parse(Body::whole(packet)).ok()?;
        Some(Sent {
            opcode: packet.opcode,
            headers: packet.headers,
            payload: packet.payload.pieces().concat(),
        })
    }

    /// How the device says how long its timers run: no frame tells how long the recorded ones did.
    pub(super) fn patience() -> String {
        let longest = AckTimeout::new(LONGEST_TIMEOUT).unwrap_or_default();
        format!(" after {:.1?}", longest.duration().unwrap_or_default())
    }

    /// Why queue pairs of the device ended.
    pub(super) fn endings(&self) -> impl Iterator<Item = String> {
        self.device.ended_queue_pairs().map(|story| story.sentence())
    }

    /// Time passes until the device's next timer runs out. `false` when it has none.
    pub(super) fn wait(&mut self) -> bool {
        let Some(at) = self.device.poll_timeout() else { return false };
        self.now = self.now.max(at);
        self.device.handle_timeout(self.now);
        true
    }

    /// The memory of a request may go once it is done.
    pub(super) fn give_back_with(&mut self, wr_id: u64, key: LKey) {
        self.lent.insert(wr_id, key);
    }

    /// The next completion. The memory of its request stays until the one after it.
    pub(super) fn completion(&mut self) -> Option<Completion> {
        if let Some(key) = self.done.take() {
            // A region of our own that nobody uses any more can always go.
            if self.device.deregister_memory(key).is_ok() {
                self.left += self.lens.remove(&key.0).unwrap_or(0);
            }
        }
        let mut room = [Completion::BLANK];
        let completion = (self.device.poll_completions(self.cq, &mut room) != 0).then(|| room[0]);
        self.done = completion.and_then(|completion| self.lent.remove(&completion.wr_id));
        completion
    }

    pub(super) fn read(&self, host: HostRegion, offset: u64, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        if self.device.host().read(host, offset, &mut bytes).is_err() {
            bytes.clear();
        }
        bytes
    }
}

/// All regions of a device together.
const MOST_MEMORY: u64 = 1 << 30;

/// Any will do: the numbers that follow from it are changed in the frames.
const SEED: u64 = 0x726f_7865;

/// Where receives lie, as the device counts.
const RECEIVES: u64 = 0x1000;

/// More than recorded requesters have outstanding.
const MOST_READS: u8 = 128;

/// More packets than recorded requesters have unacknowledged.
const WINDOW: u32 = 1 << 20;

/// Hours: the device's timers run out only where the recording shows that its sender's did.
const LONGEST_TIMEOUT: u8 = 31;
