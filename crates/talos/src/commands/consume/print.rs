//! Records on standard output: text, JSON lines, or raw bytes.

use std::io::{self, BufWriter, Write};

use serde_json::{Map, Value, json};
use talos_protocol::batch::{Batch, TimestampType};
use talos_protocol::records::RecordView;

use super::{Fetched, Format};
use crate::commands::time;

/// Prints records; what is printed is there after [`Printer::flush`].
pub(super) struct Printer {
    out: BufWriter<io::Stdout>,
    format: Format,
    verbose: bool,
}

impl Printer {
    pub(super) fn new(format: Format, verbose: bool) -> Self {
        Self { out: BufWriter::with_capacity(64 << 10, io::stdout()), format, verbose }
    }

    pub(super) fn record(
        &mut self,
        fetched: &Fetched,
        offset: i64,
        batch: &Batch,
        record: &RecordView,
    ) -> io::Result<()> {
        let timestamp = batch.timestamp_of(record);
        match self.format {
            Format::Raw => self.out.write_all(record.value.as_deref().unwrap_or_default()),
            Format::Text => {
                if self.verbose {
                    let partition = fetched.partition;
                    let time = time::format(timestamp);
                    write!(self.out, "{partition}:{offset}\t{time}\t")?;
                    self.out.write_all(record.key.as_deref().unwrap_or(b"-"))?;
                    self.out.write_all(b"\t")?;
                }
                self.out.write_all(record.value.as_deref().unwrap_or(b"null"))?;
                self.out.write_all(b"\n")
            }
            Format::Json => {
                let object = object(fetched, offset, batch, record, timestamp);
                serde_json::to_writer(&mut self.out, &object).map_err(io::Error::from)?;
                self.out.write_all(b"\n")
            }
        }
    }

    pub(super) fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

fn object(
    fetched: &Fetched,
    offset: i64,
    batch: &Batch,
    record: &RecordView,
    timestamp: i64,
) -> Value {
    let kind = match batch.header.attributes.timestamp_type() {
        TimestampType::CreateTime => "create",
        TimestampType::LogAppendTime => "append",
    };
    let mut object = Map::new();
    object.insert("topic".into(), json!(fetched.topic.as_str()));
    object.insert("partition".into(), json!(fetched.partition));
    object.insert("offset".into(), json!(offset));
    object.insert("timestamp".into(), json!(timestamp));
    object.insert("timestamp_type".into(), json!(kind));
    insert(&mut object, "key", record.key.as_deref());
    insert(&mut object, "value", record.value.as_deref());
    let headers: Vec<Value> = record
        .headers
        .iter()
        .map(|header| {
            let mut one = Map::new();
            one.insert("name".into(), json!(String::from_utf8_lossy(&header.key)));
            insert(&mut one, "value", header.value.as_deref());
            Value::Object(one)
        })
        .collect();
    object.insert("headers".into(), Value::Array(headers));
    Value::Object(object)
}

/// Text as it is; other bytes as `NAME_base64`.
fn insert(object: &mut Map<String, Value>, name: &str, bytes: Option<&[u8]>) {
    match bytes.map(|bytes| (bytes, std::str::from_utf8(bytes))) {
        None => object.insert(name.into(), Value::Null),
        Some((_, Ok(text))) => object.insert(name.into(), json!(text)),
        Some((bytes, Err(_))) => object.insert(format!("{name}_base64"), json!(base64(bytes))),
    };
}

/// RFC 4648 with padding.
fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for group in bytes.chunks(3) {
        let byte = |index: usize| u32::from(group.get(index).copied().unwrap_or(0));
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        for digit in 0..4_usize {
            if digit <= group.len() {
                let index = bits >> (18 - 6 * digit) & 0x3f;
                text.push(char::from(DIGITS[usize::try_from(index).unwrap_or(0)]));
            } else {
                text.push('=');
            }
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_of_the_rfc() {
        for (plain, coded) in [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("foob", "Zm9vYg=="),
            ("foobar", "Zm9vYmFy"),
        ] {
            assert_eq!(base64(plain.as_bytes()), coded);
        }
        assert_eq!(base64(&[0xff, 0xfe]), "//4=");
    }
}
