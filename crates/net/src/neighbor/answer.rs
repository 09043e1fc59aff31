//! What the kernel answers over netlink, put together.

use std::io;

use netlink_packet_core::{NLM_F_DUMP_INTR, NetlinkMessage, NetlinkPayload};
use netlink_packet_route::RouteNetlinkMessage;

/// What the kernel answers to a request.
#[derive(Debug)]
pub(super) struct Answer {
    /// The number of the request.
    sequence: u32,
    /// It is a whole table, with an end.
    is_dump: bool,
    messages: Vec<RouteNetlinkMessage>,
    /// The table changed while the kernel told it.
    is_interrupted: bool,
}

impl Answer {
    /// To the request with this number.
    pub(super) fn to(sequence: u32, is_dump: bool) -> Self {
        Self { sequence, is_dump, messages: Vec::new(), is_interrupted: false }
    }

    /// Takes a datagram of it. Says whether it was the last.
    pub(super) fn take(&mut self, datagram: &[u8]) -> io::Result<bool> {
        let mut rest = datagram;
        while !rest.is_empty() {
            let message = NetlinkMessage::<RouteNetlinkMessage>::deserialize(rest)
                .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
            let len = (message.header.length as usize).next_multiple_of(4).max(4);
            rest = rest.get(len..).unwrap_or_default();
            if message.header.sequence_number != self.sequence {
                continue; // The rest of an answer that nobody waits for any more.
            }
            self.is_interrupted |= message.header.flags & NLM_F_DUMP_INTR != 0;
            match message.payload {
                NetlinkPayload::InnerMessage(message) => {
                    self.messages.push(message);
                    if !self.is_dump {
                        return Ok(true);
                    }
                }
                NetlinkPayload::Error(error) if error.code.is_some() => return Err(error.to_io()),
                // A table may end with why it is not whole.
                NetlinkPayload::Done(done) if done.code < 0 => {
                    return Err(io::Error::from_raw_os_error(-done.code));
                }
                NetlinkPayload::Error(_) | NetlinkPayload::Done(_) => return Ok(true),
                _ => {}
            }
        }
        Ok(false)
    }

    /// Its messages, unless some may be missing.
    pub(super) fn whole(self) -> Option<Vec<RouteNetlinkMessage>> {
        (!self.is_interrupted).then_some(self.messages)
    }
}

/// Asks until the answer is whole, but not for ever.
pub(super) fn until_whole<T>(mut ask: impl FnMut() -> io::Result<Option<T>>) -> io::Result<T> {
    for _ in 0..MOST_DUMPS {
        if let Some(answer) = ask()? {
            return Ok(answer);
        }
    }
    Err(io::Error::other("the kernel's tables change faster than it tells them"))
}

/// So often a table is asked for that changes while it is told.
const MOST_DUMPS: usize = 16;

#[cfg(test)]
mod tests {
    use netlink_packet_core::{DoneMessage, NetlinkHeader};
    use netlink_packet_route::link::LinkMessage;

    use super::*;

    /// What the kernel would send: a link, and the end of the table.
    fn dump(sequence: u32, flags: u16, code: i32) -> Vec<u8> {
        let mut done = DoneMessage::default();
        done.code = code;
        let link = RouteNetlinkMessage::NewLink(LinkMessage::default());
        let payloads = [NetlinkPayload::InnerMessage(link), NetlinkPayload::Done(done)];
        let mut datagram = Vec::new();
        for payload in payloads {
            let mut message = NetlinkMessage::new(NetlinkHeader::default(), payload);
            message.header.sequence_number = sequence;
            message.header.flags = flags;
            message.finalize();
            let mut bytes = vec![0; message.buffer_len()];
            message.serialize(&mut bytes);
            datagram.extend(bytes);
        }
        datagram
    }

    #[test]
    fn a_table_that_changed_while_it_was_told_is_not_taken_for_whole() {
        let answer = |datagram: &[u8]| {
            let mut answer = Answer::to(7, true);
            assert!(answer.take(datagram)?, "it has an end");
            Ok::<_, io::Error>(answer.whole().map(|messages| messages.len()))
        };
        assert_eq!(answer(&dump(7, 0, 0)).expect("it is told"), Some(1));
        assert_eq!(answer(&dump(7, NLM_F_DUMP_INTR, 0)).expect("it is told"), None);
        let behind_another = [dump(6, NLM_F_DUMP_INTR, 0), dump(7, 0, 0)].concat();
        assert_eq!(answer(&behind_another).expect("it is told"), Some(1));
        let error = answer(&dump(7, 0, -12)).expect_err("ENOMEM");
        assert_eq!(error.kind(), io::ErrorKind::OutOfMemory);
    }

    #[test]
    fn a_table_is_asked_for_until_it_is_whole_but_not_for_ever() {
        let mut left = 3;
        let whole = until_whole(|| {
            left -= 1;
            Ok((left == 0).then_some("whole"))
        });
        assert_eq!(whole.expect("the third is"), "whole");
        let mut times = 0;
        let never = until_whole(|| {
            times += 1;
            Ok(None::<()>)
        });
        assert!(never.is_err() && times == MOST_DUMPS);
        assert!(until_whole(|| Err::<Option<()>, _>(io::ErrorKind::NotFound.into())).is_err());
    }
}
