//! Syncs that are slow, that fail, and that are the last thing a process sees.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};

use super::{Ground, Rig, Story, wait_for};
use crate::wire::{STORAGE_ERROR, TIMED_OUT, Wire};

/// Producers that push while the disk stands still.
const PRODUCERS: u64 = 8;
/// What each of them has to say, in bytes; together far more than the budgets below.
const PUSH_BYTES: u64 = 32 << 20;
/// The budgets of the broker while the disk stands still.
const BUDGETS: [&str; 5] = [
    "socket.request.max.bytes=8388608",
    "memory.receive=16MiB",
    "memory.lanes=8MiB",
    "memory.tail_cache=16MiB",
    "memory.answers=16MiB",
];
const BUDGET_BYTES: u64 = (8 + 16 + 16 + 16) << 20;
/// On top: what the allocator keeps, buffers of sockets, one batch in flight for each producer.
const SLACK_BYTES: u64 = 40 << 20;
/// No write to a socket for that long: the broker takes nothing more.
const STUCK: Duration = Duration::from_millis(700);
/// Records of 20 kB in one pushed batch.
const BATCH: u64 = 40;

/// The disk stands still: memory is bounded, reads and metadata go on, and acknowledgements come
/// when the disk does.
///
/// # Errors
/// When it is otherwise.
pub fn slow(ground: &mut Ground) -> Result<()> {
    let mut rig = Rig::new()?;
    rig.shim(Some(ground))?;
    for budget in BUDGETS {
        rig.set(budget);
    }
    // Large enough that none has to be made meanwhile.
    rig.set("log.journal_size=512MiB").set("log.sort_after=512MiB").launch()?;
    let result = stand_still(&mut rig);
    result.map_err(|error| error.context(rig.log_tail()))
}

fn stand_still(rig: &mut Rig) -> Result<()> {
    let mut wire = rig.connect()?;
    let story = Story::new("kept", 1);
    story.create(&mut wire)?;
    let pushed = i32::try_from(PRODUCERS)?;
    wire.create_topic("pushed", pushed)?;
    for first in (0..100).step_by(10) {
        story.produce(&mut wire, 0, "before", first..first + 10)?;
    }
    let before = rig.resident_bytes()?;
    let faults = rig.faults().len();
    rig.order("hold 0 /journal-")?;
    let mut waiting = rig.connect()?;
    story.send(&mut waiting, 0, "while", 0..5)?;
    rig.wait_for_fault(faults)?;

    let (sent, taken, stop) = (AtomicU64::new(0), AtomicU64::new(0), AtomicBool::new(false));
    let mut peak = 0;
    std::thread::scope(|scope| -> Result<()> {
        let mut producers = Vec::new();
        for partition in 0..pushed {
            let wire = rig.connect()?;
            let (sent, taken) = (&sent, &taken);
            producers.push(scope.spawn(move || push(wire, partition, sent, taken)));
        }
        // Until nobody gets anything across any more.
        let looked = while_they_push(rig, &story, &sent, &mut peak);
        stop.store(true, Ordering::Relaxed);
        rig.order("pass 0 -")?;
        looked?;
        for producer in producers {
            producer.join().map_err(|_| anyhow::anyhow!("a producer panicked"))??;
        }
        Ok(())
    })?;
    let produced = story.answered(&mut waiting, 0, "while", 0..5)?;
    ensure!(produced.code == 0, "{produced:?}");
    let all = PRODUCERS * PUSH_BYTES;
    let most = before + BUDGET_BYTES + SLACK_BYTES;
    ensure!(peak < most, "{peak} bytes resident, {most} are the budgets");
    ensure!(taken.into_inner() == all, "not all was acknowledged once the disk went on");
    for partition in 0..pushed {
        let high = wire.fetch("pushed", partition, 0)?.high;
        let wanted = i64::try_from(PUSH_BYTES / batch_bytes() * BATCH)?;
        ensure!(high == wanted, "partition {partition} ends at {high}, not {wanted}");
    }
    story.judge(&mut wire).map(drop)
}

fn batch_bytes() -> u64 {
    // So that a producer's bytes are whole batches.
    PUSH_BYTES / 64
}

/// Sends everything as fast as the socket takes it, then takes all answers.
fn push(mut wire: Wire, partition: i32, sent: &AtomicU64, taken: &AtomicU64) -> Result<()> {
    let value = vec![1_u8; usize::try_from(batch_bytes() / BATCH)?];
    let batches = PUSH_BYTES / batch_bytes();
    for _ in 0..batches {
        let values = std::iter::repeat_n(value.as_slice(), usize::try_from(BATCH)?);
        wire.send_batch("pushed", partition, values)?;
        sent.fetch_add(batch_bytes(), Ordering::Relaxed);
    }
    for _ in 0..batches {
        let produced = wire.batch_answer()?;
        ensure!(produced.code == 0, "{produced:?}");
        taken.fetch_add(batch_bytes(), Ordering::Relaxed);
    }
    Ok(())
}

/// Looks at memory, reads and metadata until the producers are stuck.
fn while_they_push(rig: &Rig, story: &Story, sent: &AtomicU64, peak: &mut u64) -> Result<()> {
    let mut wire = rig.connect()?;
    let mut last = (u64::MAX, std::time::Instant::now());
    let mut round = 0;
    wait_for("producers that are stuck", || {
        *peak = (*peak).max(rig.resident_bytes()?);
        round += 1;
        ensure!(story.read(&mut wire, "reader", round)? == 100, "reads do not go on");
        ensure!(wire.metadata()? == 1, "metadata does not go on");
        let now = sent.load(Ordering::Relaxed);
        if now != last.0 {
            last = (now, std::time::Instant::now());
        }
        Ok((last.1.elapsed() > STUCK).then_some(()))
    })?;
    let all = PRODUCERS * PUSH_BYTES;
    ensure!(last.0 < all, "the broker took all {all} bytes: nothing holds it back");
    let (code, message) = wire.create_topic("meanwhile", 3)?;
    ensure!(code == 0, "no topic while the journal stands still: {code} {message}");
    Ok(())
}

/// Writers in threads, until their connection ends; then `fault` has happened.
fn under_load<T>(
    rig: &mut Rig,
    story: &Story,
    writers: i32,
    fault: impl FnOnce(&mut Rig) -> Result<T>,
) -> Result<T> {
    let mut wires = Vec::new();
    for _ in 0..writers {
        wires.push(rig.connect()?);
    }
    let acknowledged = AtomicU64::new(0);
    std::thread::scope(|scope| {
        let mut running = Vec::new();
        for (partition, mut wire) in (0..).zip(wires) {
            let acknowledged = &acknowledged;
            running.push(scope.spawn(move || -> Result<()> {
                let writer = format!("w{partition}");
                // More than any case takes.
                for first in (0..1_000_000).step_by(3) {
                    match story.produce(&mut wire, partition, &writer, first..first + 3) {
                        Ok(produced) if produced.code == 0 => {
                            acknowledged.fetch_add(1, Ordering::Relaxed);
                        }
                        Ok(produced) if produced.code == TIMED_OUT => {}
                        Ok(produced) => {
                            // Ended partitions: the client would look for another leader.
                            ensure!(matches!(produced.code, 5 | 6), "{produced:?}");
                        }
                        Err(_) => return Ok(()),
                    }
                }
                bail!("the broker does not end")
            }));
        }
        let enough = wait_for("acknowledgements under load", || {
            Ok((acknowledged.load(Ordering::Relaxed) > 30).then_some(()))
        });
        let done = enough.and_then(|()| fault(rig));
        if done.is_err() {
            let _ = rig.kill();
        }
        for writer in running {
            writer.join().map_err(|_| anyhow::anyhow!("a writer panicked"))??;
        }
        done
    })
}

/// The sync of a journal fails: the process ends and says what to do; nothing acknowledged is lost.
///
/// # Errors
/// When it is otherwise.
pub fn failing_journal(ground: &mut Ground) -> Result<()> {
    // Of a file, and of the folder that gives the next file its name.
    for place in ["/journal-", "/brokers/1-"] {
        let mut rig = Rig::new()?;
        rig.shim(Some(ground))?;
        rig.launch()?;
        let result = fail_journal(&mut rig, place);
        result.map_err(|error| error.context(format!("{place}\n{}", rig.log_tail())))?;
    }
    Ok(())
}

fn fail_journal(rig: &mut Rig, place: &str) -> Result<()> {
    let story = Story::new("kept", 4);
    story.create(&mut rig.connect()?)?;
    let faults = rig.faults().len();
    let ending = story.outage(|| {
        let ending = under_load(rig, &story, 4, |rig| {
            rig.order(&format!("fail 5 {place}"))?;
            rig.wait_for_end()
        })?;
        ensure!(rig.faults().len() > faults, "no sync failed");
        rig.shim(None)?;
        rig.launch()?;
        Ok(ending)
    })?;
    ending.expect_error(&["can not tell what is durable", "check the disk", "start again"])?;
    let mut wire = rig.connect()?;
    let summary = story.judge(&mut wire)?;
    ensure!(summary.acknowledged > 0, "nothing was acknowledged: {summary:?}");
    Ok(())
}

/// The syncs of SQLite fail: what is answered with success is there after the next start, what is
/// refused is not, and the log goes on or ends with a message.
///
/// # Errors
/// When it is otherwise.
pub fn failing_metadata(ground: &mut Ground) -> Result<()> {
    let mut rig = Rig::new()?;
    rig.shim(Some(ground))?;
    rig.launch()?;
    let result = fail_metadata(&mut rig);
    result.map_err(|error| error.context(rig.log_tail()))
}

fn fail_metadata(rig: &mut Rig) -> Result<()> {
    let mut wire = rig.connect()?;
    let story = Story::new("kept", 1);
    story.create(&mut wire)?;
    story.produce(&mut wire, 0, "before", 0..10)?;
    let created = wire.create_topic("created", 1)?;
    ensure!(created.0 == 0, "{created:?}");
    let faults = rig.faults().len();
    rig.order("fail 5 /meta.sqlite")?;
    let answer = wire.create_topic("unknown", 1);
    rig.wait_for_fault(faults)?;
    let refused = match answer {
        // Unknown, and said so: by the code, or by the end of the process.
        Ok((TIMED_OUT, _)) | Err(_) => false,
        Ok((STORAGE_ERROR, _)) => true,
        Ok(answer) => bail!("neither unknown nor refused: {answer:?}"),
    };
    story.outage(|| {
        match rig.ended()? {
            Some(ending) => ending.expect_error(&["metadata", "check the disk"])?,
            None => rig.kill()?,
        }
        rig.shim(None)?;
        rig.launch()
    })?;
    let mut wire = rig.connect()?;
    let fetched = wire.fetch("created", 0, 0)?;
    ensure!(fetched.code == 0, "a topic whose creation was acknowledged is gone");
    let unknown = wire.fetch("unknown", 0, 0)?.code;
    ensure!(!refused || unknown != 0, "a topic whose creation was refused is there");
    story.judge(&mut wire).map(drop)
}

/// Killed in front of the n-th sync of each kind, in the middle of starts, rolls and changes of the
/// metadata: the next start has all that was acknowledged.
///
/// # Errors
/// When it is otherwise.
pub fn killed_at_syncs(ground: &mut Ground) -> Result<()> {
    let mut rig = Rig::new()?;
    rig.shim(Some(ground))?;
    rig.launch()?;
    let result = kill_at_syncs(&mut rig);
    result.map_err(|error| error.context(rig.log_tail()))
}

fn kill_at_syncs(rig: &mut Rig) -> Result<()> {
    let story = Story::new("kept", 2);
    story.create(&mut rig.connect()?)?;
    let mut round = 0;
    for place in ["/journal-", "/tmp/", "/brokers", "/meta.sqlite", "/sealed"] {
        for turn in [1, 2, 5] {
            round += 1;
            let faults = rig.faults().len();
            story.outage(|| {
                // While it runs where that syncs there, else at the next start.
                rig.order(&format!("kill {turn} {place}"))?;
                work_until_killed(rig, &story, round)?;
                if rig.ended()?.is_none() {
                    rig.kill()?;
                    if rig.launch_either()?.is_none() {
                        rig.kill()?;
                    }
                }
                rig.order("pass 0 -")?;
                rig.launch()
            })?;
            let happened = rig.faults().len() > faults;
            ensure!(happened || turn > 1, "no process was killed at the first sync of {place}");
            let mut wire = rig.connect()?;
            story.read(&mut wire, "reader", round)?;
        }
    }
    story.judge(&mut rig.connect()?).map(drop)
}

/// Produces enough for a roll, and creates topics, until that is over or the connection is.
fn work_until_killed(rig: &Rig, story: &Story, round: i64) -> Result<()> {
    let mut wire = rig.connect()?;
    let writer = format!("w{round}");
    // Every 97th record has 20 kB.
    for first in (0..2_000).step_by(400) {
        let numbers = first..first + 400;
        let Ok(produced) = story.produce(&mut wire, 0, &writer, numbers) else { return Ok(()) };
        ensure!(matches!(produced.code, 0 | TIMED_OUT | 5 | 6), "{produced:?}");
        let Ok(created) = wire.create_topic(&format!("t{round}-{first}"), 1) else { return Ok(()) };
        ensure!(matches!(created.0, 0 | TIMED_OUT), "{created:?}");
    }
    let mut bulk = rig.connect().context("the broker was not killed")?;
    for at in 0..4 {
        let value = vec![at; 900_000];
        let name = format!("t{round}-0");
        let sent = bulk.send_batch(&name, 0, std::iter::once(value.as_slice()));
        if sent.and_then(|()| bulk.batch_answer()).is_err() {
            return Ok(());
        }
    }
    Ok(())
}
