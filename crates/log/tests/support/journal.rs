//! Journals made frame by frame: what a former broker epoch may have left in its directory. Only the
//! public disk format is used, so these files are as real as any.

use bytes::{Bytes, BytesMut};
use talos_common::{BrokerDir, BrokerEpoch, BrokerId, LaneId, LeaderEpoch};
use talos_log::format::{
    self, BatchMeta, FORMAT, FileHeader, FlushHeader, Frame, JournalId, LanePosition,
};
use talos_log::root::Root;
use talos_protocol::records::{BatchBuilder, NewRecord};
use talos_storage::Storage;

use super::{CLUSTER, World, partition};

pub fn dir(epoch: u64) -> BrokerDir {
    BrokerDir { broker: BrokerId(1), epoch: BrokerEpoch(epoch) }
}

pub fn at(file: u64, position: u64) -> LanePosition {
    LanePosition { file, position }
}

/// What goes behind a flush frame.
#[derive(Clone, Debug)]
pub enum Item {
    Batch { meta: BatchMeta, base: i64, accepted: LeaderEpoch, bytes: Bytes },
    Frame(Frame),
}

/// One record `value` at `base` of partition `which`, written and accepted by `epoch`, whose own
/// records start at `start`.
pub fn record(which: u8, epoch: i32, start: i64, base: i64, value: &str) -> Item {
    let record = NewRecord::value(0, Bytes::copy_from_slice(value.as_bytes()));
    let bytes = BatchBuilder::new().record(&record).build().unwrap();
    batch_of(which, epoch, start, base, bytes)
}

/// The same with a batch made by the caller.
pub fn batch_of(which: u8, epoch: i32, start: i64, base: i64, bytes: Bytes) -> Item {
    let meta = BatchMeta {
        partition: partition(which),
        leader_epoch: LeaderEpoch(epoch),
        epoch_start: start,
        append_time_ms: 0,
    };
    Item::Batch { meta, base, accepted: LeaderEpoch(epoch), bytes }
}

/// A journal file in the making.
#[derive(Clone, Debug)]
pub struct Journal {
    pub id: JournalId,
    pub mask: u32,
    pub bytes: BytesMut,
    sequence: u64,
}

impl Journal {
    /// The first file of lane 0 of broker epoch `epoch`, with its header.
    pub fn first(epoch: u64) -> Self {
        Self::number(epoch, 0, LanePosition::default())
    }

    /// A later file, whose header says up to where the lane was durable.
    pub fn number(epoch: u64, number: u64, durable_to: LanePosition) -> Self {
        Self::of_cluster(CLUSTER, epoch, number, durable_to, 0x5eed + number as u32)
    }

    pub fn of_cluster(
        cluster: [u8; 16],
        epoch: u64,
        number: u64,
        durable_to: LanePosition,
        nonce: u32,
    ) -> Self {
        let id = JournalId { dir: dir(epoch), lane: LaneId(0), number };
        let (format, preallocated_bytes) = (FORMAT, 0);
        let header = FileHeader { format, cluster, id, nonce, preallocated_bytes, durable_to };
        let mut bytes = BytesMut::new();
        format::put_frame(&mut bytes, &Frame::Header(header));
        format::toggle_mask(&mut bytes, 0, id.header_mask());
        Self { id, mask: header.mask(), bytes, sequence: 0 }
    }

    /// Where the file ends so far.
    pub fn end(&self) -> LanePosition {
        at(self.id.number, self.bytes.len() as u64)
    }

    /// One flush that states `durable_to`; gives where each of its frames ends.
    pub fn flush(
        &mut self,
        durable_to: LanePosition,
        items: impl IntoIterator<Item = Item>,
    ) -> Vec<LanePosition> {
        let mut body = BytesMut::new();
        let mut ends = Vec::new();
        for item in items {
            let start = body.len();
            match item {
                Item::Batch { meta, base, accepted, bytes } => {
                    format::put_batch(&mut body, &meta, &bytes, base, accepted);
                }
                Item::Frame(frame) => format::put_frame(&mut body, &frame),
            }
            format::toggle_mask(&mut body, start, self.mask);
            ends.push(body.len() as u64);
        }
        let flush = FlushHeader {
            durable_to,
            sequence: self.sequence,
            flush_bytes: (format::FLUSH_FRAME_BYTES + body.len()) as u32,
            frames: ends.len() as u32,
        };
        self.sequence += 1;
        self.frame(&Frame::Flush(flush));
        let start = self.bytes.len() as u64;
        self.bytes.extend_from_slice(&body);
        ends.into_iter().map(|end| at(self.id.number, start + end)).collect()
    }

    /// A flush that is stated durable by an empty one behind it.
    pub fn durable(&mut self, items: impl IntoIterator<Item = Item>) -> Vec<LanePosition> {
        let ends = self.flush(self.end(), items);
        self.flush(self.end(), []);
        ends
    }

    /// A frame that stands alone.
    pub fn frame(&mut self, frame: &Frame) {
        let start = self.bytes.len();
        format::put_frame(&mut self.bytes, frame);
        format::toggle_mask(&mut self.bytes, start, self.mask);
    }

    /// Turns a bit of the byte at `position`.
    pub fn damage(&mut self, position: u64) {
        self.bytes[position as usize] ^= 0x10;
    }

    /// Writes the file into the store, making its directory when it is the first.
    pub async fn store(&self, storage: &dyn Storage) {
        if storage.make_dir(self.id.dir).await.is_err() {
            assert!(self.id.number > 0, "the directory is there already");
        }
        let mut writer = storage.create(self.id.path()).await.unwrap();
        writer.append(vec![self.bytes.clone().freeze()], None).await.unwrap();
    }
}

/// A cluster whose partition `which` was led by these pairs, oldest first; the last one led at the end.
pub fn led_by(world: &mut World, which: u8, pairs: &[(u64, i32)]) {
    let pairs: Vec<_> = pairs.iter().map(|(d, epoch)| (dir(*d), LeaderEpoch(*epoch))).collect();
    let record = world.records.get_mut(&partition(which)).unwrap();
    record.leader = pairs.last().copied();
    record.inherits = pairs[..pairs.len() - 1].to_vec();
    world.epoch = world.epoch.max(pairs.iter().map(|(dir, _)| dir.epoch.0).max().unwrap_or(0));
}

/// Gives the partition a root.
pub fn rooted(world: &World, which: u8, log_start: i64, end_offset: i64, end_epoch: Option<i32>) {
    let end_epoch = end_epoch.map(LeaderEpoch);
    let root = Root { log_start, end_offset, end_epoch, head: None, generation: 1 };
    *world.records[&partition(which)].root.0.lock().unwrap() = Some(root.encode());
}
