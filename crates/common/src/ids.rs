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

impl fmt::Display for TopicId {
    /// 32 lower-case hexadecimal digits: the form used in file names and logs. (Kafka's base64 form
    /// is case sensitive and may begin with `-`, so it is kept to the wire.)
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for TopicId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for TopicId {
    type Err = ParseIdError;

    fn from_str(text: &str) -> Result<Self, ParseIdError> {
        let error = || ParseIdError { what: "topic id (32 hexadecimal digits)", text: text.into() };
        if text.len() != 32 || !text.bytes().all(|b| b.is_ascii_hexdigit()) {
            return Err(error());
        }
        let value = u128::from_str_radix(text, 16).map_err(|_| error())?;
        Ok(Self(value.to_be_bytes()))
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
        assert_eq!(topic.to_string().parse(), Ok(topic));
        assert!("+0123456789abcdef0123456789abcde".parse::<TopicId>().is_err());
    }
}
