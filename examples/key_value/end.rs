//! One end of a connection, with room for one entry in each direction.

use std::sync::Arc;

use roxe::verbs::asynchronous::AsyncConnection;
use roxe::verbs::{Buffer, Context, MemoryRegion, Op};

use crate::Outcome;
use crate::entry::{Entry, SLOT};

pub(crate) struct End {
    pub(crate) connection: AsyncConnection,
    memory: Arc<Buffer>,
    region: MemoryRegion,
}

impl End {
    pub(crate) fn new(adapter: &Context) -> Outcome<Self> {
        let memory = Buffer::new(2 * SLOT);
        let region = adapter.register(&memory)?;
        Ok(Self { connection: AsyncConnection::new(adapter)?, memory, region })
    }

    /// The next message.
    pub(crate) async fn receive(&self) -> Outcome<Entry> {
        self.connection.receive(&self.region, 0, SLOT as u32).await?;
        Ok(Entry::read(&self.memory, 0))
    }

    pub(crate) async fn send(&self, entry: &Entry) -> Outcome {
        self.memory.write(SLOT, &entry.0);
        self.perform(Op::Send).await.map(drop)
    }

    /// Does something with the second half of the memory; what stands there then.
    pub(crate) async fn perform(&self, operation: Op) -> Outcome<Entry> {
        self.connection.perform(operation, &self.region, SLOT as u64, SLOT as u32).await?;
        Ok(Entry::read(&self.memory, SLOT))
    }
}
