//! Whoever puts and gets: a PUT is a message, a GET a READ of the server's table.

use roxe::verbs::{ConnectOptions, Context, Op, Remote};

use crate::end::End;
use crate::entry::{Entry, place};
use crate::{Outcome, PATIENCE};

/// A client: its end, and where the server's table is.
pub(crate) struct Client(End, Remote);

impl Client {
    pub(crate) async fn new(adapter: &Context, server: String) -> Outcome<Self> {
        let end = End::new(adapter)?;
        let options = ConnectOptions::default();
        let key = end.connection.reach(server, &options, b"", PATIENCE).await?.user;
        Ok(Self(end, Remote::from_bytes(&key).ok_or("the server told no key")?))
    }

    pub(crate) async fn put(&self, key: &str, value: &str) -> Outcome {
        let entry =
            Entry::new(key, value).ok_or("key and value have 55 bytes together, at most")?;
        let (answer, sent) = tokio::join!(self.0.receive(), self.0.send(&entry));
        sent?;
        answer.map(drop)
    }

    pub(crate) async fn get(&self, key: &str) -> Outcome<Option<String>> {
        let Self(end, Remote { va, r_key }) = self;
        let slot = Op::Read { va: va + place(key) as u64, r_key: *r_key };
        let mut entry = end.perform(slot).await?;
        // Neither free nor whole: it was read while it was written.
        while entry.open().is_none() && !entry.is_free() {
            entry = end.perform(slot).await?;
        }
        let found = entry.open().filter(|(found, _)| *found == key);
        Ok(found.map(|(_, value)| value.to_owned()))
    }
}
