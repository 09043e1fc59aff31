//! The peer's end: an adapter that an agent drives.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use roxe_verbs::{Gid, ServiceType};

use crate::Outcome;
use crate::agent::{Agent, Answer, number};
use crate::end::{Card, DEPTH, Done, End, MEMORY, Q_KEY, Setup, Work};
use crate::peer::{Peer, TheirGid, gids};

/// An adapter of the peer's, open for as long as this lives.
pub(crate) struct Theirs {
    agent: Agent,
    name: &'static str,
    /// The index of its address among its GIDs, the address, and the interface that has it.
    source: u64,
    address: IpAddr,
    netdev: String,
    memory: Memory,
    psn: u32,
    srq: bool,
    /// Where datagrams go: a queue pair's number.
    target: Option<u32>,
    window: Option<u32>,
}

/// Its region.
struct Memory {
    va: u64,
    r_key: u32,
}

/// All rights, and that windows may be bound.
const ACCESS: u32 = 0b1_1111;
/// Local writes and remote reads.
const READ_ONLY: u32 = 0b101;

impl Theirs {
    pub(crate) fn open(peer: &Peer<'_>, address: IpAddr) -> Outcome<Self> {
        let mut agent = Agent::connect(peer.agent)?;
        let device = &peer.device;
        agent.ask(&format!("open dev={device}"))?;
        let found = gids(&mut agent)?.into_iter().find(|gid| gid.address == address);
        let TheirGid { index: source, netdev, .. } =
            found.ok_or_else(|| format!("{device} of {} has no address {address}", peer.agent))?;
        agent.ask("pd")?;
        agent.ask(&format!("cq depth={}", 4 * DEPTH))?;
        let region = agent.ask(&format!("mr pd=0 len={MEMORY} access={ACCESS}"))?;
        let (va, r_key) = region.region(MEMORY as u64)?;
        let memory = Memory { va, r_key };
        Ok(Self {
            agent,
            name: peer.kind(),
            source,
            address,
            netdev,
            memory,
            psn: 0,
            srq: false,
            target: None,
            window: None,
        })
    }

    fn path(&self, to: IpAddr) -> String {
        format!("dgid={} sgid={} hops=64", Gid::from_ip(to), self.source)
    }

    fn ask(&mut self, line: &str) -> Outcome<Answer> {
        self.agent.ask(line)
    }
}

impl End for Theirs {
    fn name(&self) -> &'static str {
        self.name
    }

    fn make(&mut self, setup: &Setup, which: usize) -> Outcome<Card> {
        self.psn = setup.psn[which];
        self.srq = setup.srq;
        let mut srq = "";
        if setup.srq {
            self.ask(&format!("srq pd=0 depth={DEPTH}"))?;
            srq = " srq=0";
        }
        let (kind, own) = match setup.service {
            ServiceType::Rc if !setup.remote_access => ("rc", "access=0".to_owned()),
            ServiceType::Rc => ("rc", "access=14".to_owned()),
            ServiceType::Uc => ("uc", "access=2".to_owned()),
            ServiceType::Ud => ("ud", format!("qkey={Q_KEY}")),
        };
        let made =
            self.ask(&format!("qp pd=0 cq=0 type={kind} send={DEPTH} recv={DEPTH} sigall=1{srq}"))?;
        self.ask(&format!("modify qp=0 state=init pkey=0 port=1 {own}"))?;
        let Memory { va, r_key } = self.memory;
        let qpn = made.number("qpn")? as u32;
        Ok(Card { address: self.address, qpn, psn: self.psn, va, r_key })
    }

    fn meet(&mut self, setup: &Setup, peer: &Card) -> Outcome {
        let Setup { timeout, retry_cnt, rnr_retry, rd_atomic, min_rnr_timer, .. } = setup;
        let path = self.path(peer.address);
        let connected =
            format!(" {path} mtu={} dest={} rq_psn={}", setup.path_mtu.bytes(), peer.qpn, peer.psn);
        let (rtr, rts) = match setup.service {
            ServiceType::Rc => (
                format!("{connected} dest_rd={rd_atomic} min_rnr={min_rnr_timer}"),
                format!(
                    " timeout={timeout} retry={retry_cnt} rnr_retry={rnr_retry} rd={rd_atomic}"
                ),
            ),
            ServiceType::Uc => (connected, String::new()),
            ServiceType::Ud => (String::new(), String::new()),
        };
        self.ask(&format!("modify qp=0 state=rtr{rtr}"))?;
        self.ask(&format!("modify qp=0 state=rts sq_psn={}{rts}", self.psn))?;
        if setup.service == ServiceType::Ud {
            self.ask(&format!("ah pd=0 {path}"))?;
            self.target = Some(peer.qpn);
        }
        Ok(())
    }

    fn join(&mut self, group: IpAddr) -> Outcome {
        let group = Gid::from_ip(group);
        self.ask(&format!("join netdev={} gid={group}", self.netdev))?;
        self.ask(&format!("attach qp=0 gid={group}"))?;
        Ok(())
    }

    fn send_to(&mut self, group: IpAddr) -> Outcome {
        self.ask("destroy ah=0")?;
        self.ask(&format!("ah pd=0 {}", self.path(group)))?;
        self.target = Some(0xff_ffff);
        Ok(())
    }

    fn fill(&mut self, at: u64, len: u64, seed: u64) -> Outcome {
        self.ask(&format!("fill mr=0 off={at} len={len} seed={seed}"))?;
        Ok(())
    }

    fn check(&mut self, at: u64, len: u64, seed: u64, skip: u64) -> Outcome {
        let line = format!("check mr=0 off={at} len={len} seed={seed} skip={skip}");
        let found = self.ask(&line)?;
        match found.number("wrong")? {
            0 => Ok(()),
            wrong => {
                let first = found.number("first")?;
                Err(format!("{wrong} of {len} bytes are wrong, the first is byte {first}").into())
            }
        }
    }

    fn word(&mut self, at: u64) -> Outcome<u64> {
        let found = self.ask(&format!("peek mr=0 off={at} len=8"))?;
        // The guest is little-endian.
        Ok(u64::from_str_radix(found.text("hex")?, 16)?.swap_bytes())
    }

    fn set_word(&mut self, at: u64, value: u64) -> Outcome {
        self.ask(&format!("poke mr=0 off={at} hex={:016x}", value.swap_bytes()))?;
        Ok(())
    }

    fn bind(&mut self) -> Outcome<u32> {
        let key = match self.window {
            Some(key) => key,
            None => self.ask("mw pd=0 type=2")?.number("rkey")? as u32,
        };
        // The low byte is the application's.
        let key = key & !0xff | key.wrapping_add(1) & 0xff;
        self.window = Some(key);
        self.ask(&format!(
            "send qp=0 id=99 op=bind mw=0 mr=0 off=0 len=4096 access=2 rkey={key} flags=s"
        ))?;
        match self.wait(1, Duration::from_secs(5))?[..] {
            [Done { id: 99, status: 0, .. }] => Ok(key),
            ref other => Err(format!("a window was not bound: {other:?}").into()),
        }
    }

    fn receive(&mut self, id: u64, at: u64, len: u32) -> Outcome {
        let to = if self.srq { "srq" } else { "qp" };
        let sge = if len == 0 { String::new() } else { format!(" sge=0:{at}:{len}") };
        self.ask(&format!("recv {to}=0 id={id}{sge}"))?;
        Ok(())
    }

    fn post(&mut self, id: u64, work: Work, at: u64, len: u32) -> Outcome {
        let what = match work {
            Work::Send => "send".to_owned(),
            Work::SendImm(imm) => format!("send_imm imm={imm}"),
            Work::SendInv(key) => format!("send_inv inv={key}"),
            Work::Write { va, r_key } => format!("write va={va} rkey={r_key}"),
            Work::WriteImm { va, r_key, imm } => {
                format!("write_imm va={va} rkey={r_key} imm={imm}")
            }
            Work::Read { va, r_key } => format!("read va={va} rkey={r_key}"),
            Work::CompareSwap { va, r_key, compare, swap } => {
                format!("cas va={va} rkey={r_key} compare={compare} swap={swap}")
            }
            Work::FetchAdd { va, r_key, add } => format!("faa va={va} rkey={r_key} add={add}"),
        };
        let sge = if len == 0 { String::new() } else { format!(" sge=0:{at}:{len}") };
        let to = match self.target {
            Some(qpn) => format!(" ah=0 rqpn={qpn} qkey={Q_KEY}"),
            None => String::new(),
        };
        self.ask(&format!("send qp=0 id={id} flags=s op={what}{sge}{to}"))?;
        Ok(())
    }

    fn read_only(&mut self) -> Outcome<(u64, u32)> {
        let region = self.ask(&format!("mr pd=0 of=0 access={READ_ONLY}"))?;
        region.region(MEMORY as u64)
    }

    fn destroy(&mut self) -> Outcome {
        self.ask("destroy qp=0")?;
        Ok(())
    }

    fn state(&mut self) -> Outcome<String> {
        Ok(self.ask("query qp=0")?.text("state")?.to_owned())
    }

    fn wait(&mut self, count: usize, patience: Duration) -> Outcome<Vec<Done>> {
        let found = self.ask(&format!("wait cq=0 n={count} ms={}", patience.as_millis()))?;
        found.all("wc").map(done).collect()
    }

    fn counters(&mut self) -> Outcome<BTreeMap<String, u64>> {
        Ok(self.ask("counters")?.numbers())
    }
}

/// `id,status,opcode,len,flags,extra,src_qp,qpn`.
fn done(text: &str) -> Outcome<Done> {
    let numbers: Vec<u64> = text.split(',').map(number).collect::<Outcome<_>>()?;
    let [id, status, opcode, len, flags, extra, source_qp, _] = numbers[..] else {
        return Err(format!("no completion: {text}").into());
    };
    let extra = |flag: u64| (flags & flag != 0).then_some(extra as u32);
    Ok(Done {
        id,
        status: status as u8,
        opcode: opcode as u32,
        len: len as u32,
        imm: extra(WITH_IMM),
        invalidated: extra(WITH_INV),
        source_qp: source_qp as u32,
    })
}

/// `IBV_WC_WITH_IMM`, `IBV_WC_WITH_INV`. Linux's rxe says the latter with the number that it has
/// inside the kernel, `IB_WC_WITH_INVALIDATE`, which libibverbs takes for `IBV_WC_IP_CSUM_OK`.
const WITH_IMM: u64 = 1 << 1;
const WITH_INV: u64 = 1 << 3 | 1 << 2;
