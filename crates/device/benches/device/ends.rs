//! Two devices back to back, one thread for both: what a port does between them, and no more.
//!
//! A turn is what a port does in one go: it takes up to [`BATCH`] packets from a device, frames and
//! seals each at once in buffers that it uses again and again, and the other device gets them.

use std::hint::black_box;
use std::net::{IpAddr, Ipv4Addr};

use roxe_device::address_handle::AddressVector;
use roxe_device::gid_table::GidEntry;
use roxe_device::memory::Registration;
use roxe_device::{CqId, Device, Limits, QueuePairInit, ReceiveCapacity, VecMemory};
use roxe_transport::qp_state::{Attribute as A, AttributeMask, QpState, ServiceType};
use roxe_transport::work::{
    AccessFlags, Attributes, Completion, CompletionStatus, Data, PathId, ReceiveRequest, Remote,
    SendOperation, SendRequest, Sge,
};
use roxe_transport::{Outlet, SendCapacity};
use roxe_wire::{
    AckTimeout, Frame, FrameTemplate, Gid, GidType, ICRC_LEN, Instant, LKey, MacAddress, Mtu, PKey,
    Path, Psn, QKey, Qpn, RKey, RawFrame, RnrTimer, Room, icrc,
};

/// Packets that a port takes from a device in one go.
pub(crate) const BATCH: usize = 64;

/// Bytes that each end has registered.
const MEMORY: usize = 8 << 20;

/// Room for a frame.
const FRAME: usize = 4352;

/// Requests that a queue holds.
const DEPTH: u32 = 64;

/// One end: a device, and the frames that have left it.
pub(crate) struct End {
    pub(crate) device: Device<VecMemory>,
    pub(crate) qpns: Vec<Qpn>,
    cq: CqId,
    key: LKey,
    /// For each path the headers of its frames, and which version of the path they are for.
    templates: Vec<Option<(u64, FrameTemplate)>>,
    frames: Vec<u8>,
    /// Where each frame begins, and where it ends.
    filled: Vec<(usize, usize)>,
    room: Vec<Completion>,
}

/// Two ends whose queue pairs are connected, the first with the first and so on.
pub(crate) struct Ends {
    pub(crate) a: End,
    pub(crate) b: End,
    pub(crate) now: Instant,
    /// Packets that were lost, of [`Ends::moved`]; which ones a generator says.
    loss: Option<Loss>,
    /// Packets that left `a`.
    pub(crate) moved: u64,
    /// Whether the receivers check ICRCs.
    pub(crate) checked: bool,
}

/// One packet in so many is lost, as a seeded generator has it.
struct Loss {
    one_in: u64,
    state: u64,
}

/// The next number of a generator: xorshift of 64 bits.
pub(crate) fn next_random(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state >> 11
}

impl Loss {
    fn strikes(&mut self) -> bool {
        next_random(&mut self.state).is_multiple_of(self.one_in)
    }
}

impl Ends {
    pub(crate) fn new(queue_pairs: usize, mtu: Mtu) -> Self {
        let (mut a, mut b) = (End::new(1), End::new(2));
        for _ in 0..queue_pairs {
            let (qa, qb) = (a.create(), b.create());
            a.connect(qa, qb, 2, mtu);
            b.connect(qb, qa, 1, mtu);
        }
        Self { a, b, now: Instant::ZERO, loss: None, moved: 0, checked: true }
    }

    /// From now on one packet in `one_in` is lost, on its way in either direction.
    pub(crate) fn lose(&mut self, one_in: u64) {
        self.loss = Some(Loss { one_in, state: 0x1234_5678_9abc_def1 });
    }

    /// One turn each way. Says whether anything moved.
    pub(crate) fn turn(&mut self) -> bool {
        self.now = self.now + std::time::Duration::from_micros(1);
        let requests = requests_out(&mut self.a, self.now);
        self.a.lose(self.loss.as_mut());
        requests_in(&mut self.b, self.now, &self.a, self.checked);
        let answers = answers_out(&mut self.b, self.now);
        self.b.lose(self.loss.as_mut());
        answers_in(&mut self.a, self.now, &self.b, self.checked);
        self.moved += requests as u64;
        requests + answers != 0
    }

    /// Turns until `done` completions have come to `a`. Time passes when nothing else does.
    pub(crate) fn run(&mut self, done: usize) {
        let mut left = done;
        while left > 0 {
            if !self.turn() {
                let deadlines = [self.a.device.poll_timeout(), self.b.device.poll_timeout()];
                self.now = deadlines.into_iter().flatten().min().expect("nothing moves");
                self.a.device.handle_timeout(self.now);
                self.b.device.handle_timeout(self.now);
            }
            left -= self.a.reap();
        }
        self.b.reap();
    }

    /// The WRITE, or with `read` the READ, of so many bytes at the same place of both ends.
    pub(crate) fn post_transfer(&mut self, qp: usize, va: u64, len: u32, read: bool) {
        let remote = Remote { va, r_key: RKey(self.b.key.0) };
        let operation =
            if read { SendOperation::Read(remote) } else { SendOperation::Write(remote) };
        let sges = [Sge { va, len, l_key: self.a.key }];
        self.a.post(qp, operation, Data::Regions(&sges));
    }

    /// The WRITE of these few bytes.
    pub(crate) fn post_inline_write(&mut self, qp: usize, bytes: &[u8]) {
        let remote = Remote { va: 0, r_key: RKey(self.b.key.0) };
        self.a.post(qp, SendOperation::Write(remote), Data::Inline(bytes));
    }

    /// The SEND of these few bytes, and a receive for it.
    pub(crate) fn post_inline_send(&mut self, qp: usize, bytes: &[u8]) {
        let sges = [Sge { va: 64, len: 64, l_key: self.b.key }];
        let request = ReceiveRequest { wr_id: 0, sges: &sges };
        self.b.device.post_receive(self.b.qpns[qp], &request).unwrap();
        self.a.post(qp, SendOperation::Send, Data::Inline(bytes));
    }
}

// One stage each, so that a profile tells them apart; equal ones would become one.
#[inline(never)]
fn requests_out(end: &mut End, now: Instant) -> usize {
    end.fill(now)
}

#[inline(never)]
fn answers_out(end: &mut End, now: Instant) -> usize {
    black_box(end).fill(now)
}

#[inline(never)]
fn requests_in(end: &mut End, now: Instant, from: &End, checked: bool) {
    end.take_in(now, from, checked);
}

#[inline(never)]
fn answers_in(end: &mut End, now: Instant, from: &End, checked: bool) {
    black_box(end).take_in(now, from, checked);
}

impl End {
    fn new(number: u8) -> Self {
        let mut host = VecMemory::default();
        let region = host.add(vec![7; MEMORY]);
        let mut device = Device::new(Limits::DEFAULT, u64::from(number), host);
        let gid = Gid::from_ip(address(number));
        device.add_gid(GidEntry { gid, gid_type: GidType::RoceV2, vlan: None }).unwrap();
        let pd = device.alloc_pd().unwrap();
        let cq = device.create_completion_queue(1 << 14).unwrap();
        let access = AccessFlags::from_bits(0xf).unwrap();
        let what = Registration { pd, host: region, va: 0, len: MEMORY as u64, access };
        let key = device.register_memory(&what).unwrap();
        Self {
            device,
            qpns: Vec::new(),
            cq,
            key,
            templates: Vec::new(),
            frames: vec![0; BATCH * FRAME],
            filled: Vec::with_capacity(BATCH),
            room: vec![Completion::BLANK; BATCH],
        }
    }

    fn create(&mut self) -> Qpn {
        let pd = roxe_device::protection_domain::Pd(0);
        let init = QueuePairInit {
            service: ServiceType::Rc,
            pd,
            send_cq: self.cq,
            receive_cq: self.cq,
            srq: None,
            send: SendCapacity { depth: DEPTH, max_sge: 1, max_inline: 64 },
            receive: ReceiveCapacity { depth: DEPTH, max_sge: 1 },
            signal_all: true,
        };
        let qpn = self.device.create_queue_pair(&init).unwrap();
        self.qpns.push(qpn);
        qpn
    }

    fn connect(&mut self, own: Qpn, peer: Qpn, to: u8, mtu: Mtu) {
        let attributes = Attributes {
            qpn: own,
            cur_state: QpState::default(),
            dest_qp: peer,
            path_mtu: mtu,
            access: AccessFlags::from_bits(0xf).unwrap(),
            q_key: QKey::default(),
            p_key: PKey::DEFAULT,
            sq_psn: Psn::new(own.get()),
            rq_psn: Psn::new(peer.get()),
            max_rd_atomic: 16,
            max_dest_rd_atomic: 16,
            timeout: AckTimeout::new(14).unwrap(),
            retry_cnt: 7,
            rnr_retry: 7,
            min_rnr_timer: RnrTimer::from_bits(1),
        };
        let destination = Gid::from_ip(address(to));
        let vector = AddressVector { hop_limit: 64, ..AddressVector::new(0, destination) };
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
            self.device.modify_queue_pair(own, state, given, &attributes, Some(&vector)).unwrap();
        }
    }

    fn post(&mut self, qp: usize, operation: SendOperation, data: Data<'_>) {
        let request = SendRequest {
            wr_id: qp as u64,
            operation,
            data,
            signaled: true,
            solicited: false,
            fence: false,
            target: None,
        };
        self.device.post_send(self.qpns[qp], &request).unwrap();
    }

    /// Takes out all completions; says how many.
    fn reap(&mut self) -> usize {
        let mut all = 0;
        loop {
            let some = self.device.poll_completions(self.cq, &mut self.room);
            let right = self.room[..some].iter().all(|c| c.status == CompletionStatus::Success);
            assert!(right, "a request failed");
            all += some;
            if some == 0 {
                return all;
            }
        }
    }

    /// Takes packets from the device, and makes a frame of each while it is in cache.
    fn fill(&mut self, now: Instant) -> usize {
        self.filled.clear();
        for at in 0..BATCH {
            let frame = &mut self.frames[at * FRAME..][..FRAME];
            let outlet = Outlet { room: Room::whole(&mut frame[HEADERS..]), elide: false };
            let Some(transmit) = self.device.poll_transmit(now, outlet) else { break };
            let end = HEADERS + transmit.packet.len + ICRC_LEN;
            let start = self.seal(at, end, transmit.path.0);
            self.filled.push((start, end));
        }
        self.filled.len()
    }

    /// Writes the headers before a packet, and the ICRC behind it. Says where the frame begins.
    #[inline(never)]
    fn seal(&mut self, at: usize, end: usize, path: u32) -> usize {
        let frame = &mut self.frames[at * FRAME..][..FRAME];
        let version = self.device.paths().version(PathId(path));
        let index = path as usize;
        if self.templates.len() <= index {
            self.templates.resize(index + 1, None);
        }
        let template = match &mut self.templates[index] {
            Some((made_for, template)) if Some(*made_for) == version => template,
            stale => &mut stale.insert((version.unwrap(), template(&self.device, path))).1,
        };
        let start = HEADERS - template.headers_len();
        let cover = template.write((end - HEADERS) as u16, 7, &mut frame[start..]).unwrap();
        assert!(icrc::seal(&cover, Room::whole(&mut frame[HEADERS..end])));
        start
    }

    fn lose(&mut self, loss: Option<&mut Loss>) {
        let Some(loss) = loss else { return };
        for frame in &mut self.filled {
            if loss.strikes() {
                frame.1 = 0;
            }
        }
    }

    fn take_in(&mut self, now: Instant, from: &Self, checked: bool) {
        for (frame, (start, end)) in from.frames.chunks_exact(FRAME).zip(&from.filled) {
            let Some(bytes) = frame.get(*start..*end) else { continue };
            let mut received = Frame::parse(RawFrame::ethernet(bytes)).unwrap().received();
            if !checked {
                received.cover = None;
            }
            self.device.handle_packet(now, received);
        }
    }
}

/// Room for Ethernet, IPv4 and UDP headers; the packet behind them begins at a multiple of 4.
const HEADERS: usize = 44;

fn address(number: u8) -> IpAddr {
    IpAddr::V4(Ipv4Addr::new(192, 0, 2, number))
}

fn template(device: &Device<VecMemory>, path: u32) -> FrameTemplate {
    let to = device.paths().get(PathId(path)).unwrap().addressing;
    let ethernet = (MacAddress([2, 0, 0, 0, 0, 1]), MacAddress([2, 0, 0, 0, 0, 2]));
    FrameTemplate::new(&Path { ethernet, ..to.path().unwrap() })
}
