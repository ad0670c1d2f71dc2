//! Building record batches: for internal topics, tools and tests. Producers build their own.

use bytes::{BufMut, Bytes, BytesMut};

use super::compress;
use crate::batch::{
    Attributes, BatchError, Compression, HEADER_BYTES, LENGTH_PREFIX_BYTES, MAGIC,
    NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_SEQUENCE, TimestampType, reseal,
};

/// A record to be put in a batch.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NewRecord {
    /// Timestamp in ms.
    pub timestamp: i64,
    /// Its key, or null.
    pub key: Option<Bytes>,
    /// Its value, or null.
    pub value: Option<Bytes>,
    /// Its headers: name and value, or null.
    pub headers: Vec<(Bytes, Option<Bytes>)>,
}

impl NewRecord {
    /// A record without headers.
    pub fn new(timestamp: i64, key: Option<impl Into<Bytes>>, value: impl Into<Bytes>) -> Self {
        Self { timestamp, key: key.map(Into::into), value: Some(value.into()), headers: Vec::new() }
    }

    /// A record with a value only.
    pub fn value(timestamp: i64, value: impl Into<Bytes>) -> Self {
        Self::new(timestamp, None::<Bytes>, value)
    }
}

/// Collects records and builds one batch of them.
#[derive(Debug, Clone)]
pub struct BatchBuilder {
    base_offset: i64,
    partition_leader_epoch: i32,
    attributes: Attributes,
    compression: Compression,
    producer: (i64, i16, i32),
    base_timestamp: i64,
    max_timestamp: i64,
    count: i32,
    full: bool,
    records: BytesMut,
}

impl Default for BatchBuilder {
    fn default() -> Self {
        Self::new()
    }
}

impl BatchBuilder {
    /// An empty batch at offset 0, not compressed, without a producer id, leader epoch -1.
    #[must_use]
    pub fn new() -> Self {
        Self {
            base_offset: 0,
            partition_leader_epoch: -1,
            attributes: Attributes::default(),
            compression: Compression::None,
            producer: (NO_PRODUCER_ID, NO_PRODUCER_EPOCH, NO_SEQUENCE),
            base_timestamp: 0,
            max_timestamp: i64::MIN,
            count: 0,
            full: false,
            records: BytesMut::new(),
        }
    }

    /// Sets the offset of the first record.
    #[must_use]
    pub fn base_offset(mut self, offset: i64) -> Self {
        self.base_offset = offset;
        self
    }

    /// Sets the leader epoch.
    #[must_use]
    pub fn leader_epoch(mut self, epoch: i32) -> Self {
        self.partition_leader_epoch = epoch;
        self
    }

    /// Sets the compression.
    #[must_use]
    pub fn compression(mut self, compression: Compression) -> Self {
        self.compression = compression;
        self
    }

    /// Sets producer id, producer epoch and the sequence of the first record.
    #[must_use]
    pub fn producer(mut self, id: i64, epoch: i16, base_sequence: i32) -> Self {
        self.producer = (id, epoch, base_sequence);
        self
    }

    /// Sets what the timestamps mean.
    #[must_use]
    pub fn timestamp_type(mut self, timestamp_type: TimestampType) -> Self {
        self.attributes = self.attributes.with_timestamp_type(timestamp_type);
        self
    }

    /// Sets whether the batch belongs to a transaction.
    #[must_use]
    pub fn transactional(mut self, on: bool) -> Self {
        self.attributes = self.attributes.with_transactional(on);
        self
    }

    /// Sets whether the batch holds control records.
    #[must_use]
    pub fn control(mut self, on: bool) -> Self {
        self.attributes = self.attributes.with_control(on);
        self
    }

    /// Number of records so far.
    #[must_use]
    pub fn count(&self) -> i32 {
        self.count
    }

    /// Bytes of the records so far, before compression.
    #[must_use]
    pub fn records_bytes(&self) -> usize {
        self.records.len()
    }

    /// Adds a record and returns the builder.
    #[must_use]
    pub fn record(mut self, record: &NewRecord) -> Self {
        self.push(record);
        self
    }

    /// Adds a record. One that no batch can hold (above 2^31 - 1 bytes) shows as an error of
    /// [`BatchBuilder::build`].
    pub fn push(&mut self, record: &NewRecord) {
        if self.count == 0 {
            self.base_timestamp = record.timestamp;
        }
        let mut body = BytesMut::with_capacity(
            32 + record.key.as_ref().map_or(0, Bytes::len)
                + record.value.as_ref().map_or(0, Bytes::len),
        );
        body.put_i8(0);
        put_varlong(&mut body, record.timestamp.wrapping_sub(self.base_timestamp));
        put_varlong(&mut body, i64::from(self.count));
        let mut fits = put_bytes(&mut body, record.key.as_ref());
        fits &= put_bytes(&mut body, record.value.as_ref());
        fits &= put_length(&mut body, Some(record.headers.len()));
        for (key, value) in &record.headers {
            fits &= put_bytes(&mut body, Some(key));
            fits &= put_bytes(&mut body, value.as_ref());
        }
        fits &= put_length(&mut self.records, Some(body.len()));
        self.records.extend_from_slice(&body);
        self.max_timestamp = self.max_timestamp.max(record.timestamp);
        match self.count.checked_add(1) {
            Some(count) if fits => self.count = count,
            _ => self.full = true,
        }
    }

    /// The batch, with its CRC.
    ///
    /// # Errors
    /// `CannotBuild` if there are no records or too much of them.
    pub fn build(&self) -> Result<Bytes, BatchError> {
        if self.count == 0 || self.full {
            return Err(BatchError::CannotBuild("no records, or too many"));
        }
        let records = compress::compress(self.compression, &self.records)?;
        let batch_length = i32::try_from(HEADER_BYTES - LENGTH_PREFIX_BYTES + records.len())
            .map_err(|_| BatchError::CannotBuild("more than 2 GiB"))?;
        let (producer_id, producer_epoch, base_sequence) = self.producer;
        let mut b = BytesMut::with_capacity(HEADER_BYTES + records.len());
        b.put_i64(self.base_offset);
        b.put_i32(batch_length);
        b.put_i32(self.partition_leader_epoch);
        b.put_i8(MAGIC);
        b.put_u32(0);
        b.put_i16(self.attributes.with_compression(self.compression).0);
        b.put_i32(self.count - 1);
        b.put_i64(self.base_timestamp);
        b.put_i64(self.max_timestamp);
        b.put_i64(producer_id);
        b.put_i16(producer_epoch);
        b.put_i32(base_sequence);
        b.put_i32(self.count);
        b.extend_from_slice(&records);
        reseal(&mut b)?;
        Ok(b.freeze())
    }
}

pub(super) fn put_varlong(b: &mut BytesMut, value: i64) {
    let mut value = ((value << 1) ^ (value >> 63)).cast_unsigned();
    loop {
        let [low, ..] = (value & 0x7f).to_le_bytes();
        value >>= 7;
        if value == 0 {
            b.put_u8(low);
            return;
        }
        b.put_u8(low | 0x80);
    }
}

/// Writes a length (`None` is null) and says whether the format can hold it.
fn put_length(b: &mut BytesMut, length: Option<usize>) -> bool {
    let raw = match length {
        None => Some(-1),
        Some(n) => i32::try_from(n).ok(),
    };
    put_varlong(b, i64::from(raw.unwrap_or_default()));
    raw.is_some()
}

fn put_bytes(b: &mut BytesMut, bytes: Option<&Bytes>) -> bool {
    let fits = put_length(b, bytes.map(Bytes::len));
    if let Some(bytes) = bytes {
        b.extend_from_slice(bytes);
    }
    fits
}
