//! What ibv_rc_pingpong, ibv_uc_pingpong, ibv_ud_pingpong and ibv_srq_pingpong say to each other
//! over TCP: the bytes of rdma-core 44.
//!
//! | step | client | server | bytes |
//! |---|---|---|---|
//! | 1 | its queue pair | | [`Destination::LEN`] |
//! | 2 | | connects, and says its own | [`Destination::LEN`] |
//! | 3 | "done" | | 5, [`DONE`](crate::side_channel::DONE) |
//!
//! Of ibv_srq_pingpong each says [`QUEUE_PAIRS`] in steps 1 and 2, however many it has: the others
//! are zero. Then both close the connection; the client connects its queue pair and sends first.
//!
//! This program goes on, with its like: the client says its [`rules`], then the server, and the
//! connection stays until one of them ends. Others close it without looking.

use std::str;

use roxe_verbs::{Gid, Psn, Qpn};

use crate::perf::wire::{Fields, shown};

/// Queue pairs that are said for a shared receive queue.
pub(crate) const QUEUE_PAIRS: usize = 256;

/// What has to be the same on both sides, as it is said.
pub(crate) fn rules(text: &str) -> [u8; RULES_LEN] {
    let mut bytes = [0; RULES_LEN];
    let len = text.len().min(RULES_LEN);
    bytes[..len].copy_from_slice(&text.as_bytes()[..len]);
    bytes
}

/// Whether a peer has the same.
///
/// # Errors
/// In a sentence.
pub(crate) fn check_rules(peers: &[u8; RULES_LEN], own: &[u8; RULES_LEN]) -> Result<(), String> {
    if peers == own {
        return Ok(());
    }
    let text = |bytes: &[u8; RULES_LEN]| {
        let text = String::from_utf8_lossy(bytes);
        text.trim_end_matches('\0').to_owned()
    };
    let [peers, own] = [peers, own].map(text);
    Err(format!("the peer's pingpong is `{peers}`, this side's `{own}`: both have to be the same"))
}

/// Bytes of rules: `srq -s 1073741824 -n 4294967295 -m 4096` fits.
const RULES_LEN: usize = 64;

/// A queue pair.
///
/// As text, in hexadecimal, with a zero byte at the end:
///
/// ```text
/// LID :QPN   :PSN   :GID
/// 0000:00001b:7ab123:00000000000000000000FFFFC0000201
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Destination {
    /// Its port's local identifier; of RoCE always 0.
    pub(crate) lid: u16,
    /// Its number; 0 where there is none.
    pub(crate) qpn: Qpn,
    /// The PSN of its first request.
    pub(crate) psn: Psn,
    /// Its address.
    pub(crate) gid: Gid,
}

impl Destination {
    /// Bytes, with the zero at the end.
    pub(crate) const LEN: usize = 52;

    /// Bytes by which a line is known.
    pub(crate) const BEGIN: usize = 5;

    /// Whether what a peer says begins as a line does.
    ///
    /// # Errors
    /// In a sentence.
    pub(crate) fn check_begin(bytes: &[u8]) -> Result<(), String> {
        match Fields(bytes).number(4) {
            Some(_) => Ok(()),
            None if bytes.get(1) == Some(&b'.') => {
                Err("the peer is perf, or one of perftest, and this is pingpong".to_owned())
            }
            None => Err(format!(
                "the peer's queue pair cannot be read: is it a pingpong? It says {}",
                shown(bytes)
            )),
        }
    }

    /// As it is said. The letters of the address are capitals, which the other programs read as
    /// well but do not write: so their like know each other.
    pub(crate) fn to_line(self) -> [u8; Self::LEN] {
        let gid = u128::from_be_bytes(self.gid.0);
        let Self { lid, qpn, psn, .. } = self;
        let text = format!("{lid:04x}:{:06x}:{:06x}:{gid:032X}\0", qpn.get(), psn.get());
        let mut line = [0; Self::LEN];
        line.copy_from_slice(text.as_bytes());
        line
    }

    /// Whether a line comes from our like: an address without letters does not tell.
    pub(crate) fn is_of_our_like(line: &[u8; Self::LEN]) -> bool {
        line.iter().any(u8::is_ascii_uppercase)
    }

    /// What a peer says.
    ///
    /// # Errors
    /// In a sentence.
    pub(crate) fn parse(line: &[u8; Self::LEN]) -> Result<Self, String> {
        let mut rest = Fields(&line[..]);
        let mut read = || {
            let (lid, qpn, psn) = (rest.number(4)?, rest.number(6)?, rest.number(6)?);
            let (gid, end) = rest.0.split_at_checked(32)?;
            let is_right = end == [0] && gid.iter().all(u8::is_ascii_hexdigit);
            let gid = u128::from_str_radix(str::from_utf8(gid).ok()?, 16).ok()?;
            is_right.then_some(Self {
                lid: u16::try_from(lid).ok()?,
                qpn: Qpn::new(u32::try_from(qpn).ok()?),
                psn: Psn::new(u32::try_from(psn).ok()?),
                gid: Gid(gid.to_be_bytes()),
            })
        };
        read().ok_or_else(|| {
            format!(
                "the peer's queue pair cannot be read: is it a pingpong of the same service? It \
                 says {}",
                shown(line)
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Written down from how ibv_rc_pingpong formats it.
    const LINE: &[u8; 52] = b"0000:000012:01c8fe:00000000000000000000ffff0a0a0002\0";

    #[test]
    fn a_queue_pair_is_said_as_ibv_rc_pingpong_says_it() {
        let destination = Destination {
            lid: 0,
            qpn: Qpn::new(0x12),
            psn: Psn::new(0x1_c8fe),
            gid: Gid::from_ip("10.10.0.2".parse().unwrap()),
        };
        assert_eq!(Destination::parse(LINE), Ok(destination));
        let said = b"0000:000012:01c8fe:00000000000000000000FFFF0A0A0002\0";
        assert_eq!(&destination.to_line(), said);
        assert_eq!(Destination::parse(said), Ok(destination));
        assert_eq!([said, LINE].map(Destination::is_of_our_like), [true, false]);
        let none = b"0000:000000:000000:00000000000000000000000000000000\0";
        assert_eq!(&Destination::default().to_line(), none);
    }

    /// What ibv_rc_pingpong on Linux rxe said.
    #[test]
    fn a_line_that_was_recorded_is_understood() {
        let line = b"0000:0000c2:f360aa:00000000000000000000ffff0a0a0002\0";
        let found = Destination::parse(line).unwrap();
        assert_eq!((found.qpn.get(), found.psn.get()), (0xc2, 0xf3_60aa));
        assert_eq!(found.gid.to_string(), "::ffff:10.10.0.2");
        assert!(found.to_line().eq_ignore_ascii_case(line));
    }

    #[test]
    fn a_line_that_is_wrong_anywhere_is_refused() {
        for at in 0..LINE.len() {
            for byte in [0, b' ', b'+', b'x', b'\n', 0xff] {
                let mut line = *LINE;
                if line[at] != byte {
                    line[at] = byte;
                    let why = Destination::parse(&line).unwrap_err();
                    assert!(why.contains("cannot be read"), "{at}: {why}");
                }
            }
        }
    }
}
