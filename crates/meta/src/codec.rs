//! The binary form of records: one version byte, then fixed fields, big-endian; lists and texts
//! behind a `u32` length. Decoding checks every length against the bytes that remain, refuses bytes left
//! over and never panics: what does not decode is [`Error::Corrupt`], naming record and path (P5).

use bytes::Bytes;
use talos_common::{BrokerDir, BrokerEpoch, BrokerId, LeaderEpoch};

use crate::store::{Error, Result};

/// Writes one record.
#[derive(Debug)]
pub(crate) struct Encoder(Vec<u8>);

impl Encoder {
    pub(crate) fn new(version: u8) -> Self {
        Self(vec![version])
    }

    pub(crate) fn finish(self) -> Bytes {
        self.0.into()
    }

    pub(crate) fn raw(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }

    pub(crate) fn u8(&mut self, value: u8) {
        self.0.push(value);
    }

    pub(crate) fn u16(&mut self, value: u16) {
        self.raw(&value.to_be_bytes());
    }

    pub(crate) fn u32(&mut self, value: u32) {
        self.raw(&value.to_be_bytes());
    }

    pub(crate) fn u64(&mut self, value: u64) {
        self.raw(&value.to_be_bytes());
    }

    pub(crate) fn i32(&mut self, value: i32) {
        self.raw(&value.to_be_bytes());
    }

    pub(crate) fn i64(&mut self, value: i64) {
        self.raw(&value.to_be_bytes());
    }

    /// A length. What does not fit in a `u32` cannot fit in a transaction either, so it is refused there.
    pub(crate) fn len(&mut self, length: usize) {
        self.u32(u32::try_from(length).unwrap_or(u32::MAX));
    }

    pub(crate) fn bytes(&mut self, bytes: &[u8]) {
        self.len(bytes.len());
        self.raw(bytes);
    }

    pub(crate) fn dir(&mut self, dir: BrokerDir) {
        self.i32(dir.broker.0);
        self.u64(dir.epoch.0);
    }
}

/// Reads one record.
#[derive(Debug)]
pub(crate) struct Decoder<'a> {
    what: &'static str,
    path: &'a str,
    rest: &'a [u8],
}

impl<'a> Decoder<'a> {
    /// Starts reading `what`, found at `path`, which must be of version `known`.
    pub(crate) fn new(
        what: &'static str,
        path: &'a str,
        bytes: &'a [u8],
        known: u8,
    ) -> Result<Self> {
        let mut decoder = Self { what, path, rest: bytes };
        let version = decoder.u8()?;
        if version != known {
            return Err(decoder
                .corrupt(&format!("its format version is {version}, this release reads {known}")));
        }
        Ok(decoder)
    }

    pub(crate) fn corrupt(&self, why: &str) -> Error {
        Error::Corrupt(format!("{} at {}: {why}", self.what, self.path))
    }

    /// Ends reading: nothing may be left.
    pub(crate) fn finish(self) -> Result<()> {
        match self.rest.len() {
            0 => Ok(()),
            left => Err(self.corrupt(&format!("{left} bytes too many"))),
        }
    }

    pub(crate) fn raw(&mut self, length: usize) -> Result<&'a [u8]> {
        match self.rest.split_at_checked(length) {
            Some((taken, rest)) => {
                self.rest = rest;
                Ok(taken)
            }
            None => Err(self.corrupt("it ends too early")),
        }
    }

    pub(crate) fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        let bytes = self.raw(N)?;
        bytes.try_into().map_err(|_| self.corrupt("it ends too early"))
    }

    pub(crate) fn u8(&mut self) -> Result<u8> {
        self.array::<1>().map(|[byte]| byte)
    }

    pub(crate) fn u16(&mut self) -> Result<u16> {
        self.array().map(u16::from_be_bytes)
    }

    pub(crate) fn u32(&mut self) -> Result<u32> {
        self.array().map(u32::from_be_bytes)
    }

    pub(crate) fn u64(&mut self) -> Result<u64> {
        self.array().map(u64::from_be_bytes)
    }

    pub(crate) fn i32(&mut self) -> Result<i32> {
        self.array().map(i32::from_be_bytes)
    }

    pub(crate) fn i64(&mut self) -> Result<i64> {
        self.array().map(i64::from_be_bytes)
    }

    /// The number of items of a list, each at least `item_bytes` (not 0) long: bounded by what remains.
    pub(crate) fn count(&mut self, item_bytes: usize) -> Result<usize> {
        let count = usize::try_from(self.u32()?).unwrap_or(usize::MAX);
        if count > self.rest.len() / item_bytes.max(1) {
            return Err(self.corrupt("a list is longer than the record"));
        }
        Ok(count)
    }

    pub(crate) fn bytes(&mut self) -> Result<&'a [u8]> {
        let length = self.count(1)?;
        self.raw(length)
    }

    pub(crate) fn text(&mut self) -> Result<String> {
        let bytes = self.bytes()?;
        match std::str::from_utf8(bytes) {
            Ok(text) => Ok(text.to_owned()),
            Err(_) => Err(self.corrupt("a text is not UTF-8")),
        }
    }

    pub(crate) fn dir(&mut self) -> Result<BrokerDir> {
        let broker = BrokerId(self.i32()?);
        let epoch = BrokerEpoch(self.u64()?);
        if broker.0 < 0 {
            return Err(self.corrupt("a broker id is negative"));
        }
        Ok(BrokerDir { broker, epoch })
    }

    pub(crate) fn leader_epoch(&mut self) -> Result<LeaderEpoch> {
        match self.i32()? {
            epoch if epoch < 0 => Err(self.corrupt("a leader epoch is negative")),
            epoch => Ok(LeaderEpoch(epoch)),
        }
    }
}
