//! Scenarios of producing and reading.

use anyhow::{Result, ensure};
use serde_json::Value;

use crate::client::Client;

use super::{Ctx, expect, int};

/// Records of the shape `mixed`: with and without keys, values, headers.
const MIXED: &str = "100";

/// A fixed time in the past (2023-11-14), for records with a time of their own.
const BASE_TIME: i64 = 1_700_000_000_000;

/// Writes records to partition 0 and reads them again; both must see the same bytes.
fn round_trip(ctx: &Ctx<'_>, topic: &str, more: &[(&str, &str)]) -> Result<Value> {
    let count = more.iter().find(|(name, _)| *name == "count").map_or(MIXED, |(_, value)| value);
    let null_headers = ctx.client().null_headers().to_string();
    let mut args = vec![("topic", topic), ("partition", "0"), ("null_headers", &null_headers)];
    args.extend_from_slice(more);
    if !more.iter().any(|(name, _)| *name == "count") {
        args.push(("count", MIXED));
    }
    let sent = ctx.ok("produce", &args)?;
    let from = if sent["partitions"]["0"]["first"].as_i64() == Some(-1) {
        "-2".to_owned() // acks=0: no offset is known
    } else {
        int(&sent["partitions"]["0"], "first")?.to_string()
    };
    let read = ctx.ok(
        "consume",
        &[("topic", topic), ("partitions", "0"), ("from", &from), ("count", count)],
    )?;
    let (sent0, read0) = (&sent["partitions"]["0"], &read["partitions"]["0"]);
    ensure!(sent0["digest"].is_string(), "nothing was sent: {sent}");
    ensure!(
        sent0["digest"] == read0["digest"],
        "sent and read differ for {more:?}:\n{sent}\n{read}"
    );
    Ok(read)
}

/// A topic comes into being when a producer first asks for it.
pub fn auto_create(ctx: &mut Ctx<'_>) -> Result<()> {
    let topic = ctx.name("t");
    round_trip(ctx, &topic, &[("seed", "1")])?;
    ctx.listed(&topic, Some(1))
}

/// Each codec, with and without keys, values and headers.
pub fn codecs(ctx: &mut Ctx<'_>) -> Result<()> {
    let topic = ctx.name("t");
    ctx.create(&topic, 1, "")?;
    for codec in ctx.client().codecs() {
        let sizes = "0,1,10,100,1000,10000";
        round_trip(ctx, &topic, &[("codec", codec), ("seed", "7"), ("sizes", sizes)])?;
    }
    Ok(())
}

/// Records from 1 byte to 10 MiB.
pub fn sizes(ctx: &mut Ctx<'_>) -> Result<()> {
    let topic = ctx.name("t");
    ctx.create(&topic, 1, "max.message.bytes=12000000")?;
    let sizes = "1,2,127,128,1000,16384,100000,1000000,1048576,4000000,10485760";
    round_trip(ctx, &topic, &[("shape", "plain"), ("count", "11"), ("sizes", sizes)])?;
    let small = [("shape", "plain"), ("count", "3000"), ("sizes", "1"), ("seed", "3")];
    round_trip(ctx, &topic, &small).map(drop)
}

/// `acks` 0, 1 and all.
pub fn acks(ctx: &mut Ctx<'_>) -> Result<()> {
    for acks in ["0", "1", "all"] {
        let topic = ctx.name(acks);
        ctx.create(&topic, 1, "")?;
        let read =
            round_trip(ctx, &topic, &[("acks", acks), ("seed", acks.len().to_string().as_str())])?;
        expect(&read["partitions"]["0"], "last", 99)?;
    }
    Ok(())
}

/// Idempotent producers, one after the other, in small batches: no gap, no duplicate.
pub fn idempotent(ctx: &mut Ctx<'_>) -> Result<()> {
    let topic = ctx.name("t");
    ctx.create(&topic, 1, "")?;
    for round in 0..2i64 {
        let args =
            [("idempotent", "true"), ("acks", "all"), ("count", "500"), ("batch_size", "1000")];
        let read = round_trip(ctx, &topic, &args)?;
        expect(&read["partitions"]["0"], "first", round * 500)?;
        expect(&read["partitions"]["0"], "last", round * 500 + 499)?;
    }
    Ok(())
}

/// The client's own partitioner over four partitions; each partition reads back what went there.
pub fn keys(ctx: &mut Ctx<'_>) -> Result<()> {
    let topic = ctx.name("t");
    ctx.create(&topic, 4, "")?;
    let args = [("topic", topic.as_str()), ("shape", "keyed"), ("count", "160"), ("seed", "5")];
    let sent = ctx.ok("produce", &args)?;
    let partitions = sent["partitions"].as_object().cloned().unwrap_or_default();
    ensure!(partitions.len() > 1, "sixteen keys all went to one partition: {sent}");
    let mut total = 0;
    for (partition, wrote) in &partitions {
        let count = int(wrote, "count")?;
        total += count;
        let count = count.to_string();
        let read = ctx.ok(
            "consume",
            &[("topic", &topic), ("partitions", partition), ("from", "-2"), ("count", &count)],
        )?;
        ensure!(
            read["partitions"][partition]["digest"] == wrote["digest"],
            "partition {partition} differs:\n{sent}\n{read}"
        );
    }
    ensure!(total == 160, "{total} of 160 records were acknowledged: {sent}");
    Ok(())
}

/// -1, -2 and by time, to the exact record, also inside a compressed batch.
pub fn offsets_by_time(ctx: &mut Ctx<'_>) -> Result<()> {
    for codec in ["none", "gzip"] {
        let topic = ctx.name(codec);
        ctx.create(&topic, 1, "")?;
        let base = BASE_TIME.to_string();
        let sent = [("codec", codec), ("ts_base", base.as_str()), ("ts_step", "1000")];
        let linger = [("shape", "plain"), ("linger_ms", "200")];
        let read = round_trip(ctx, &topic, &[&sent[..], &linger[..]].concat())?;
        expect(&read, "first_timestamp", BASE_TIME)?;
        expect(&read, "last_timestamp", BASE_TIME + 99_000)?;
        for (at, wanted) in [
            (-2, 0),
            (-1, 100),
            (BASE_TIME - 5, 0),
            (BASE_TIME, 0),
            (BASE_TIME + 1, 1),
            (BASE_TIME + 37_000, 37),
            (BASE_TIME + 37_500, 38),
            (BASE_TIME + 99_000, 99),
            (BASE_TIME + 99_001, -1),
        ] {
            let at = at.to_string();
            let found = ctx.ok("offsets", &[("topic", &topic), ("partition", "0"), ("at", &at)])?;
            // Some clients turn "no such record" into the end of the partition.
            let found = int(&found, "offset")?;
            ensure!(
                found == wanted || (wanted == -1 && found == 100),
                "{codec}: offset at {at} is {found}, not {wanted}"
            );
        }
    }
    Ok(())
}

/// A record above `max.message.bytes` is refused with MESSAGE_TOO_LARGE; a smaller one goes on.
pub fn too_large(ctx: &mut Ctx<'_>) -> Result<()> {
    let topic = ctx.name("t");
    ctx.create(&topic, 1, "max.message.bytes=20000")?;
    let args = [("topic", topic.as_str()), ("partition", "0"), ("shape", "plain"), ("count", "1")];
    ctx.refused("produce", &[&args[..], &[("sizes", "50000")]].concat(), &[10])?;
    let read = round_trip(ctx, &topic, &[("shape", "plain"), ("count", "1"), ("sizes", "15000")])?;
    expect(&read["partitions"]["0"], "first", 0)
}

/// A fetch at an offset inside a batch gets the whole batch, and the client skips (fault C1).
pub fn fetch_inside_batch(ctx: &mut Ctx<'_>) -> Result<()> {
    for codec in ["none", "gzip"] {
        let topic = ctx.name(codec);
        ctx.create(&topic, 1, "")?;
        let shape = [("shape", "plain"), ("linger_ms", "200"), ("codec", codec)];
        round_trip(ctx, &topic, &shape)?;
        for from in ["1", "37", "99"] {
            let args = [("topic", topic.as_str()), ("partitions", "0"), ("from", from)];
            let read = ctx.ok("consume", &args)?;
            expect(&read["partitions"]["0"], "first", from.parse()?)?;
        }
    }
    Ok(())
}

/// A fetch beyond the end is answered with OFFSET_OUT_OF_RANGE, also right at end + 1.
pub fn offset_out_of_range(ctx: &mut Ctx<'_>) -> Result<()> {
    let topic = ctx.name("t");
    ctx.create(&topic, 1, "")?;
    round_trip(ctx, &topic, &[("shape", "plain"), ("count", "10")])?;
    for from in ["11", "1000"] {
        ctx.refused("consume", &[("topic", &topic), ("partitions", "0"), ("from", from)], &[1])?;
    }
    Ok(())
}

/// Records, offsets and committed offsets are there after a clean restart.
pub fn restart(ctx: &mut Ctx<'_>) -> Result<()> {
    let (topic, group) = (ctx.name("t"), ctx.name("g"));
    ctx.create(&topic, 2, "max.message.bytes=2000000,retention.ms=123456789")?;
    let produce = [("topic", topic.as_str()), ("partition", "1"), ("count", "300")];
    let null_headers = ctx.client().null_headers().to_string();
    let produce = [&produce[..], &[("null_headers", null_headers.as_str())]].concat();
    let sent = ctx.ok("produce", &produce)?;
    let place = [("group", group.as_str()), ("topic", topic.as_str()), ("partition", "1")];
    ctx.ok("commit", &[&place[..], &[("offset", "123"), ("metadata", "half way")]].concat())?;

    ctx.restart()?;

    let consume = [("topic", topic.as_str()), ("partitions", "1"), ("count", "300")];
    let read = ctx.ok("consume", &consume)?;
    ensure!(
        read["partitions"]["1"]["digest"] == sent["partitions"]["1"]["digest"],
        "another content after the restart:\n{sent}\n{read}"
    );
    let committed = ctx.ok("committed", &place)?;
    expect(&committed, "offset", 123)?;
    // kafkajs does not send the metadata that it is given.
    let metadata = if ctx.client() == Client::KafkaJs { "" } else { "half way" };
    ensure!(committed["metadata"] == metadata, "metadata is lost: {committed}");
    let configs = ctx.ok("configs", &[("topic", &topic)])?;
    ensure!(configs["configs"]["retention.ms"] == "123456789", "config is lost: {configs}");
    let again = ctx.ok("produce", &produce)?;
    expect(&again["partitions"]["1"], "first", 300)
}
