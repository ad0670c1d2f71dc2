//! No room: for journals, for the metadata, for a start.

use std::fs;
use std::ops::Range;

use anyhow::{Result, bail, ensure};

use super::{Ground, Rig, Small, Story, wait_for};
use crate::wire::{STORAGE_ERROR, TIMED_OUT, Wire};

/// The small file system: some journals of 4 MiB, and what is kept for the metadata.
const SMALL_BYTES: u64 = 64 << 20;
const RESERVE: &str = "log.reserve=8MiB";
const RESERVE_BYTES: u64 = 8 << 20;
/// Records of 20 kB in one batch of the bulk.
const BULK: usize = 32;

/// Fills a topic until it is refused; gives the number of records that were acknowledged. What was
/// accepted before anybody knew that there is no room has an unknown outcome first.
fn fill(wire: &mut Wire, topic: &str) -> Result<i64> {
    let value = vec![7_u8; 20_000];
    // Twice what the file system holds.
    let batches = 2 * usize::try_from(SMALL_BYTES)? / (BULK * value.len());
    let mut acknowledged = 0;
    wire.timeout_ms = 500;
    for _ in 0..batches {
        wire.send_batch(topic, 0, std::iter::repeat_n(value.as_slice(), BULK))?;
        let produced = wire.batch_answer()?;
        match produced.code {
            0 => acknowledged += i64::try_from(BULK)?,
            TIMED_OUT => {}
            STORAGE_ERROR => {
                ensure!(produced.message.contains("no room"), "unclear: {produced:?}");
                return Ok(acknowledged);
            }
            _ => bail!("refused otherwise than as full: {produced:?}"),
        }
    }
    bail!("{acknowledged} records were acknowledged and the disk is not full")
}

/// Produces one batch of the story as soon as there is room.
fn heals(story: &Story, wire: &mut Wire, writer: &str) -> Result<()> {
    let mut next = 0;
    wait_for("produce after room was made", || {
        let numbers: Range<i64> = next..next + 5;
        next += 5;
        let produced = story.produce(wire, 0, writer, numbers)?;
        let known = matches!(produced.code, 0 | STORAGE_ERROR);
        ensure!(known, "neither full nor healed: {produced:?}");
        Ok((produced.code == 0).then_some(()))
    })
}

/// `COORDINATOR_LOAD_IN_PROGRESS`, `COORDINATOR_NOT_AVAILABLE`, `NOT_COORDINATOR`, and `REQUEST_TIMED_OUT`.
const RETRIABLE_COMMITS: [i16; 4] = [14, 15, 16, TIMED_OUT];

/// Commits an offset; the answer must be one of `allowed`. The first makes the topic of the groups.
fn commits(wire: &mut Wire, offset: i64, allowed: &[i16]) -> Result<()> {
    wait_for("a commit", || {
        let code = wire.commit("group", "kept", offset)?;
        let coming = allowed == [0] && RETRIABLE_COMMITS.contains(&code);
        ensure!(coming || allowed.contains(&code), "the commit of {offset} got error {code}");
        Ok((!coming).then_some(()))
    })
}

fn check_full(rig: &Rig, small: &Small) -> Result<()> {
    let left = small.available()?;
    ensure!(left < RESERVE_BYTES + (4 << 20), "{left} bytes are left: it is not full");
    let log = rig.log();
    ensure!(log.contains("no new journal file: produce is refused"), "no warning in\n{log}");
    Ok(())
}

/// Produce is refused with a retriable error, all else goes on, and room heals without a restart.
///
/// # Errors
/// When it is otherwise.
pub fn refuses_and_heals(_: &mut Ground) -> Result<()> {
    let mut rig = Rig::on_small(SMALL_BYTES)?;
    rig.set(RESERVE).launch()?;
    let result = refuse_and_heal(&mut rig);
    result.map_err(|error| error.context(rig.log_tail()))
}

fn refuse_and_heal(rig: &mut Rig) -> Result<()> {
    let ballast = rig.data().with_file_name("ballast");
    fs::write(&ballast, vec![0; usize::try_from(SMALL_BYTES / 4)?])?;
    let mut wire = rig.connect()?;
    let story = Story::new("kept", 2);
    story.create(&mut wire)?;
    for first in (0..200).step_by(10) {
        let produced = story.produce(&mut wire, 1, "before", first..first + 10)?;
        ensure!(produced.code == 0, "{produced:?}");
    }
    commits(&mut wire, 1, &[0])?;
    wire.create_topic("bulk", 1)?;
    let bulk = fill(&mut wire, "bulk")?;
    check_full(rig, rig.small()?)?;
    let pid = rig.pid()?;
    for first in (0..50).step_by(10) {
        let produced = story.produce(&mut wire, 0, "while", first..first + 10)?;
        ensure!(produced.code == STORAGE_ERROR, "it is full: {produced:?}");
    }
    // Reads and metadata go on.
    ensure!(story.read(&mut wire, "reader", 1)? == 200, "not all is read while it is full");
    let fetched = wire.fetch("bulk", 0, bulk - 1)?;
    ensure!((fetched.code, fetched.high) == (0, bulk), "{} of {bulk}", fetched.high);
    // Commits are in the log too. Java's clients try these again.
    commits(&mut wire, 2, &RETRIABLE_COMMITS)?;
    let created = wire.create_topic("new", 3)?;
    ensure!(created.0 == 0, "no topic while the reserve is there: {created:?}");
    check_full(rig, rig.small()?)?;
    let deleted = wire.delete_topic("new")?;
    ensure!(deleted.0 == 0, "no deletion while the reserve is there: {deleted:?}");
    // Room comes from a file that is not ours.
    fs::remove_file(ballast)?;
    heals(&story, &mut wire, "after")?;
    commits(&mut wire, 3, &[0])?;
    ensure!(rig.pid()? == pid && rig.ended()?.is_none(), "the broker was restarted");
    story.judge(&mut wire)?;
    story.outage(|| rig.kill().and_then(|()| rig.launch()))?;
    story.judge(&mut rig.connect()?).map(drop)
}

/// Room that comes from deleting a topic: what it held goes although nothing can be written.
///
/// # Errors
/// When it is otherwise.
pub fn deleting_makes_room(_: &mut Ground) -> Result<()> {
    let mut rig = Rig::on_small(SMALL_BYTES)?;
    rig.set(RESERVE).launch()?;
    let result = delete_for_room(&mut rig);
    result.map_err(|error| error.context(rig.log_tail()))
}

fn delete_for_room(rig: &mut Rig) -> Result<()> {
    let mut wire = rig.connect()?;
    let story = Story::new("kept", 1);
    story.create(&mut wire)?;
    story.produce(&mut wire, 0, "before", 0..100)?;
    wire.create_topic("bulk", 1)?;
    fill(&mut wire, "bulk")?;
    check_full(rig, rig.small()?)?;
    let deleted = wire.delete_topic("bulk")?;
    ensure!(deleted.0 == 0, "no deletion while the reserve is there: {deleted:?}");
    heals(&story, &mut wire, "after")?;
    story.judge(&mut wire)?;
    story.outage(|| rig.kill().and_then(|()| rig.launch()))?;
    story.judge(&mut rig.connect()?).map(drop)
}

/// Killed while full: a start without room says so, leaves nothing, and one with room has everything.
///
/// # Errors
/// When it is otherwise.
pub fn killed_and_started_again(_: &mut Ground) -> Result<()> {
    let mut rig = Rig::on_small(SMALL_BYTES)?;
    rig.set(RESERVE).launch()?;
    let result = kill_and_start(&mut rig);
    result.map_err(|error| error.context(rig.log_tail()))
}

fn kill_and_start(rig: &mut Rig) -> Result<()> {
    let mut wire = rig.connect()?;
    let story = Story::new("kept", 1);
    story.create(&mut wire)?;
    for first in (0..100).step_by(10) {
        story.produce(&mut wire, 0, "before", first..first + 10)?;
    }
    wire.create_topic("bulk", 1)?;
    let bulk = fill(&mut wire, "bulk")?;
    check_full(rig, rig.small()?)?;
    story.outage(|| {
        rig.kill()?;
        let before = rig.names("brokers")?;
        // With the reserve, and without a byte: as a service manager does it, again and again.
        for round in 0..2 {
            for _ in 0..3 {
                rig.launch_refused()?
                    .expect_error(&["the disk is full", "beside the data folder"])?;
                let now = rig.names("brokers")?;
                ensure!(now == before, "starts without room left folders: {before:?}, {now:?}");
            }
            if round == 0 {
                rig.small()?.fill()?;
            }
        }
        fs::remove_file(rig.data().with_file_name("ballast"))?;
        // What the operations page says for a start without room.
        rig.set("log.reserve=0B");
        rig.launch()
    })?;
    let mut wire = rig.connect()?;
    let fetched = wire.fetch("bulk", 0, bulk - 1)?;
    ensure!(fetched.code == 0 && fetched.high >= bulk, "{} of {bulk}", fetched.high);
    ensure!(wire.delete_topic("bulk")?.0 == 0, "no deletion");
    heals(&story, &mut wire, "after")?;
    story.judge(&mut wire).map(drop)
}

/// Not a byte for SQLite: metadata is refused with a retriable error, nothing ends, and it heals.
///
/// # Errors
/// When it is otherwise.
pub fn metadata_refuses_and_heals(_: &mut Ground) -> Result<()> {
    let mut rig = Rig::on_small(SMALL_BYTES)?;
    rig.set(RESERVE).launch()?;
    let result = fill_metadata(&mut rig);
    result.map_err(|error| error.context(rig.log_tail()))
}

/// Creates topics until one is refused; gives its name, and those of the others.
fn create_until_refused(wire: &mut Wire, names: &str) -> Result<(String, Vec<String>)> {
    let mut created = Vec::new();
    // What is allocated already lets some pass.
    for number in 0..2_000 {
        let name = format!("{names}-{number}");
        let (code, message) = wire.create_topic(&name, 20)?;
        match code {
            0 => created.push(name),
            STORAGE_ERROR => {
                let clear = message.contains("full");
                ensure!(clear, "the message does not say that the disk is full: {message}");
                return Ok((name, created));
            }
            _ => bail!("refused otherwise than as full: {code} {message}"),
        }
    }
    bail!("{} topics were created on a full disk", created.len())
}

fn fill_metadata(rig: &mut Rig) -> Result<()> {
    let mut wire = rig.connect()?;
    let story = Story::new("kept", 1);
    story.create(&mut wire)?;
    story.produce(&mut wire, 0, "before", 0..10)?;
    let ballast = rig.small()?.fill()?;
    let (refused, created) = create_until_refused(&mut wire, "first")?;
    ensure!(rig.ended()?.is_none(), "the broker ended");
    // Journals have their room already.
    let produced = story.produce(&mut wire, 0, "while", 0..10)?;
    ensure!(produced.code == 0, "{produced:?}");
    ensure!(story.read(&mut wire, "reader", 1)? == 20, "not all is read");
    fs::remove_file(&ballast)?;
    wait_for("a topic after room was made", || {
        let (code, message) = wire.create_topic(&refused, 20)?;
        ensure!(matches!(code, 0 | STORAGE_ERROR), "neither full nor healed: {code} {message}");
        Ok((code == 0).then_some(()))
    })?;
    // Killed while full: what was created is there, what was refused is not.
    rig.small()?.fill()?;
    let (refused, more) = create_until_refused(&mut wire, "second")?;
    story.outage(|| {
        rig.kill()?;
        let refusal = rig.launch_either()?;
        fs::remove_file(&ballast)?;
        match refusal {
            Some(ending) => {
                ending.expect_error(&["the disk is full", "beside the data folder"])?;
                rig.launch()
            }
            // A recycled journal and the room of the last start were enough.
            None => Ok(()),
        }
    })?;
    let mut wire = rig.connect()?;
    for name in created.iter().chain(&more) {
        let fetched = wire.fetch(name, 19, 0)?;
        ensure!((fetched.code, fetched.high) == (0, 0), "{name} is lost: {}", fetched.code);
    }
    ensure!(wire.fetch(&refused, 19, 0)?.code != 0, "{refused} was refused, and is there");
    story.judge(&mut wire).map(drop)
}
