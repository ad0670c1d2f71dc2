//! Run files: round trip, damage, and the example in the format page.

use bytes::Bytes;
use talos_common::{BrokerDir, BrokerEpoch, BrokerId, LeaderEpoch, TopicId, TopicPartitionId};

use super::*;

const PAGE: &str = include_str!("../../../../docs/design/storage-format.md");

fn partition() -> TopicPartitionId {
    let topic = TopicId(std::array::from_fn(|n| 0xa0 + n as u8));
    TopicPartitionId { topic, partition: 7 }
}

fn hex(bytes: &[u8]) -> String {
    let digits: Vec<String> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    digits.chunks(32).map(|line| line.join(" ")).collect::<Vec<_>>().join("\n")
}

#[test]
fn the_format_page_shows_a_real_run_file() {
    let mut file = RunFileBuilder::default();
    let run = file.begin(partition(), LeaderEpoch(4), 9);
    file.end(run, Epochs::default(), Producers::new());
    let dir = BrokerDir { broker: BrokerId(1), epoch: BrokerEpoch(3) };
    let path = FilePath::Sorted { dir, number: 5 };
    let finished = file.finish(*b"a test's cluster", &path, Vec::new(), None);
    let whole = finished.parts.concat();
    assert_eq!(whole.len() as u64, finished.bytes);
    let example = hex(&whole);
    let block = PAGE.split("```hex run-file\n").nth(1).and_then(|rest| rest.split("\n```").next());
    assert_eq!(block, Some(example.as_str()), "the page must show:\n{example}");
}

#[test]
fn an_index_round_trips_and_hostile_bytes_are_no_index() {
    let mut epochs = Epochs::default();
    epochs.note(LeaderEpoch(1), 3);
    let entry = RunEntry {
        partition: partition(),
        leader_epoch: LeaderEpoch(4),
        base_offset: 3,
        end_offset: 9,
        position: 32,
        bytes: 100,
        epochs,
        producers: Producers::new(),
        blocks: [Block { base_offset: 3, position: 32, max_timestamp: 5, crc: 6 }].into(),
    };
    let segment = SegmentEntry {
        base_offset: 3,
        end_offset: 9,
        leader_epoch: LeaderEpoch(4),
        attempt: 11,
        bytes: 100,
        file_bytes: 500,
        max_timestamp: 5,
    };
    let index = RunIndex { runs: vec![entry], manifest: vec![segment] };
    let mut bytes = BytesMut::new();
    index.encode(&mut bytes);
    let bytes = bytes.freeze();
    assert_eq!(RunIndex::decode(bytes.clone(), 132), Some(index));
    assert_eq!(RunIndex::decode(bytes.clone(), 131), None, "a run beyond the runs");
    for cut in 0..bytes.len() {
        assert_eq!(RunIndex::decode(bytes.slice(..cut), 132), None);
    }
    for at in 0..bytes.len() {
        let mut changed = bytes.to_vec();
        changed[at] ^= 0xff;
        // Whatever it says, it is read without a panic; the checksum is the reader's.
        let _ = RunIndex::decode(Bytes::from(changed), u64::MAX);
    }
}

#[test]
fn p6_the_index_counts_in_the_size_of_a_file() {
    // Many producers of few records: an index that is not counted grows beyond what is read back.
    let mut producers = Producers::new();
    for id in 0..1_000 {
        producers.apply(&crate::producers::ProducerStamp::new(id, 0, 0, 0), id, id, 0, 0);
    }
    let mut file = RunFileBuilder::default();
    let partition = TopicPartitionId { topic: TopicId([1; 16]), partition: 0 };
    for _ in 0..3 {
        let run = file.begin(partition, LeaderEpoch(0), 1_000);
        file.end(run, Epochs::default(), producers.clone());
    }
    let counted = file.bytes();
    let dir = BrokerDir { broker: BrokerId(1), epoch: BrokerEpoch(3) };
    let path = FilePath::Sorted { dir, number: 5 };
    let written = file.finish([0; 16], &path, Vec::new(), None).bytes;
    assert!(counted + 100 >= written, "{counted} counted, {written} written");
}

#[test]
fn a_label_round_trips_and_any_flipped_bit_or_cut_is_none() {
    let dir = BrokerDir { broker: BrokerId(1), epoch: BrokerEpoch(3) };
    let segment = FilePath::Segment {
        partition: partition(),
        base_offset: 9,
        leader_epoch: LeaderEpoch(4),
        attempt: 11,
    };
    for path in [FilePath::Sorted { dir, number: 5 }, segment] {
        let label = Label { cluster: [7; 16], path, bytes: 1 << 40, index_bytes: 9, index_crc: 8 };
        let bytes = label.encode();
        assert_eq!(bytes.len() as u64, LABEL_BYTES);
        assert_eq!(Label::decode(&bytes), Ok(label));
        for bit in 0..bytes.len() * 8 {
            let mut flipped = bytes.to_vec();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(Label::decode(&flipped).is_err());
        }
        for cut in 0..bytes.len() {
            assert!(Label::decode(&bytes[..cut]).is_err());
        }
    }
}
