//! Identifiers. Each is a type of its own, so that a broker epoch can never be passed where a
//! leader epoch is meant.

use std::fmt;
use std::str::FromStr;

/// A broker's stable, configured id. Never negative.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BrokerId(pub i32);

/// One start of a broker; larger than every earlier epoch of the same id. The first is 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BrokerEpoch(pub u64);

/// One leadership of a partition; rises by one with every claim. The first is 0, as in Kafka.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LeaderEpoch(pub i32);

/// One journal lane of a broker epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LaneId(pub u32);

/// A topic's identity (P8): a re-created name is another topic. A version 4 UUID.
///
/// It has two text forms. People, logs and clients see Kafka's (`Display`). File names and the
/// metadata's paths have [`TopicId::hex`], because Kafka's is case sensitive and may begin with `-`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct TopicId(pub [u8; 16]);

/// One partition of one topic.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TopicPartitionId {
    /// The topic.
    pub topic: TopicId,
    /// Index within the topic, from 0.
    pub partition: i32,
}

/// All that one broker epoch writes, segments aside. Its name is `<id>-<epoch>`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BrokerDir {
    /// Whose.
    pub broker: BrokerId,
    /// Of which start.
    pub epoch: BrokerEpoch,
}

/// A text that is not the name of the id it was parsed as.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not a {what}")]
pub struct ParseIdError {
    what: &'static str,
    text: String,
}

macro_rules! display_number {
    ($($id:ident),*) => {$(
        impl fmt::Display for $id {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(&self.0, f)
            }
        }
    )*};
}
display_number!(BrokerId, BrokerEpoch, LeaderEpoch, LaneId);

/// Base64 with the URL alphabet (RFC 4648, section 5).
const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

impl fmt::Display for TopicId {
    /// The 22 characters that Kafka's tools print: base64 for URLs, without padding.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // 128 bits are 21 digits of six bits and one of two bits, which stands in the high bits.
        let bits = u128::from_be_bytes(self.0);
        let mut text = String::with_capacity(22);
        for digit in 0..22_u32 {
            let six = if digit < 21 { bits >> (122 - 6 * digit) } else { bits << 4 } & 0x3f;
            let digit = usize::try_from(six).ok().and_then(|index| DIGITS.get(index));
            text.extend(digit.copied().map(char::from));
        }
        f.pad(&text)
    }
}

/// See [`TopicId::hex`].
#[derive(Clone, Copy)]
pub struct HexTopicId(TopicId);

impl fmt::Display for HexTopicId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl TopicId {
    /// 32 lower-case hexadecimal digits: the form in file names and paths of the metadata.
    pub fn hex(self) -> HexTopicId {
        HexTopicId(self)
    }

    /// Reads what [`TopicId::hex`] writes; capital digits are taken too.
    ///
    /// # Errors
    /// Any other text.
    pub fn from_hex(text: &str) -> Result<Self, ParseIdError> {
        let error = || ParseIdError { what: "topic id (32 hexadecimal digits)", text: text.into() };
        if text.len() != 32 || !text.bytes().all(|b| b.is_ascii_hexdigit()) {
            return Err(error());
        }
        let value = u128::from_str_radix(text, 16).map_err(|_| error())?;
        Ok(Self(value.to_be_bytes()))
    }
}

impl fmt::Debug for TopicId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for TopicPartitionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.topic, self.partition)
    }
}

impl fmt::Display for BrokerDir {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.broker, self.epoch)
    }
}

impl FromStr for BrokerDir {
    type Err = ParseIdError;

    fn from_str(text: &str) -> Result<Self, ParseIdError> {
        let error = || ParseIdError { what: "broker directory (<id>-<epoch>)", text: text.into() };
        let (id, epoch) = text.split_once('-').ok_or_else(error)?;
        let broker = BrokerId(id.parse().map_err(|_| error())?);
        let epoch = BrokerEpoch(epoch.parse().map_err(|_| error())?);
        let dir = Self { broker, epoch };
        // One name per directory: "01-1" and "+1-1" are refused.
        if broker.0 < 0 || dir.to_string() != text { Err(error()) } else { Ok(dir) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_round_trip_and_other_spellings_are_refused() {
        let dir = BrokerDir { broker: BrokerId(7), epoch: BrokerEpoch(12) };
        assert_eq!("7-12".parse(), Ok(dir));
        for bad in ["", "7", "7-", "-7-1", "07-1", "7-+1", "7-1 ", "7-1-1"] {
            assert!(bad.parse::<BrokerDir>().is_err(), "{bad:?}");
        }
        let topic = TopicId(*b"0123456789abcdef");
        assert_eq!(TopicId::from_hex(&topic.hex().to_string()), Ok(topic));
        assert!(TopicId::from_hex("+0123456789abcdef0123456789abcde").is_err());
        assert!(TopicId::from_hex(&topic.to_string()).is_err());
    }

    #[test]
    fn people_see_topic_ids_as_kafka_prints_them() {
        // The same id as clients get it over the wire.
        let topic = TopicId(0x9b41_390d_985c_4198_b1e6_987f_fcdc_f32f_u128.to_be_bytes());
        assert_eq!(topic.to_string(), "m0E5DZhcQZix5ph__NzzLw");
        let partition = TopicPartitionId { topic, partition: 3 };
        assert_eq!(partition.to_string(), "m0E5DZhcQZix5ph__NzzLw-3");
        assert_eq!(format!("{topic:?}"), topic.to_string());
        assert_eq!(topic.hex().to_string(), "9b41390d985c4198b1e6987ffcdcf32f");
        assert_eq!(TopicId::default().to_string(), "A".repeat(22));
    }
}
