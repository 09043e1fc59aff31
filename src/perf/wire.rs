//! What perftest's programs say to each other over TCP: the bytes of version 4.5, that is 6.06 as
//! they call it among themselves.
//!
//! Whoever listens is the server; in each exchange the client speaks first, the server answers with
//! as many bytes. In this order:
//!
//! | what | bytes | as |
//! |---|---|---|
//! | version | [`VERSION_LEN`] | text, the rest zeros, or in it [`Kind`] and [`Extent`] |
//! | size of the buffer that short messages are spread over | 4 | big endian |
//! | size of a cache line, at which they begin | 4 | big endian |
//! | path MTU, as its code in `ibv_mtu` | [`MTU_LEN`] | a decimal digit and a zero byte |
//! | queue pairs, one after the other | [`Destination::LEN`] each | text, see [`Destination`] |
//! | …and again, or only the first: "so far I am" | [`Destination::LEN`] | the same |
//! | bandwidth, in five exchanges of their own | 8 each | see [`Report`] |
//! | the end; said by both, heard by nobody | 5 | [`DONE`](crate::side_channel::DONE) |
//!
//! How often a queue pair is said depends on the test: see [`crate::perf::meeting`].

use std::str;

use roxe_verbs::{Gid, Mtu, Psn, Qpn, RKey};

use crate::perf::arguments::Kind;
use crate::perf::plan::Extent;

/// The version as which this program speaks: that of perftest 4.5.
pub(crate) const VERSION: &str = "6.06";

/// Bytes of a version, with a zero at least behind it.
pub(crate) const VERSION_LEN: usize = 16;

/// Bytes of a path MTU.
pub(crate) const MTU_LEN: usize = 2;

/// What is said of versions. Behind the zero at the end of the text perftest does not look: there
/// this program tells its like what it measures, and for how long.
pub(crate) fn version(kind: Kind, extent: Extent) -> [u8; VERSION_LEN] {
    let mut bytes = [0; VERSION_LEN];
    bytes[..VERSION.len()].copy_from_slice(VERSION.as_bytes());
    bytes[MARK_AT..KIND_AT].copy_from_slice(MARK);
    bytes[KIND_AT] = kind.to_byte();
    let extent = match extent {
        Extent::Messages(messages) => messages.min(BY_TIME - 1),
        Extent::Time { .. } => BY_TIME,
    };
    bytes[EXTENT_AT..].copy_from_slice(&extent.to_be_bytes()[2..]);
    bytes
}

/// Where the mark is, what is measured, and for how long: six bytes in big endian.
const MARK: &[u8; 4] = b"roxe";
const MARK_AT: usize = VERSION.len() + 1;
const KIND_AT: usize = MARK_AT + MARK.len();
const EXTENT_AT: usize = KIND_AT + 1;

/// Stands for `-D`; less for so many messages, 0 for nothing.
const BY_TIME: u64 = (1 << 48) - 1;

/// Whether a peer is this program, too.
pub(crate) fn is_ours(bytes: &[u8; VERSION_LEN]) -> bool {
    bytes[MARK_AT..KIND_AT] == *MARK
}

/// Whether a peer that is this program, too, measures the same.
///
/// # Errors
/// In a sentence.
pub(crate) fn check_kind(bytes: &[u8; VERSION_LEN], own: Kind) -> Result<(), String> {
    match Kind::from_byte(bytes[KIND_AT]).filter(|peers| is_ours(bytes) && *peers != own) {
        Some(peers) => Err(format!(
            "the peer's test is `{peers}`, this side's `{own}`: both have to be the same"
        )),
        None => Ok(()),
    }
}

/// Whether a peer that is this program, too, and answers message by message, has as many of them,
/// or a time to go on for, as this side has. Of others it shows when nothing comes any more.
///
/// # Errors
/// In a sentence.
pub(crate) fn check_extent(bytes: &[u8; VERSION_LEN], own: Extent) -> Result<(), String> {
    let mut number = [0; 8];
    number[2..].copy_from_slice(&bytes[EXTENT_AT..]);
    let number = u64::from_be_bytes(number);
    let peers = match (number, own) {
        _ if !is_ours(bytes) => return Ok(()),
        (0, _) | (BY_TIME, Extent::Time { .. }) => return Ok(()),
        (_, Extent::Messages(messages)) if messages == number => return Ok(()),
        (BY_TIME, _) => "goes on for a time (-D)".to_owned(),
        _ => format!("has {number} messages (-n)"),
    };
    let own = match own {
        Extent::Messages(messages) => format!("has {messages}"),
        Extent::Time { .. } => "goes on for a time (-D)".to_owned(),
    };
    Err(format!("the peer {peers}, this side {own}: both have to be the same"))
}

/// Whether the version that a peer says is one to speak with.
///
/// # Errors
/// In a sentence.
pub(crate) fn check_version(bytes: &[u8; VERSION_LEN]) -> Result<(), String> {
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(VERSION_LEN);
    let text = &bytes[..end];
    let number = str::from_utf8(text).ok().and_then(|text| {
        let (major, minor) = text.split_once('.')?;
        Some((digits(major)?, digits(minor)?))
    });
    match number {
        None if Fields(bytes).number(4).is_some() => {
            Err(format!("the peer is a pingpong, and this is perf: it says {}", shown(bytes)))
        }
        None => Err(format!("the peer is no perftest: it says {}", shown(bytes))),
        // Older ones say a bandwidth otherwise.
        Some((major, minor)) if (major, minor) < (5, 70) => Err(format!(
            "the peer is perftest {major}.{minor:02}: 5.70 is the oldest that this one speaks with"
        )),
        Some(_) => Ok(()),
    }
}

fn digits(text: &str) -> Option<u32> {
    let all = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if all { text.parse().ok() } else { None }
}

/// Bytes of a stranger, to be shown.
pub(crate) fn shown(bytes: &[u8]) -> String {
    format!("`{}`", bytes.escape_ascii())
}

/// A path MTU as it is said.
pub(crate) fn mtu(mtu: Mtu) -> [u8; MTU_LEN] {
    [b'0' + mtu.code(), 0]
}

/// The path MTU that a peer says.
///
/// # Errors
/// In a sentence.
pub(crate) fn parse_mtu(bytes: [u8; MTU_LEN]) -> Result<Mtu, String> {
    let code = match bytes {
        [code @ b'1'..=b'5', 0] => Mtu::from_code(code - b'0'),
        _ => None,
    };
    code.ok_or_else(|| format!("the peer's path MTU cannot be read: it says {}", shown(&bytes)))
}

/// A number of buffers that a peer says: `cycle_buffer` or `cache_line_size`.
///
/// # Errors
/// In a sentence, if it is no power of two up to 64 KiB, the largest page: that much memory is made
/// ready for each queue pair.
pub(crate) fn parse_size(name: &str, bytes: [u8; 4]) -> Result<u32, String> {
    let size = u32::from_be_bytes(bytes);
    if size.is_power_of_two() && size <= 64 << 10 {
        Ok(size)
    } else {
        Err(format!("the peer says that its {name} has {size} bytes, which cannot be"))
    }
}

/// A queue pair, and the memory that the peer may use through it.
///
/// As text, in hexadecimal; here on two lines:
///
/// ```text
/// LID :out :QPN   :PSN   :R_Key   :address         :
/// 0000:0001:00001b:7ab123:00000a1c:0000556677889900:
/// GID, a byte each                                :SRQN    :
/// 00:00:00:00:00:00:00:00:00:00:ff:ff:c0:00:02:01:00000000:
/// ```
///
/// and a zero byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Destination {
    /// Its port's local identifier; of RoCE always 0.
    pub(crate) lid: u16,
    /// READs and atomics that it may have outstanding, and answers at a time.
    pub(crate) out_reads: u16,
    /// Its number.
    pub(crate) qpn: Qpn,
    /// The PSN of its first request.
    pub(crate) psn: Psn,
    /// The key of its memory.
    pub(crate) r_key: RKey,
    /// Where that begins.
    pub(crate) va: u64,
    /// Its address.
    pub(crate) gid: Gid,
    /// The shared receive queue that XRC needs; else 0.
    pub(crate) srqn: u32,
}

impl Destination {
    /// Bytes, with the zero at the end.
    pub(crate) const LEN: usize = 108;

    /// As it is said.
    pub(crate) fn to_line(self) -> [u8; Self::LEN] {
        let Self { lid, out_reads, qpn, psn, r_key, va, gid, srqn } = self;
        let mut text = format!(
            "{lid:04x}:{out_reads:04x}:{:06x}:{:06x}:{:08x}:{va:016x}:",
            qpn.get(),
            psn.get(),
            r_key.0
        );
        gid.0.iter().for_each(|byte| text += &format!("{byte:02x}:"));
        text += &format!("{srqn:08x}:");
        let mut line = [0; Self::LEN];
        line[..text.len()].copy_from_slice(text.as_bytes());
        line
    }

    /// What a peer says.
    ///
    /// # Errors
    /// In a sentence.
    pub(crate) fn parse(line: &[u8; Self::LEN]) -> Result<Self, String> {
        let mut rest = Fields(&line[..]);
        let mut read = || {
            let (lid, out_reads) = (rest.number(4)?, rest.number(4)?);
            let (qpn, psn) = (rest.number(6)?, rest.number(6)?);
            let (r_key, va) = (rest.number(8)?, rest.number(16)?);
            let mut gid = [0; 16];
            for byte in &mut gid {
                *byte = u8::try_from(rest.number(2)?).ok()?;
            }
            let srqn = rest.number(8)?;
            (rest.0 == [0]).then_some(())?;
            Some(Self {
                lid: u16::try_from(lid).ok()?,
                out_reads: u16::try_from(out_reads).ok()?,
                qpn: Qpn::new(u32::try_from(qpn).ok()?),
                psn: Psn::new(u32::try_from(psn).ok()?),
                r_key: RKey(u32::try_from(r_key).ok()?),
                va,
                gid: Gid(gid),
                srqn: u32::try_from(srqn).ok()?,
            })
        };
        read().ok_or_else(|| {
            format!(
                "the peer's queue pair cannot be read: does it run the same test with the same \
                 options? It says {}",
                shown(line)
            )
        })
    }
}

/// Hexadecimal numbers of fixed width, each with a colon behind it.
pub(crate) struct Fields<'a>(pub(crate) &'a [u8]);

impl Fields<'_> {
    pub(crate) fn number(&mut self, width: usize) -> Option<u64> {
        let (digits, rest) = self.0.split_at_checked(width)?;
        let (colon, rest) = rest.split_first()?;
        if *colon != b':' || !digits.iter().all(u8::is_ascii_hexdigit) {
            return None;
        }
        self.0 = rest;
        u64::from_str_radix(str::from_utf8(digits).ok()?, 16).ok()
    }
}

/// No network has so many megabytes, or millions of messages, a second.
const MOST_RATE: f64 = 1e12;

/// What a side measured. Each number goes in an exchange of its own, eight bytes in big endian:
/// two integers, then three floating-point numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Report {
    /// Bytes of a message.
    pub(crate) size: u64,
    /// Messages, of all queue pairs.
    pub(crate) iters: u64,
    /// The greatest bandwidth, in the unit that is reported; 0 if it was not looked for.
    pub(crate) bw_peak: f64,
    /// The mean one.
    pub(crate) bw_avg: f64,
    /// Millions of messages a second.
    pub(crate) msg_rate: f64,
}

impl Report {
    /// What one says who has measured nothing: how many packets came marked. The peer of perftest
    /// does not look at it.
    pub(crate) fn of_marks(marks: u64) -> Self {
        Self { iters: marks, ..Self::default() }
    }

    /// As it is said.
    pub(crate) fn to_words(self) -> [[u8; 8]; 5] {
        [
            self.size.to_be_bytes(),
            self.iters.to_be_bytes(),
            self.bw_peak.to_be_bytes(),
            self.bw_avg.to_be_bytes(),
            self.msg_rate.to_be_bytes(),
        ]
    }

    /// What a peer says; what is no number is 0.
    pub(crate) fn from_words([size, iters, peak, avg, rate]: [[u8; 8]; 5]) -> Self {
        let number = |bytes| Some(f64::from_be_bytes(bytes)).filter(|it| it.is_finite());
        Self {
            size: u64::from_be_bytes(size),
            iters: u64::from_be_bytes(iters),
            bw_peak: number(peak).unwrap_or_default(),
            bw_avg: number(avg).unwrap_or_default(),
            msg_rate: number(rate).unwrap_or_default(),
        }
    }

    /// Looks whether it can be one, and is not something else that a peer said.
    ///
    /// # Errors
    /// In a sentence.
    pub(crate) fn check(&self) -> Result<(), String> {
        let rates = [self.bw_peak, self.bw_avg, self.msg_rate];
        let is_one = (1..=1 << 31).contains(&self.size)
            && self.iters < 1 << 48
            && rates.iter().all(|rate| (0.0..MOST_RATE).contains(rate));
        if is_one {
            return Ok(());
        }
        Err("what the peer says that it measured cannot be: does it run the same test, with the \
             same -q, -n, -s and -b?"
            .to_owned())
    }

    /// That of both directions.
    pub(crate) fn with(self, other: &Self) -> Self {
        Self {
            bw_peak: self.bw_peak + other.bw_peak,
            bw_avg: self.bw_avg + other.bw_avg,
            msg_rate: self.msg_rate + other.msg_rate,
            ..self
        }
    }
}

#[cfg(test)]
mod tests;
