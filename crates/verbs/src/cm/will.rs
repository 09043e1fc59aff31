//! What a process leaves to be done when it is killed: to part from its peers, as behind a card the
//! kernel does it. Whoever started it reads which connections it had, and parts from them by the
//! same adapter.
//!
//! They stand in a file of records of [`RECORD`] bytes, each a line of text:
//!
//!   process  adapter  from  to  vlan  traffic class  id here  id there  queue pair there
//!
//! padded with blanks, and blank where there is none. Several processes may write to it.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::net::IpAddr;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant as Clock};
use std::{process, thread};

use roxe_cm::{ConnectionId, GidPair, Standing};
use roxe_wire::mad::cm::CommId;
use roxe_wire::{Gid, Qpn};

use crate::context::Context;

/// Where an adapter's process writes down which connections stand.
#[derive(Debug)]
pub struct Will {
    path: PathBuf,
    file: File,
    device: String,
    /// Records that are ours, and blank.
    blank: Vec<u64>,
    written: BTreeMap<ConnectionId, u64>,
}

/// A connection that a process had, or has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bequest {
    /// The process.
    pub process: u32,
    /// The name of its adapter.
    pub device: String,
    /// The connection.
    pub connection: Standing,
}

impl Will {
    /// Of an adapter of that name, which has no blank in it; the file is there.
    ///
    /// # Errors
    /// The file cannot be opened for writing.
    pub fn begin(path: &Path, device: &str) -> io::Result<Self> {
        let file = OpenOptions::new().write(true).open(path)?;
        let (path, device) = (path.to_owned(), device.to_owned());
        Ok(Self { path, file, device, blank: Vec::new(), written: BTreeMap::new() })
    }

    /// A connection began to stand, or ceased to. What cannot be written down is not parted from.
    fn note(&mut self, id: ConnectionId, connection: Option<Standing>) {
        let old = self.written.remove(&id);
        let Some(connection) = connection else {
            if let Some(at) = old
                && self.file.write_all_at(&BLANK, at).is_ok()
            {
                self.blank.push(at);
            }
            return;
        };
        let Some(at) = old.or_else(|| self.blank.pop()).or_else(|| self.more()) else { return };
        let device = self.device.clone();
        let bequest = Bequest { process: process::id(), device, connection };
        match bequest.record() {
            Some(record) if self.file.write_all_at(&record, at).is_ok() => {
                self.written.insert(id, at);
            }
            _ => self.blank.push(at),
        }
    }

    /// A blank record behind everybody's.
    fn more(&mut self) -> Option<u64> {
        let mut end = OpenOptions::new().append(true).open(&self.path).ok()?;
        end.write_all(&[BLANK; AT_ONCE].concat()).ok()?;
        let end = end.stream_position().ok()?;
        let first = end.checked_sub((AT_ONCE * RECORD) as u64)?;
        self.blank.extend((0..AT_ONCE).rev().map(|index| first + (index * RECORD) as u64));
        self.blank.pop()
    }
}

impl Bequest {
    /// All that a file has, as far as one can have connections.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn read_all(mut file: &File) -> io::Result<Vec<Self>> {
        let mut text = String::new();
        file.seek(SeekFrom::Start(0))?;
        file.take((MOST * RECORD) as u64).read_to_string(&mut text)?;
        Ok(text.lines().filter_map(Self::read).collect())
    }

    fn record(&self) -> Option<[u8; RECORD]> {
        let Self { process, device, connection } = self;
        let Standing { path, traffic_class, local_id, remote_id, remote_qpn } = connection;
        let (from, to) = (path.local.to_ip(), path.remote.to_ip());
        let vlan = path.vlan.map_or_else(|| NO_VLAN.to_owned(), |vlan| vlan.to_string());
        let (here, there, qpn) = (local_id.0, remote_id.0, remote_qpn.get());
        let line =
            format!("{process} {device} {from} {to} {vlan} {traffic_class} {here} {there} {qpn}");
        let mut record = BLANK;
        let room = record.split_last_mut()?.1;
        room.get_mut(..line.len())?.copy_from_slice(line.as_bytes());
        Some(record)
    }

    fn read(line: &str) -> Option<Self> {
        let words: Vec<_> = line.split_whitespace().collect();
        let [process, device, from, to, vlan, class, here, there, qpn] = words.try_into().ok()?;
        let gid = |text: &str| text.parse::<IpAddr>().map(Gid::from_ip).ok();
        let vlan = if vlan == NO_VLAN { None } else { Some(vlan.parse().ok()?) };
        let connection = Standing {
            path: GidPair { local: gid(from)?, remote: gid(to)?, vlan },
            traffic_class: class.parse().ok()?,
            local_id: CommId(here.parse().ok()?),
            remote_id: CommId(there.parse().ok()?),
            remote_qpn: Qpn::new(qpn.parse().ok()?),
        };
        Some(Self { process: process.parse().ok()?, device: device.to_owned(), connection })
    }
}

impl Context {
    /// Has the connections of this adapter written down from now on, as they come and go.
    pub fn keep(&self, mut will: Will) {
        self.cm().shared().set_heir(move |id, connection| will.note(id, connection));
    }

    /// Parts from the peers of connections that a process had by an adapter at this one's
    /// addresses, and waits until they have answered or are given up, so long at most.
    pub fn part_for(&self, connections: &[Standing], patience: Duration) {
        let shared = self.cm().shared();
        shared.part_for(connections);
        let start = Clock::now();
        while self.partings() != 0 && start.elapsed() < patience {
            thread::sleep(Duration::from_millis(1));
        }
    }
}

/// Bytes of a record: two addresses of IPv6 and all numbers leave some 60 for the adapter's name.
const RECORD: usize = 192;

/// Records that are read: programs can write there what they want.
const MOST: usize = 1 << 16;

/// Records that are asked for at once.
const AT_ONCE: usize = 16;

const BLANK: [u8; RECORD] = {
    let mut blank = [b' '; RECORD];
    blank[RECORD - 1] = b'\n';
    blank
};

const NO_VLAN: &str = "-";

#[cfg(test)]
mod tests {
    use std::net::Ipv6Addr;

    use super::*;

    fn standing(number: u32) -> (ConnectionId, Standing) {
        let path = GidPair::new(Ipv6Addr::from([0xff; 16]), Ipv6Addr::from([0xfe; 16]));
        let connection = Standing {
            path: GidPair { vlan: Some(4094), ..path },
            traffic_class: 255,
            local_id: CommId(number),
            remote_id: CommId(u32::MAX),
            remote_qpn: Qpn::new(0xff_ffff),
        };
        (ConnectionId::from(connection.local_id), connection)
    }

    #[test]
    fn a_file_has_what_stands_and_grows_no_more_than_that() {
        let path = std::env::temp_dir().join(format!("roxe-will-{}", process::id()));
        let file = File::options().read(true).write(true).create_new(true).open(&path).unwrap();
        let mut wills = ["one", "two"].map(|device| Will::begin(&path, device).unwrap());
        for round in 0..20 {
            for number in 1..=40 {
                let (id, connection) = standing(number + 100 * round);
                wills.iter_mut().for_each(|will| will.note(id, Some(connection)));
            }
            let all = Bequest::read_all(&file).unwrap();
            assert_eq!(all.len(), 80, "round {round}");
            let first = all.iter().find(|it| it.device == "two").unwrap();
            assert_eq!(first.process, process::id());
            assert_eq!(first.connection, standing(first.connection.local_id.0).1);
            for number in 1..=40 {
                let id = standing(number + 100 * round).0;
                wills.iter_mut().for_each(|will| will.note(id, None));
            }
            assert_eq!(Bequest::read_all(&file).unwrap(), []);
        }
        assert_eq!(file.metadata().unwrap().len(), (2 * 48 * RECORD) as u64);
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn what_has_no_room_in_a_record_is_left_out() {
        let bequest =
            Bequest { process: u32::MAX, device: "x".repeat(60), connection: standing(u32::MAX).1 };
        let record = bequest.record().expect("room for a name of sixty letters");
        assert_eq!(Bequest::read(std::str::from_utf8(&record).unwrap()), Some(bequest.clone()));
        assert_eq!(Bequest { device: "x".repeat(100), ..bequest }.record(), None);
    }
}
