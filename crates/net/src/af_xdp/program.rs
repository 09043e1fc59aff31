//! The XDP program: loaded, attached to an interface, and told which socket has which queue.
//!
//! It is held by a bpf_link in both modes, so that it goes when the port or its process goes,
//! however that ends.

#![allow(unsafe_code, reason = "bpf_link_create has no safe form")]

use std::io;
use std::mem::MaybeUninit;
use std::net::IpAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use libbpf_rs::libbpf_sys::{
    self, BPF_XDP, XDP_FLAGS_DRV_MODE, XDP_FLAGS_SKB_MODE, bpf_link_create_opts,
};
use libbpf_rs::skel::{OpenSkel, SkelBuilder};
use libbpf_rs::{
    ErrorKind, MapCore, MapFlags, MapHandle, OpenObject, ProgramInput, ProgramMut, Xdp, XdpFlags,
};
use rustix::io::Errno;

use super::{Mode, OpenError};
use crate::neighbor::Interface;

#[allow(clippy::undocumented_unsafe_blocks, unreachable_pub, reason = "generated")]
mod skeleton {
    include!(concat!(env!("OUT_DIR"), "/redirect_roce.skel.rs"));
}
use skeleton::{RedirectRoceSkel, RedirectRoceSkelBuilder};

/// The program in the kernel, attached to nothing yet.
pub(super) struct Loaded<'a> {
    skeleton: RedirectRoceSkel<'a>,
    /// Whether it takes frames in several buffers.
    takes_frags: bool,
}

/// Where libbpf keeps a [`Loaded`].
pub(super) type Storage = MaybeUninit<OpenObject>;

/// The program at work. Dropped, it is detached.
pub(super) struct Attached {
    _link: OwnedFd,
    sockets: MapHandle,
    stats: MapHandle,
    owned: MapHandle,
    /// What the self-test counted.
    baseline: [u64; STATS.len()],
}

/// How the program came to be attached.
pub(super) struct Attachment {
    /// In the driver, or behind it.
    pub(super) native: bool,
    /// Whether the driver says that sockets may have frames without a copy.
    pub(super) offers_zero_copy: bool,
    /// Why native mode, though wanted, was not to be had.
    pub(super) refusal: Option<io::Error>,
}

impl<'a> Loaded<'a> {
    /// Loads the program; the one for linear frames only where the kernel knows no other.
    pub(super) fn load(
        storage: &'a mut Storage,
        linear_storage: &'a mut Storage,
    ) -> Result<Self, OpenError> {
        // Its messages would go to standard error; what matters comes back as an error number.
        libbpf_rs::set_print(None);
        let load = |storage, takes_frags: bool| {
            let mut open = RedirectRoceSkelBuilder::default().open(storage)?;
            open.progs.redirect_frags.set_autoload(takes_frags);
            open.progs.redirect_linear.set_autoload(!takes_frags);
            open.load()
        };
        let (loaded, takes_frags) = match load(storage, true) {
            Err(error) if error.kind() == ErrorKind::InvalidInput => {
                (load(linear_storage, false), false)
            }
            loaded => (loaded, true),
        };
        let skeleton = loaded.map_err(|error| refused("load the XDP program", error))?;
        Ok(Self { skeleton, takes_frags })
    }

    fn program(&self) -> &ProgramMut<'a> {
        let programs = &self.skeleton.progs;
        if self.takes_frags { &programs.redirect_frags } else { &programs.redirect_linear }
    }

    /// Attaches the program, native first where the mode leaves the choice.
    pub(super) fn attach(
        &self,
        interface: &Interface,
        mode: Mode,
    ) -> Result<(Attached, Attachment), OpenError> {
        let index = i32::try_from(interface.index).expect("the kernel's own numbers are such");
        let attach = |native| link(self.program().as_fd(), index, native);
        let (link, native, refusal) = match mode {
            Mode::Native => (attach(true), true, None),
            Mode::Generic => (attach(false), false, None),
            Mode::Auto => match attach(true) {
                Err(error) if !is_taken(&error) && !is_privilege(&error) => {
                    (attach(false), false, Some(error))
                }
                link => (link, true, None),
            },
        };
        let link = link.map_err(|error| self.explain(interface, index, error))?;

        let map = |map| MapHandle::try_from(map).map_err(|error| refused(ATTACH, error));
        let attached = Attached {
            _link: link,
            sockets: map(&self.skeleton.maps.sockets)?,
            stats: map(&self.skeleton.maps.stats)?,
            owned: map(&self.skeleton.maps.owned)?,
            baseline: [0; STATS.len()],
        };
        let features = self.query(index).map_or(0, |answer| answer.feature_flags);
        let offers_zero_copy = features & FEATURE_ZERO_COPY != 0;
        Ok((attached, Attachment { native, offers_zero_copy, refusal }))
    }

    /// Lets the program judge a RoCEv2 frame and another one as if they came to queue 0: the first
    /// must go to a socket. So the program, its map and the socket in it are proved, not the
    /// driver.
    pub(super) fn test(
        &self,
        attached: &mut Attached,
        interface: &Interface,
    ) -> Result<(), OpenError> {
        let program = self.program();
        for (port, expected) in [(4791_u16, XDP_REDIRECT), (4790, XDP_PASS)] {
            let frame = probe(port);
            let input = ProgramInput { data_in: Some(&frame), ..ProgramInput::default() };
            let verdict = program
                .test_run(input)
                .map_err(|error| refused("try the XDP program", error))?
                .return_value;
            if verdict != expected {
                let verdict = format!("action {verdict} on UDP port {port}, not {expected}");
                return Err(OpenError::SelfTest { interface: interface.name.clone(), verdict });
            }
        }
        attached.baseline = totals(&attached.stats);
        Ok(())
    }

    fn query(&self, index: i32) -> Option<libbpf_sys::bpf_xdp_query_opts> {
        Xdp::new(self.program().as_fd()).query(index, XdpFlags::NONE).ok()
    }

    fn explain(&self, interface: &Interface, index: i32, error: io::Error) -> OpenError {
        let name = interface.name.clone();
        match Errno::from_io_error(&error) {
            _ if is_taken(&error) => OpenError::ProgramAttached {
                interface: name,
                program: self.query(index).map_or_else(
                    || error.to_string(),
                    |it| {
                        let ids = [it.prog_id, it.drv_prog_id, it.skb_prog_id, it.hw_prog_id];
                        let id = ids.into_iter().find(|id| *id != 0).unwrap_or(0);
                        format!("program {id}")
                    },
                ),
            },
            Some(Errno::RANGE) => OpenError::MtuTooLarge { interface: name, mtu: interface.mtu },
            Some(Errno::OPNOTSUPP) => {
                OpenError::Unsupported { interface: name, what: "native XDP", source: error }
            }
            _ => OpenError::system(ATTACH, CAPABILITIES, error),
        }
    }
}

impl Attached {
    /// From now on frames of `queue` go to `socket`.
    pub(super) fn direct(&self, queue: u32, socket: BorrowedFd<'_>) -> Result<(), OpenError> {
        let socket = socket.as_raw_fd().to_ne_bytes();
        self.sockets
            .update(&queue.to_ne_bytes(), &socket, MapFlags::ANY)
            .map_err(|error| refused("put the socket into the XDP program's map", error))
    }

    /// From now on the socket gets what ARP, neighbour discovery and ICMP say to this address on
    /// this VLAN.
    pub(super) fn own(&self, address: IpAddr, vlan: Option<u16>) -> Result<(), OpenError> {
        self.owned
            .update(&owned_key(address, vlan), &[1], MapFlags::ANY)
            .map_err(|error| refused("put the address into the XDP program's map", error))
    }

    /// How often neighbours have told unasked what their MAC is.
    pub(super) fn announcements(&self) -> u64 {
        total(&self.stats, ANNOUNCED)
    }

    /// What the program counted on all processors, by name.
    pub(super) fn counters(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let totals = totals(&self.stats);
        let since = move |at| totals[at] - self.baseline[at];
        STATS.into_iter().enumerate().map(move |(at, name)| (name, since(at)))
    }
}

/// An address of the adapter's own, as the program's map has it.
fn owned_key(address: IpAddr, vlan: Option<u16>) -> Vec<u8> {
    let address = match address {
        IpAddr::V4(address) => address.to_ipv6_mapped(),
        IpAddr::V6(address) => address,
    };
    [&address.octets()[..], &u32::from(vlan.unwrap_or(0)).to_ne_bytes()].concat()
}

/// Each counter, of all processors together.
fn totals(stats: &MapHandle) -> [u64; STATS.len()] {
    std::array::from_fn(|at| total(stats, at))
}

/// One counter, of all processors together.
fn total(stats: &MapHandle, at: usize) -> u64 {
    let key = u32::try_from(at).expect("there are few").to_ne_bytes();
    let of_each = stats.lookup_percpu(&key, MapFlags::ANY).ok().flatten();
    let values = of_each.iter().flatten().filter_map(|value| value.first_chunk());
    values.map(|value| u64::from_ne_bytes(*value)).sum()
}

/// Attaches by a bpf_link, whose owner the program's life depends on. Not by
/// `bpf_program__attach_xdp`: that one leaves the mode to the kernel, which does not say which it
/// took.
fn link(program: BorrowedFd<'_>, index: i32, native: bool) -> io::Result<OwnedFd> {
    let options = bpf_link_create_opts {
        sz: size_of::<bpf_link_create_opts>() as libbpf_sys::size_t,
        flags: if native { XDP_FLAGS_DRV_MODE } else { XDP_FLAGS_SKB_MODE },
        ..bpf_link_create_opts::default()
    };
    // SAFETY: the call reads `options`, which says how long it is, and keeps nothing.
    let fd = unsafe { libbpf_sys::bpf_link_create(program.as_raw_fd(), index, BPF_XDP, &options) };
    if fd < 0 {
        return Err(io::Error::from_raw_os_error(-fd));
    }
    // SAFETY: the kernel made this descriptor just now, for us alone.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Some program is attached already, in the same mode or in the other.
fn is_taken(error: &io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::BUSY | Errno::EXIST))
}

fn is_privilege(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::PermissionDenied
}

fn refused(what: &'static str, error: libbpf_rs::Error) -> OpenError {
    let kind = match error.kind() {
        ErrorKind::PermissionDenied => io::ErrorKind::PermissionDenied,
        _ => io::ErrorKind::Other,
    };
    OpenError::system(what, CAPABILITIES, io::Error::new(kind, format!("{error:#}")))
}

/// The shortest frame to a UDP port that the program looks into.
fn probe(port: u16) -> [u8; 60] {
    let mut frame = [0; 60];
    frame[12..14].copy_from_slice(&[0x08, 0x00]);
    frame[14..34].copy_from_slice(&[
        0x45, 0, 0, 46, 0, 0, 0x40, 0, 64, 17, 0, 0, 127, 0, 0, 1, 127, 0, 0, 1,
    ]);
    frame[36..38].copy_from_slice(&port.to_be_bytes());
    frame[38..40].copy_from_slice(&26_u16.to_be_bytes());
    frame
}

const ATTACH: &str = "attach the XDP program";
const CAPABILITIES: &str = "CAP_BPF and CAP_NET_ADMIN";

/// NETDEV_XDP_ACT_XSK_ZEROCOPY of linux/netdev.h.
const FEATURE_ZERO_COPY: u64 = 8;

/// Of `enum xdp_action` in linux/bpf.h.
const XDP_PASS: u32 = 2;
const XDP_REDIRECT: u32 = 4;

/// What the program counts, in the order of `bpf/redirect_roce.h`.
const STATS: [&str; 10] = [
    "xdp_redirected",
    "xdp_no_socket",
    "xdp_passed",
    "xdp_options",
    "xdp_fragment",
    "xdp_extension",
    "xdp_vlan_tags",
    "xdp_short",
    "xdp_owned",
    "xdp_announced",
];

/// The place of `xdp_announced`.
const ANNOUNCED: usize = STATS.len() - 1;

/// How many queues the program's map has room for.
pub(super) const MAX_QUEUES: u32 = 64;

#[cfg(test)]
mod tests;
