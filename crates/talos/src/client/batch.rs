//! Builds one record batch (format 2) in place: records are written once, behind room for the
//! header, and an uncompressed batch is that same buffer.

use bytes::{BufMut as _, Bytes, BytesMut};
use talos_protocol::batch::{
    Attributes, BatchError, Compression, HEADER_BYTES, LENGTH_PREFIX_BYTES, MAGIC, crc32c,
};
use talos_protocol::records::compress;

/// A header: name and value.
pub type RecordHeader = (Bytes, Option<Bytes>);

/// The parts of a record to be sent; borrowed, because the batch copies them.
#[derive(Clone, Copy, Debug, Default)]
pub struct Record<'a> {
    /// Key, or null.
    pub key: Option<&'a [u8]>,
    /// Value, or null.
    pub value: Option<&'a [u8]>,
    /// Headers, in order.
    pub headers: &'a [RecordHeader],
    /// Milliseconds since the Unix epoch.
    pub timestamp: i64,
}

/// Who sends a batch, for idempotence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProducerId {
    /// Producer id, -1 for none.
    pub id: i64,
    /// Producer epoch, -1 for none.
    pub epoch: i16,
}

impl ProducerId {
    /// A producer that is not idempotent.
    pub const NONE: Self = Self { id: -1, epoch: -1 };
}

/// A batch that is being filled.
#[derive(Debug)]
pub struct BatchWriter {
    buffer: BytesMut,
    count: i32,
    base_timestamp: i64,
    max_timestamp: i64,
}

impl BatchWriter {
    /// An empty batch with room for `capacity` bytes.
    pub fn with_capacity(capacity: usize) -> Self {
        let mut buffer = BytesMut::with_capacity(capacity.max(HEADER_BYTES));
        buffer.put_bytes(0, HEADER_BYTES);
        Self { buffer, count: 0, base_timestamp: 0, max_timestamp: i64::MIN }
    }

    /// Records so far.
    pub fn count(&self) -> i32 {
        self.count
    }

    /// Bytes so far, before compression, header included.
    pub fn len(&self) -> usize {
        self.buffer.len()
    }

    /// Whether there are no records.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Upper bound of the bytes that `record` takes in a batch.
    pub fn size_of(record: &Record<'_>) -> usize {
        let part = |bytes: Option<&[u8]>| bytes.map_or(0, <[u8]>::len) + 5;
        let headers: usize = record
            .headers
            .iter()
            .map(|(name, value)| part(Some(name)) + part(value.as_deref()))
            .sum();
        // Length, attributes, two deltas and the count of headers.
        5 + 1 + 10 + 5 + 5 + part(record.key) + part(record.value) + headers
    }

    /// Adds a record. `false`: a batch cannot hold it (its lengths are above 2^31 - 1); nothing
    /// was added.
    #[must_use]
    pub fn push(&mut self, record: &Record<'_>) -> bool {
        let too_long = i32::try_from(self.len().saturating_add(Self::size_of(record))).is_err();
        let Some(next) = self.count.checked_add(1).filter(|_| !too_long) else { return false };
        if self.count == 0 {
            self.base_timestamp = record.timestamp;
        }
        let time = record.timestamp.wrapping_sub(self.base_timestamp);
        let delta = i64::from(self.count);
        let length = 1
            + varint_len(time)
            + varint_len(delta)
            + part_len(record.key)
            + part_len(record.value)
            + varint_len(as_i64(record.headers.len()))
            + record
                .headers
                .iter()
                .map(|(name, value)| part_len(Some(name)) + part_len(value.as_deref()))
                .sum::<usize>();
        let b = &mut self.buffer;
        put_varint(b, as_i64(length));
        b.put_i8(0);
        put_varint(b, time);
        put_varint(b, delta);
        put_part(b, record.key);
        put_part(b, record.value);
        put_varint(b, as_i64(record.headers.len()));
        for (name, value) in record.headers {
            put_part(b, Some(name));
            put_part(b, value.as_deref());
        }
        self.max_timestamp = self.max_timestamp.max(record.timestamp);
        self.count = next;
        true
    }

    /// The finished batch. `base_sequence` is -1 without a producer id.
    ///
    /// # Errors
    /// `CannotBuild`: empty, or the compressor refused.
    pub fn finish(
        self,
        codec: Compression,
        producer: ProducerId,
        base_sequence: i32,
    ) -> Result<Bytes, BatchError> {
        let Self { mut buffer, count, base_timestamp, max_timestamp } = self;
        if count == 0 {
            return Err(BatchError::CannotBuild("no records"));
        }
        if codec != Compression::None {
            let packed = compress(codec, buffer.get(HEADER_BYTES..).unwrap_or_default())?;
            buffer.truncate(HEADER_BYTES);
            buffer.extend_from_slice(&packed);
        }
        let length = i32::try_from(buffer.len() - LENGTH_PREFIX_BYTES)
            .map_err(|_| BatchError::CannotBuild("more than 2 GiB"))?;
        let mut header = [0_u8; HEADER_BYTES];
        let mut h = header.as_mut_slice();
        h.put_i64(0);
        h.put_i32(length);
        h.put_i32(-1);
        h.put_i8(MAGIC);
        h.put_u32(0);
        h.put_i16(Attributes::default().with_compression(codec).0);
        h.put_i32(count - 1);
        h.put_i64(base_timestamp);
        h.put_i64(max_timestamp);
        h.put_i64(producer.id);
        h.put_i16(producer.epoch);
        h.put_i32(base_sequence);
        h.put_i32(count);
        buffer[..HEADER_BYTES].copy_from_slice(&header);
        let crc = crc32c(&buffer[talos_protocol::batch::CRC_START..]);
        // The checksum stands right in front of what it covers.
        let at = talos_protocol::batch::CRC_START;
        buffer[at - 4..at].copy_from_slice(&crc.to_be_bytes());
        Ok(buffer.freeze())
    }
}

fn as_i64(length: usize) -> i64 {
    i64::try_from(length).unwrap_or(i64::MAX)
}

fn zigzag(value: i64) -> u64 {
    ((value << 1) ^ (value >> 63)).cast_unsigned()
}

fn varint_len(value: i64) -> usize {
    let bits = 64 - zigzag(value).leading_zeros();
    usize::try_from(bits.div_ceil(7).max(1)).unwrap_or(10)
}

fn put_varint(b: &mut BytesMut, value: i64) {
    let mut value = zigzag(value);
    while value >= 0x80 {
        b.put_u8((value & 0x7f) as u8 | 0x80);
        value >>= 7;
    }
    b.put_u8(value as u8);
}

fn part_len(part: Option<&[u8]>) -> usize {
    part.map_or(1, |bytes| varint_len(as_i64(bytes.len())) + bytes.len())
}

fn put_part(b: &mut BytesMut, part: Option<&[u8]>) {
    match part {
        None => put_varint(b, -1),
        Some(bytes) => {
            put_varint(b, as_i64(bytes.len()));
            b.extend_from_slice(bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use talos_protocol::batch::Batch;
    use talos_protocol::records::{
        BatchBuilder, Limits, NewRecord, decode_records, validate_inner,
    };

    use super::*;

    fn samples() -> Vec<NewRecord> {
        let long = Bytes::from(vec![7_u8; 70_000]);
        let headers = vec![
            (Bytes::from_static(b"a"), Some(Bytes::from_static(b"1"))),
            (Bytes::from_static(b""), None),
        ];
        vec![
            NewRecord { timestamp: 1_000, key: None, value: None, headers: vec![] },
            NewRecord { timestamp: 900, key: Some(Bytes::new()), value: Some(long), headers },
            NewRecord::new(5_000_000_000, Some("key"), "value"),
        ]
    }

    fn write(records: &[NewRecord]) -> BatchWriter {
        let mut writer = BatchWriter::with_capacity(64);
        for record in records {
            let parts = Record {
                key: record.key.as_deref(),
                value: record.value.as_deref(),
                headers: &record.headers,
                timestamp: record.timestamp,
            };
            let before = writer.len();
            assert!(writer.push(&parts));
            assert!(writer.len() - before <= BatchWriter::size_of(&parts));
        }
        writer
    }

    #[test]
    fn batches_are_those_of_the_protocol_crate_byte_for_byte() {
        let records = samples();
        let mut builder = BatchBuilder::new().producer(12, 3, 45);
        records.iter().for_each(|record| builder.push(record));
        let producer = ProducerId { id: 12, epoch: 3 };
        let ours = write(&records).finish(Compression::None, producer, 45).unwrap();
        assert_eq!(ours, builder.build().unwrap());
    }

    #[test]
    fn every_codec_reads_back() {
        let records = samples();
        for codec in Compression::ALL {
            let bytes = write(&records).finish(codec, ProducerId::NONE, -1).unwrap();
            let batch = Batch::parse(&bytes).unwrap();
            batch.verify_crc().unwrap();
            validate_inner(&batch, &Limits::default()).unwrap();
            let read: Vec<_> =
                decode_records(&batch, &Limits::default()).unwrap().map(Result::unwrap).collect();
            assert_eq!(read.len(), 3, "{codec:?}");
            assert_eq!(read[1].value, records[1].value);
            assert_eq!(batch.timestamp_of(&read[1]), 900);
        }
        assert!(write(&[]).finish(Compression::None, ProducerId::NONE, -1).is_err());
    }
}
