//! One file of a memory disk: a durable image, and the writes above it that only the page cache has.

use std::ops::Range;

use bytes::{Bytes, BytesMut};
use talos_common::Rng;

use super::faults::{Fault, Faults};

/// What a disk writes as a whole or not at all.
const SECTOR_BYTES: u64 = 512;

#[derive(Clone, Debug)]
pub(super) struct File {
    /// Tells a file from a later one of the same name.
    pub(super) id: u64,
    /// Bytes that are reserved from the start; reads as zeros or the file's former life.
    pub(super) reserved: u64,
    pub(super) modified_ms: i64,
    /// What survives a power loss. Shorter than the file: the rest is zeros.
    image: Vec<u8>,
    /// In the order of writing. A later piece hides what lies below it.
    unsynced: Vec<Piece>,
}

#[derive(Clone, Debug)]
struct Piece {
    at: u64,
    bytes: Bytes,
    /// The append it belongs to; `None` for a note and for what no writer waits for any more.
    append: Option<u64>,
    note: bool,
}

impl Piece {
    fn end(&self) -> u64 {
        self.at + self.bytes.len() as u64
    }
}

/// `position` as an index; positions in a memory disk come from lengths in memory.
fn index(position: u64) -> usize {
    usize::try_from(position).unwrap_or(usize::MAX)
}

impl File {
    pub(super) fn new(id: u64, reserved: u64, image: Vec<u8>, modified_ms: i64) -> Self {
        Self { id, reserved, modified_ms, image, unsynced: Vec::new() }
    }

    pub(super) fn len(&self) -> u64 {
        let unsynced = self.unsynced.iter().map(Piece::end).max().unwrap_or(0);
        self.reserved.max(self.image.len() as u64).max(unsynced)
    }

    /// What a read gives: the page cache, shorter only where the file ends.
    pub(super) fn read(&self, range: Range<u64>) -> Bytes {
        let end = range.end.min(self.len());
        let start = range.start.min(end);
        let mut out = BytesMut::zeroed(index(end - start));
        overlay(&mut out, start, 0, &self.image);
        for piece in &self.unsynced {
            overlay(&mut out, start, piece.at, &piece.bytes);
        }
        out.freeze()
    }

    /// Puts the bytes of `append` in the page cache.
    pub(super) fn write(&mut self, append: u64, at: u64, bytes: &Bytes) {
        self.clip_notes(at, bytes.len());
        self.unsynced.push(Piece { at, bytes: bytes.clone(), append: Some(append), note: false });
    }

    /// Puts a note in the page cache.
    pub(super) fn write_note(&mut self, at: u64, bytes: Bytes) {
        self.clip_notes(at, bytes.len());
        self.unsynced.push(Piece { at, bytes, append: None, note: true });
    }

    /// Notes lie where the next append or note goes: keep only what it does not cover.
    fn clip_notes(&mut self, at: u64, len: usize) {
        let end = at + len as u64;
        for piece in self.unsynced.iter_mut().filter(|piece| piece.note && piece.at >= at) {
            let covered = index(end.saturating_sub(piece.at)).min(piece.bytes.len());
            piece.bytes = piece.bytes.split_off(covered);
            piece.at += covered as u64;
        }
        self.unsynced.retain(|piece| !piece.bytes.is_empty());
    }

    /// Makes what `append` wrote durable.
    pub(super) fn sync(&mut self, append: u64) {
        let (synced, rest) =
            self.unsynced.drain(..).partition(|piece: &Piece| piece.append == Some(append));
        self.unsynced = rest;
        let synced: Vec<Piece> = synced;
        for piece in synced {
            self.persist(piece.at, &piece.bytes);
        }
    }

    /// Nobody waits for `append` any more: its bytes stay in the page cache, or are taken back.
    pub(super) fn abandon(&mut self, append: u64, keep: bool) {
        if keep {
            for piece in self.unsynced.iter_mut().filter(|piece| piece.append == Some(append)) {
                piece.append = None;
            }
        } else {
            self.unsynced.retain(|piece| piece.append != Some(append));
        }
    }

    pub(super) fn persist(&mut self, at: u64, bytes: &[u8]) {
        let (at, end) = (index(at), index(at) + bytes.len());
        if self.image.len() < end {
            self.image.resize(end, 0);
        }
        self.image[at..end].copy_from_slice(bytes);
    }

    /// The machine loses power: of what is unsynced, any pieces of any writes survive; where the file
    /// is not preallocated (`in_order`) only a first part does.
    pub(super) fn lose_power(&mut self, rng: &Rng, faults: &Faults, in_order: bool) {
        let mut lost = false;
        for piece in std::mem::take(&mut self.unsynced) {
            if lost && in_order {
                faults.note(Fault::LostWrite);
                continue;
            }
            match rng.u64(0..4) {
                0 => self.persist(piece.at, &piece.bytes),
                1 => {
                    lost = true;
                    faults.note(Fault::LostWrite);
                }
                2 => {
                    lost = true;
                    self.tear(piece.at, &piece.bytes, rng, faults);
                }
                _ if in_order => self.persist(piece.at, &piece.bytes),
                _ => self.scatter(&piece, rng, faults),
            }
        }
    }

    /// A first part of `bytes`, ending anywhere, reaches the disk.
    pub(super) fn tear(&mut self, at: u64, bytes: &[u8], rng: &Rng, faults: &Faults) {
        faults.note(Fault::TornWrite);
        let kept = rng.usize(0..=bytes.len());
        self.persist(at, &bytes[..kept]);
    }

    /// Any sectors of `piece` reach the disk.
    fn scatter(&mut self, piece: &Piece, rng: &Rng, faults: &Faults) {
        faults.note(Fault::TornWrite);
        let mut at = piece.at;
        while at < piece.end() {
            let end = ((at / SECTOR_BYTES + 1) * SECTOR_BYTES).min(piece.end());
            if rng.chance(500_000) {
                let sector = piece.bytes.slice(index(at - piece.at)..index(end - piece.at));
                self.persist(at, &sector);
            }
            at = end;
        }
    }

    /// The content as a reader sees it, all of it durable: for surgery on a stopped store.
    pub(super) fn content(&self) -> Vec<u8> {
        self.read(0..self.len()).to_vec()
    }

    pub(super) fn replace(&mut self, content: Vec<u8>) {
        self.reserved = 0;
        self.unsynced.clear();
        self.image = content;
    }
}

/// Copies the part of `bytes` (which begin at `at`) that lies in `out` (which begins at `start`).
fn overlay(out: &mut [u8], start: u64, at: u64, bytes: &[u8]) {
    let end = start + out.len() as u64;
    let (from, to) = (at.max(start), (at + bytes.len() as u64).min(end));
    if from < to {
        out[index(from - start)..index(to - start)]
            .copy_from_slice(&bytes[index(from - at)..index(to - at)]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A page cache and a set of durable bytes, each as one array.
    struct Model {
        cache: Vec<u8>,
        durable: Vec<Option<u8>>,
    }

    /// Random writes, notes and syncs against arrays: reads show the page cache, and a power loss
    /// keeps every byte that was synced and not written again.
    #[test]
    fn a_file_is_a_page_cache_over_durable_bytes() {
        for seed in 0..200 {
            let (rng, faults) = (Rng::from_seed(seed), Faults::new());
            let mut file = File::new(1, 20_000, vec![7; 9_000], 0);
            let mut model = Model { cache: vec![7; 9_000], durable: vec![Some(7); 9_000] };
            model.cache.resize(20_000, 0);
            model.durable.resize(20_000, Some(0));
            let (mut position, mut in_flight) = (0, Vec::new());
            for append in 0..12 {
                let len = rng.usize(0..1_400);
                let bytes = Bytes::from(vec![rng.u64(..) as u8; len]);
                file.write(append, position as u64, &bytes);
                model.cache[position..position + len].copy_from_slice(&bytes);
                model.durable[position..position + len].fill(None);
                in_flight.push((append, position, bytes));
                position += len;
                if rng.chance(600_000) {
                    let (append, at, bytes) = in_flight.swap_remove(rng.usize(0..in_flight.len()));
                    file.sync(append);
                    let bytes = bytes.iter().map(|byte| Some(*byte)).collect::<Vec<_>>();
                    model.durable[at..at + bytes.len()].copy_from_slice(&bytes);
                }
                if rng.chance(500_000) {
                    let note = Bytes::from(vec![rng.u64(..) as u8; rng.usize(0..100)]);
                    file.write_note(position as u64, note.clone());
                    model.cache[position..position + note.len()].copy_from_slice(&note);
                    model.durable[position..position + note.len()].fill(None);
                }
                let range = rng.usize(0..10_000)..rng.usize(10_000..20_000);
                let read = file.read(range.start as u64..range.end as u64);
                assert_eq!(read, model.cache[range], "seed {seed}");
            }
            file.lose_power(&rng, &faults, false);
            let left = file.read(0..20_000);
            for (at, (left, durable)) in left.iter().zip(&model.durable).enumerate() {
                assert!(durable.is_none_or(|byte| byte == *left), "seed {seed}: byte {at} is lost");
            }
        }
    }
}
