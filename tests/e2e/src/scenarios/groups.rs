//! Scenarios of consumer groups (the classic protocol). Every member is a process of its own.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};

use super::{Ctx, expect};
use crate::client::{Client, Member};
use crate::process::POLL;

/// Members must have settled by then.
const SETTLE: Duration = Duration::from_secs(60);

/// Waits until the members share all partitions: each has some, none is missing or held twice.
fn settle(members: &[Member], partitions: i64) -> Result<()> {
    wait(members, "all partitions are shared", || {
        let mut all = BTreeSet::new();
        let mut count = 0;
        for member in members {
            let own = member.assigned().unwrap_or_default();
            if own.is_empty() {
                return false;
            }
            count += own.len();
            all.extend(own);
        }
        all == (0..partitions).collect() && count == all.len()
    })
}

fn wait(members: &[Member], what: &str, mut done: impl FnMut() -> bool) -> Result<()> {
    let deadline = Instant::now() + SETTLE;
    while !done() {
        if Instant::now() >= deadline {
            let outputs: Vec<_> = members.iter().map(Member::output).collect();
            bail!("not within {SETTLE:?}: {what}\n{}", outputs.join("\n"));
        }
        std::thread::sleep(POLL);
    }
    Ok(())
}

/// How often each (partition, offset) was read by the members together.
fn read(members: &[Member]) -> BTreeMap<(i64, i64), usize> {
    let mut seen = BTreeMap::new();
    for member in members {
        for record in member.records() {
            *seen.entry(record).or_insert(0) += 1;
        }
    }
    seen
}

fn fill(ctx: &Ctx<'_>, topic: &str, partitions: i64, each: i64) -> Result<()> {
    let each = each.to_string();
    for partition in 0..partitions {
        let partition = partition.to_string();
        let args = [("topic", topic), ("partition", &partition), ("count", &each)];
        ctx.ok("produce", &[&args[..], &[("shape", "plain")]].concat())?;
    }
    Ok(())
}

/// `count` members join one by one and share six partitions; then they leave one by one. Every
/// record is read, in order, and read twice only around a rebalance.
fn grow_and_shrink(ctx: &Ctx<'_>, count: usize) -> Result<()> {
    let partitions = 6;
    let (topic, group) = (ctx.name("t"), ctx.name("g"));
    ctx.create(&topic, 6, "")?;
    fill(ctx, &topic, partitions, 5)?;
    let mut members = vec![ctx.member(&group, &topic, &[])?];
    settle(&members, partitions)?;
    wait(&members, "the first member reads all", || read(&members).len() == 30)?;
    while members.len() < count {
        members.push(ctx.member(&group, &topic, &[])?);
    }
    settle(&members, partitions)?;
    fill(ctx, &topic, partitions, 5)?;
    wait(&members, "the members read all", || read(&members).len() == 60)?;
    for member in &members {
        check_order(member)?;
    }
    let described = ctx.ok("describe_group", &[("group", &group)])?;
    ensure!(described["state"] == "Stable", "the group is not stable: {described}");
    expect(&described, "members", i64::try_from(count)?)?;

    while members.len() > 1 {
        if let Some(last) = members.pop() {
            last.close()?;
        }
        settle(&members, partitions)?;
    }
    let before = read(&members).len();
    fill(ctx, &topic, partitions, 5)?;
    let wanted = before + 30;
    // What the closed members had committed is not read again by the one that is left.
    wait(&members, "the last member reads on", || read(&members).len() >= wanted)?;
    for member in members {
        member.close()?;
    }
    for partition in 0..partitions {
        let partition = partition.to_string();
        let place = [("group", group.as_str()), ("topic", &topic), ("partition", &partition)];
        expect(&ctx.ok("committed", &place)?, "offset", 15)?;
    }
    Ok(())
}

/// Offsets of a partition rise, except where a rebalance made the member read on from a commit.
fn check_order(member: &Member) -> Result<()> {
    let mut last: BTreeMap<i64, i64> = BTreeMap::new();
    let mut steps_back = 0;
    for (partition, offset) in member.records() {
        if last.insert(partition, offset).is_some_and(|before| before >= offset) {
            steps_back += 1;
        }
    }
    let rebalances = member.assignments();
    ensure!(steps_back <= rebalances * 6, "out of order {steps_back} times: {}", member.output());
    Ok(())
}

/// Two members.
pub fn of_two(ctx: &mut Ctx<'_>) -> Result<()> {
    grow_and_shrink(ctx, 2)
}

/// Five members.
pub fn of_five(ctx: &mut Ctx<'_>) -> Result<()> {
    grow_and_shrink(ctx, 5)
}

/// A static member that comes back within its session gets its partitions, and the other member
/// sees no rebalance; a second one of the same name fences the first.
pub fn static_members(ctx: &mut Ctx<'_>) -> Result<()> {
    let (topic, group) = (ctx.name("t"), ctx.name("g"));
    ctx.create(&topic, 4, "")?;
    let start = |instance: &str| {
        ctx.member(&group, &topic, &[("instance", instance), ("session_ms", "20000")])
    };
    let mut members = vec![start("one")?, start("two")?];
    settle(&members, 4)?;
    let Some(second) = members.pop() else { bail!("no second member") };
    let owned = second.assigned();
    let rebalances = members[0].assignments();
    second.kill()?;
    members.push(start("two")?);
    settle(&members, 4)?;
    ensure!(members[1].assigned() == owned, "the static member got other partitions");
    ensure!(
        members[0].assignments() == rebalances,
        "the other member saw a rebalance: {}",
        members[0].output()
    );
    let described = ctx.ok("describe_group", &[("group", &group)])?;
    expect(&described, "members", 2)?;

    let Some(fenced) = members.pop() else { bail!("no second member") };
    members.push(start("two")?);
    settle(&members, 4)?;
    // kafka-python does not tell its user that it was fenced.
    if ctx.client() != Client::KafkaPython {
        let code = fenced.fails(SETTLE)?;
        ensure!(code == 82, "not fenced (FENCED_INSTANCE_ID) but ended on {code}");
    }
    members.into_iter().try_for_each(Member::close)
}

/// A member that dies without a word is taken out when its session ends.
pub fn dead_member(ctx: &mut Ctx<'_>) -> Result<()> {
    let (topic, group) = (ctx.name("t"), ctx.name("g"));
    ctx.create(&topic, 4, "")?;
    let start = || ctx.member(&group, &topic, &[("session_ms", "3000")]);
    let mut members = vec![start()?, start()?];
    settle(&members, 4)?;
    if let Some(second) = members.pop() {
        second.kill()?;
    }
    settle(&members, 4)?;
    fill(ctx, &topic, 4, 2)?;
    wait(&members, "the member that is left reads all", || read(&members).len() == 8)?;
    members.into_iter().try_for_each(Member::close)
}

/// Groups are listed, described and deleted; committed offsets go with them.
pub fn group_admin(ctx: &mut Ctx<'_>) -> Result<()> {
    let (topic, group) = (ctx.name("t"), ctx.name("g"));
    ctx.create(&topic, 1, "")?;
    fill(ctx, &topic, 1, 10)?;
    let place = [("group", group.as_str()), ("topic", topic.as_str()), ("partition", "0")];
    expect(&ctx.ok("committed", &place)?, "offset", -1)?;
    let members = vec![ctx.member(&group, &topic, &[])?];
    wait(&members, "all is read", || read(&members).len() == 10)?;
    let listed = ctx.ok("groups", &[])?;
    let has = |listed: &serde_json::Value| {
        listed["groups"].as_array().is_some_and(|all| all.iter().any(|g| g == group.as_str()))
    };
    ensure!(has(&listed), "the group is not listed: {listed}");
    ctx.refused("delete_group", &[("group", &group)], &[68])?; // NON_EMPTY_GROUP
    members.into_iter().try_for_each(Member::close)?;
    let described = ctx.ok("describe_group", &[("group", &group)])?;
    ensure!(described["state"] == "Empty", "the group is not empty: {described}");
    expect(&ctx.ok("committed", &place)?, "offset", 10)?;
    ctx.ok("delete_group", &[("group", &group)])?;
    ensure!(!has(&ctx.ok("groups", &[])?), "the deleted group is still listed");
    expect(&ctx.ok("committed", &place)?, "offset", -1)?;
    let unknown = ctx.name("unknown");
    ctx.refused("delete_group", &[("group", &unknown)], &[69]) // GROUP_ID_NOT_FOUND
}
