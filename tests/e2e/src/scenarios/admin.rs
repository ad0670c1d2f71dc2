//! Scenarios of topics and their settings.

use anyhow::{Result, ensure};

use crate::client::Client;

use super::{Ctx, applies, expect};

/// Creation, and its refusals.
pub fn create_topic(ctx: &mut Ctx<'_>) -> Result<()> {
    let topic = ctx.name("t");
    ctx.create(&topic, 3, "retention.ms=1000000,cleanup.policy=delete")?;
    ctx.listed(&topic, Some(3))?;

    let again = [("topic", topic.as_str()), ("partitions", "3")];
    ctx.refused("create", &again, &[36])?; // TOPIC_ALREADY_EXISTS
    let other = ctx.name("other");
    let none = [("topic", other.as_str()), ("partitions", "0")];
    ctx.refused("create", &none, &[37])?; // INVALID_PARTITIONS
    let copies = [("topic", other.as_str()), ("partitions", "1"), ("replication", "3")];
    ctx.refused("create", &copies, &[38])?; // INVALID_REPLICATION_FACTOR
    let name = [("topic", "no spaces, please"), ("partitions", "1")];
    ctx.refused("create", &name, &[17])?; // INVALID_TOPIC_EXCEPTION
    for config in ["no.such.setting=1", "retention.ms=soon", "cleanup.policy=keep"] {
        let config = [("topic", other.as_str()), ("partitions", "1"), ("configs", config)];
        ctx.refused("create", &config, &[40])?; // INVALID_CONFIG
    }
    let topics = ctx.ok("topics", &[])?;
    ensure!(topics["topics"][&other].is_null(), "a refused topic is there: {topics}");
    Ok(())
}

/// DeleteRecords moves the log start; what is below is out of range.
pub fn delete_records(ctx: &mut Ctx<'_>) -> Result<()> {
    let topic = ctx.name("t");
    ctx.create(&topic, 1, "")?;
    let place = [("topic", topic.as_str()), ("partition", "0")];
    let produce = [("shape", "plain"), ("count", "100"), ("linger_ms", "100")];
    ctx.ok("produce", &[&place[..], &produce[..]].concat())?;
    let low = ctx.ok("delete_records", &[&place[..], &[("before", "40")]].concat())?;
    expect(&low, "low", 40)?;
    let first = ctx.ok("offsets", &[&place[..], &[("at", "-2")]].concat())?;
    expect(&first, "offset", 40)?;
    let read = [("topic", topic.as_str()), ("partitions", "0")];
    if applies(ctx.client(), "offset_out_of_range") {
        ctx.refused("consume", &[&read[..], &[("from", "39")]].concat(), &[1])?;
    }
    let rest = ctx.ok("consume", &[&read[..], &[("from", "-2"), ("count", "60")]].concat())?;
    expect(&rest["partitions"]["0"], "first", 40)?;
    expect(&rest["partitions"]["0"], "last", 99)?;
    // A smaller offset changes nothing, beyond the end is refused, -1 means all.
    let low = ctx.ok("delete_records", &[&place[..], &[("before", "10")]].concat())?;
    expect(&low, "low", 40)?;
    // kafkajs refuses by itself, without a number.
    let codes: &[i64] = if ctx.client() == Client::KafkaJs { &[-1] } else { &[1] };
    ctx.refused("delete_records", &[&place[..], &[("before", "101")]].concat(), codes)?;
    let low = ctx.ok("delete_records", &[&place[..], &[("before", "-1")]].concat())?;
    expect(&low, "low", 100)?;
    // The next record goes on where the log was.
    let sent = ctx.ok("produce", &[&place[..], &[("shape", "plain"), ("count", "1")]].concat())?;
    ensure!(sent["partitions"]["0"]["first"] == 100, "an offset was given twice: {sent}");
    Ok(())
}

/// Settings are described with their values, changed, and taken back.
pub fn configs(ctx: &mut Ctx<'_>) -> Result<()> {
    let topic = ctx.name("t");
    ctx.create(&topic, 1, "retention.ms=777000")?;
    let place = [("topic", topic.as_str())];
    let is = |name: &str, value: &str| {
        ctx.until("configs", &place, |answer| answer["configs"][name] == value)
    };
    is("retention.ms", "777000")?;
    is("max.message.bytes", "1048588")?;
    is("cleanup.policy", "delete")?;
    let set = "retention.ms=888000,max.message.bytes=2000000";
    ctx.ok("alter", &[&place[..], &[("set", set)]].concat())?;
    is("retention.ms", "888000")?;
    is("max.message.bytes", "2000000")?;
    for bad in ["retention.ms=soon", "no.such.setting=1", "max.message.bytes=-5"] {
        ctx.refused("alter", &[&place[..], &[("set", bad)]].concat(), &[40])?;
    }
    ctx.ok("alter", &[&place[..], &[("delete", "retention.ms")]].concat())?;
    is("retention.ms", "604800000")?;
    if ctx.client() == Client::KafkaPython {
        return Ok(()); // it gives no settings for an unknown topic, and no error
    }
    let unknown = ctx.name("unknown");
    ctx.refused("configs", &[("topic", &unknown)], &[3]) // UNKNOWN_TOPIC_OR_PARTITION
}

/// Partitions are added, never taken away.
pub fn create_partitions(ctx: &mut Ctx<'_>) -> Result<()> {
    let topic = ctx.name("t");
    ctx.create(&topic, 2, "")?;
    ctx.ok("partitions", &[("topic", &topic), ("total", "5")])?;
    ctx.listed(&topic, Some(5))?;
    for total in ["5", "3"] {
        ctx.refused("partitions", &[("topic", &topic), ("total", total)], &[37])?;
    }
    let place = [("topic", topic.as_str()), ("partition", "4"), ("count", "10")];
    let sent = ctx.ok("produce", &[&place[..], &[("shape", "plain")]].concat())?;
    expect(&sent["partitions"]["4"], "last", 9)?;
    let unknown = ctx.name("unknown");
    ctx.refused("partitions", &[("topic", &unknown), ("total", "5")], &[3])
}

/// A deleted topic is gone; one of the same name is another one (fault F14).
pub fn delete_topic(ctx: &mut Ctx<'_>) -> Result<()> {
    let topic = ctx.name("t");
    ctx.create(&topic, 1, "")?;
    let produce =
        [("topic", topic.as_str()), ("partition", "0"), ("count", "10"), ("shape", "plain")];
    ctx.ok("produce", &produce)?;
    ctx.ok("delete_topics", &[("topics", &topic)])?;
    ctx.listed(&topic, None)?;
    ctx.refused("delete_topics", &[("topics", &topic)], &[3])?;
    ctx.create(&topic, 1, "")?;
    let end = ctx.ok("offsets", &[("topic", &topic), ("partition", "0"), ("at", "-1")])?;
    expect(&end, "offset", 0)?;
    let sent = ctx.ok("produce", &produce)?;
    expect(&sent["partitions"]["0"], "first", 0)
}
