//! Limits that the system puts on the process: the size of a file, and open files.

use anyhow::{Context as _, Result, ensure};

use super::{Ground, Rig, Story, wait_for};
use crate::wire::{STORAGE_ERROR, TIMED_OUT, Wire};

/// Files may not grow: the signal for it does not kill, and it is treated as a full disk that heals.
///
/// # Errors
/// When it is otherwise.
pub fn file_size(_: &mut Ground) -> Result<()> {
    let mut rig = Rig::new()?;
    rig.launch()?;
    let result = limit_file_size(&mut rig);
    result.map_err(|error| error.context(rig.log_tail()))
}

fn limit_file_size(rig: &mut Rig) -> Result<()> {
    let mut wire = rig.connect()?;
    let story = Story::new("kept", 1);
    story.create(&mut wire)?;
    story.produce(&mut wire, 0, "before", 0..10)?;
    // The soft limit only, so that it can be raised again. SQLite's files are smaller.
    wire.timeout_ms = 500;
    rig.limit("--fsize=3145728:")?;
    let (mut refused, mut next) = (false, 0);
    for _ in 0..400 {
        let produced = story.produce(&mut wire, 0, "while", next..next + 100)?;
        next += 100;
        // Unknown is what was accepted before anybody knew of the limit.
        ensure!(matches!(produced.code, 0 | STORAGE_ERROR | TIMED_OUT), "{produced:?}");
        if produced.code == STORAGE_ERROR {
            let clear = produced.message.to_lowercase().contains("file too large");
            ensure!(clear, "unclear: {produced:?}");
            refused = true;
            break;
        }
    }
    ensure!(refused && rig.ended()?.is_none(), "the limit was not met");
    story.read(&mut wire, "reader", 1)?;
    ensure!(wire.create_topic("other", 1)?.0 == 0, "no topic while files may not grow");
    rig.limit("--fsize=unlimited:")?;
    wait_for("produce after the limit was raised", || {
        next += 1;
        let produced = story.produce(&mut wire, 0, "after", next..next + 1)?;
        Ok((produced.code == 0).then_some(()))
    })?;
    story.judge(&mut wire)?;
    story.outage(|| rig.kill().and_then(|()| rig.launch()))?;
    story.judge(&mut rig.connect()?).map(drop)
}

/// Open files of the limited broker.
const FILES: usize = 128;

/// More connections than there are file descriptors: journals roll, topics are created, connections
/// that were there are served, and new ones are taken once others are gone.
///
/// # Errors
/// When it is otherwise.
pub fn file_descriptors(_: &mut Ground) -> Result<()> {
    let mut rig = Rig::new()?;
    rig.through(&["prlimit", &format!("--nofile={FILES}:{FILES}"), "--"]);
    rig.launch()?;
    let result = use_up_descriptors(&mut rig);
    result.map_err(|error| error.context(rig.log_tail()))
}

fn open_descriptors(rig: &Rig) -> Result<usize> {
    Ok(std::fs::read_dir(format!("/proc/{}/fd", rig.pid()?))?.count())
}

fn use_up_descriptors(rig: &mut Rig) -> Result<()> {
    let mut wire = rig.connect()?;
    let story = Story::new("kept", 1);
    story.create(&mut wire)?;
    let before = open_descriptors(rig)?;
    let mut crowd: Vec<Wire> = Vec::new();
    for _ in 0..3 * FILES {
        crowd.push(rig.connect()?);
    }
    // Connections are taken in order: what becomes of the last one says that all were dealt with.
    let last = crowd.last_mut().context("there is no crowd")?;
    ensure!(last.metadata().is_err(), "the last of {} connections is served", 3 * FILES);
    let taken = open_descriptors(rig)?;
    ensure!(taken > before + 10, "only {taken} descriptors are open, {before} before");
    // Enough for several rolls.
    for first in (0..6_000).step_by(100) {
        let produced = story.produce(&mut wire, 0, "while", first..first + 100)?;
        ensure!(produced.code == 0, "with {taken} of {FILES} descriptors open: {produced:?}");
    }
    let mut bulk = vec![0_u8; 900_000];
    for at in 0..16 {
        bulk.fill(at);
        let (code, message) = match at {
            0 => wire.create_topic("bulk", 1)?,
            _ => (0, String::new()),
        };
        ensure!(code == 0, "no topic: {code} {message}");
        wire.send_batch("bulk", 0, std::iter::once(bulk.as_slice()))?;
        let produced = wire.batch_answer()?;
        ensure!(produced.code == 0, "no roll with {taken} of {FILES} open: {produced:?}");
    }
    story.read(&mut wire, "reader", 1)?;
    // The fault: not all of the crowd is served.
    let mut refused = 0;
    for wire in &mut crowd {
        refused += usize::from(wire.metadata().is_err());
    }
    ensure!(refused >= 2 * FILES, "only {refused} connections were refused");
    drop(crowd);
    wait_for("a connection after others are gone", || {
        let mut wire = rig.connect()?;
        Ok(wire.metadata().ok().map(drop))
    })?;
    ensure!(rig.ended()?.is_none(), "the broker ended");
    no_descriptor_at_all(rig, &story, &mut wire)?;
    story.judge(&mut wire)?;
    story.outage(|| rig.kill().and_then(|()| rig.launch()))?;
    story.judge(&mut rig.connect()?).map(drop)
}

/// Not one more file can be opened: a roll is refused until that is over.
fn no_descriptor_at_all(rig: &mut Rig, story: &Story, wire: &mut Wire) -> Result<()> {
    wire.timeout_ms = 500;
    rig.limit("--nofile=8:")?;
    let mut next = 0;
    let mut produce = |wire: &mut Wire| {
        next += 100;
        let produced = story.produce(wire, 0, "without", next - 100..next)?;
        let known = matches!(produced.code, 0 | STORAGE_ERROR | TIMED_OUT);
        ensure!(known, "{produced:?}");
        Ok(produced)
    };
    wait_for("a roll without descriptors", || {
        let produced = produce(wire)?;
        let clear = produced.message.contains("Too many open files");
        ensure!(clear || produced.code != STORAGE_ERROR, "unclear: {produced:?}");
        Ok((produced.code == STORAGE_ERROR).then_some(()))
    })?;
    story.read(wire, "reader", 2)?;
    rig.limit(&format!("--nofile={FILES}:"))?;
    wait_for("produce with descriptors", || Ok((produce(wire)?.code == 0).then_some(())))?;
    ensure!(rig.ended()?.is_none(), "the broker ended");
    Ok(())
}
