//! Reading itself: where partitions begin and end, what is printed, what is committed, and how it
//! goes on when the broker, or a partition, is away.
//!
//! After the stop nothing waits for longer than [`FAREWELL`].

use std::collections::BTreeMap;
use std::time::Duration;

use talos_protocol::records::{Limits, decode_records};
use talos_protocol::{ErrorCode, Str};
use tokio::sync::watch;

use super::ConsumeArgs;
use super::away::Away;
use super::print::Printer;
use crate::client::consumer::{Consumer, ConsumerOptions, Fetched};
use crate::client::group::{self, CommitAs, Member, Offsets};
use crate::client::offsets::{self, Spec};
use crate::client::{ClientError, Cluster, deadline};
use crate::output;
use crate::stop::Stop;

/// How often a group's offsets are committed, and offline partitions are looked at again.
const EVERY: Duration = Duration::from_secs(5);
/// How long the last commit and leaving the group may take together.
const FAREWELL: Duration = Duration::from_secs(3);
/// The pause before everything is begun again.
const PAUSE: Duration = Duration::from_secs(1);

/// Why reading paused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pause {
    Done,
    Rebalance,
}

/// Whether the group has moved on without this member.
fn is_stale(code: ErrorCode) -> bool {
    matches!(
        code,
        ErrorCode::RebalanceInProgress | ErrorCode::UnknownMemberId | ErrorCode::IllegalGeneration
    )
}

/// What is known before the first record of an assignment.
#[derive(Default)]
struct Plan {
    /// First offset to read, by partition.
    starts: BTreeMap<i32, i64>,
    /// Offset to stop before, by partition.
    ends: BTreeMap<i32, i64>,
    /// Partitions that nobody serves now.
    offline: BTreeMap<i32, ClientError>,
}

pub(super) struct Reading {
    cluster: Cluster,
    args: ConsumeArgs,
    since: Option<i64>,
    printer: Printer,
    stop: Stop,
    away: Away,
    /// Records still to be printed.
    left: u64,
    /// Next offset by partition, as far as output was flushed.
    done: Offsets,
    committed: Offsets,
}

impl Reading {
    pub(super) fn new(cluster: Cluster, args: ConsumeArgs, since: Option<i64>, stop: Stop) -> Self {
        let waits = args.exit || args.client.timeout.is_some();
        let limit = waits.then(|| args.client.timeout());
        let clock = cluster.env().clock.clone();
        Self {
            printer: Printer::new(args.format, args.verbose),
            away: Away::new(clock, &args.topic, limit, output::note),
            left: args.max.unwrap_or(u64::MAX),
            done: Offsets::new(),
            committed: Offsets::new(),
            cluster,
            args,
            since,
            stop,
        }
    }

    /// Reads these partitions, outside of any membership.
    pub(super) async fn run_alone(&mut self, partitions: &[i32]) -> anyhow::Result<()> {
        let ended = self.run(partitions, None, None).await;
        let farewell = self.farewell(None).await;
        ended?;
        farewell
    }

    /// Reads as a member of the group, through as many generations as it takes.
    pub(super) async fn run_member(&mut self, group: &str) -> anyhow::Result<()> {
        let topic = self.args.topic.clone();
        let mut member = Member::new(self.cluster.clone(), group, &topic);
        loop {
            match self.join(&mut member).await {
                Ok(true) => {}
                Ok(false) => return self.farewell(Some(&member)).await,
                Err(error) => {
                    let _ = self.farewell(Some(&member)).await;
                    return Err(error.into());
                }
            }
            let (rebalance, needed) = watch::channel(false);
            self.start_heartbeats(member.clone(), rebalance);
            let partitions = member.assigned().to_vec();
            let ended = self.run(&partitions, Some(&member), Some(needed)).await;
            match ended {
                Ok(Pause::Rebalance) => {
                    // What was printed is committed if the group still takes it; else it is read
                    // again by whoever has the partition then.
                    let _ = self.commit_within(Some(&member), FAREWELL).await;
                    self.done.clear();
                    self.committed.clear();
                }
                Ok(Pause::Done) => return self.farewell(Some(&member)).await,
                Err(error) => {
                    let _ = self.farewell(Some(&member)).await;
                    return Err(error);
                }
            }
        }
    }

    /// Joins the group, for as long as that is worth waiting for; `false`: the stop was asked for.
    async fn join(&mut self, member: &mut Member) -> Result<bool, ClientError> {
        let (stop, clock) = (self.stop.clone(), self.cluster.env().clock.clone());
        loop {
            let joined = tokio::select! {
                biased;
                () = stop.asked() => return Ok(false),
                joined = member.rejoin() => joined,
            };
            match joined {
                Ok(()) => {
                    self.away.is_back();
                    return Ok(true);
                }
                Err(error) if self.away.is_worth_waiting(&error) => {}
                Err(error) => return Err(error),
            }
            tokio::select! {
                biased;
                () = stop.asked() => return Ok(false),
                () = clock.sleep(PAUSE) => {}
            }
        }
    }

    /// Keeps the member alive until the receiver is dropped or the group rebalances.
    fn start_heartbeats(&self, member: Member, rebalance: watch::Sender<bool>) {
        let clock = self.cluster.env().clock.clone();
        self.cluster.env().tasks.spawn("group heartbeat", async move {
            let beating = async {
                loop {
                    clock.sleep(member.heartbeat_every()).await;
                    match member.heartbeat().await {
                        Ok(true) => {}
                        Ok(false) => return,
                        // The next one tries again, and the reader tells of it.
                        Err(error) => tracing::debug!(%error, "heartbeat failed"),
                    }
                }
            };
            tokio::select! {
                biased;
                () = rebalance.closed() => {}
                () = beating => {
                    rebalance.send_replace(true);
                }
            }
        });
    }

    /// Commits what was printed and leaves the group, as far as that goes within [`FAREWELL`].
    async fn farewell(&mut self, member: Option<&Member>) -> anyhow::Result<()> {
        let clock = self.cluster.env().clock.clone();
        let all = async {
            let committed = self.commit(member).await;
            if let Some(member) = member.filter(|member| member.is_known()) {
                // Without it the group waits for the end of the session.
                if let Err(error) = member.clone().leave().await {
                    tracing::debug!(%error, "the group was not left");
                }
            }
            committed
        };
        match deadline::within(&clock, FAREWELL, all).await {
            Err(error) if self.stop.is_asked() => {
                let text = "what was printed last could not be committed and will be read again";
                output::note(format!("warning: {text}: {error}"));
                Ok(())
            }
            committed => Ok(committed?),
        }
    }

    /// Reads these partitions until everything asked for is printed.
    async fn run(
        &mut self,
        partitions: &[i32],
        member: Option<&Member>,
        needed: Option<watch::Receiver<bool>>,
    ) -> anyhow::Result<Pause> {
        let Some(mut plan) = self.plan(partitions).await? else { return Ok(Pause::Done) };
        let told: Vec<_> = plan.offline.iter().map(|(p, error)| (*p, error.clone())).collect();
        self.away.update(&told);
        let mut open = BTreeMap::new();
        let from = self.open(&plan, &mut open);
        let nothing = open.is_empty() && plan.offline.is_empty();
        if self.left == 0 || (nothing && (self.args.exit || member.is_none())) {
            return Ok(Pause::Done);
        }
        let options =
            ConsumerOptions { read_committed: !self.args.read_uncommitted, ..Default::default() };
        let mut consumer = Consumer::start(self.cluster.clone(), options, &from).await?;
        loop {
            let pause = self.follow(&mut consumer, &mut open, &mut plan, member, &needed).await?;
            let finished = self.args.exit && open.is_empty() && self.left > 0;
            if pause != Pause::Done || self.stop.is_asked() || !finished {
                return Ok(pause);
            }
            if plan.offline.is_empty() {
                return Ok(Pause::Done);
            }
            // All the others are read: one more look at those that were offline.
            self.look_again(&consumer, &mut open, &mut plan).await?;
            if open.is_empty()
                && let Some((_, error)) = plan.offline.first_key_value()
            {
                let list: Vec<String> = plan.offline.keys().map(i32::to_string).collect();
                let what = if list.len() == 1 { "partition" } else { "partitions" };
                let topic = &self.args.topic;
                let text = format!("{what} {} of {topic} not read", list.join(", "));
                return Err(anyhow::Error::new(error.clone()).context(text));
            }
        }
    }

    /// Marks the partitions of the plan that have anything to read as open, and gives where to begin.
    fn open(&self, plan: &Plan, open: &mut BTreeMap<i32, i64>) -> Vec<(Str, i32, i64)> {
        let topic = Str::from(self.args.topic.clone());
        let mut from = Vec::new();
        for (partition, start) in &plan.starts {
            let end = match self.args.exit {
                true => plan.ends.get(partition).copied().unwrap_or(*start),
                false => i64::MAX,
            };
            if *start < end {
                open.insert(*partition, end);
                from.push((topic.clone(), *partition, *start));
            }
        }
        from
    }

    /// Prints what comes until the stop, a rebalance, or the end.
    async fn follow(
        &mut self,
        consumer: &mut Consumer,
        open: &mut BTreeMap<i32, i64>,
        plan: &mut Plan,
        member: Option<&Member>,
        needed: &Option<watch::Receiver<bool>>,
    ) -> anyhow::Result<Pause> {
        let (stop, clock) = (self.stop.clone(), self.cluster.env().clock.clone());
        let mut troubled = consumer.troubled();
        let mut needed = needed.clone();
        let mut last = clock.now();
        while self.left > 0 && !(self.args.exit && open.is_empty()) {
            let rebalance = async {
                match &mut needed {
                    Some(needed) => drop(needed.wait_for(|needed| *needed).await),
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                () = stop.asked() => return Ok(Pause::Done),
                () = rebalance => return Ok(Pause::Rebalance),
                Ok(()) = troubled.changed() => self.tell(consumer, plan),
                error = self.away.too_long() => {
                    let topic = &self.args.topic;
                    let text = format!("{topic} could not be read for {}", self.limit());
                    return Err(anyhow::Error::new(error).context(text));
                }
                fetched = consumer.next() => match fetched {
                    Some(fetched) => self.print(fetched?, open)?,
                    None => return Ok(Pause::Done),
                },
                () = clock.sleep_until(last + EVERY) => {
                    if self.regular(consumer, open, plan, member).await? == Pause::Rebalance {
                        return Ok(Pause::Rebalance);
                    }
                    last = clock.now();
                }
            }
        }
        Ok(Pause::Done)
    }

    fn limit(&self) -> talos_common::Period {
        talos_common::Period(self.args.client.timeout())
    }

    fn tell(&mut self, consumer: &Consumer, plan: &Plan) {
        let mut troubles = consumer.troubles();
        troubles.extend(plan.offline.iter().map(|(p, error)| (*p, error.clone())));
        self.away.update(&troubles);
    }

    /// What is done now and then: commit, and look at offline partitions. Ends at the stop at once.
    async fn regular(
        &mut self,
        consumer: &Consumer,
        open: &mut BTreeMap<i32, i64>,
        plan: &mut Plan,
        member: Option<&Member>,
    ) -> anyhow::Result<Pause> {
        let stop = self.stop.clone();
        let work = async {
            match self.commit_within(member, FAREWELL).await {
                Ok(()) => {}
                Err(error) => match error.code() {
                    Some(code) if member.is_some() && is_stale(code) => {
                        return Ok(Pause::Rebalance);
                    }
                    // The next commit has these offsets as well.
                    _ if error.is_away() => {}
                    _ if error.is_retriable() => output::note(format!("warning: {error}")),
                    _ => return Err(error.into()),
                },
            }
            if !self.args.exit && !plan.offline.is_empty() {
                self.look_again(consumer, open, plan).await?;
            }
            Ok(Pause::Done)
        };
        tokio::select! {
            biased;
            () = stop.asked() => Ok(Pause::Done),
            done = work => done,
        }
    }

    /// Adds the partitions that are no longer offline.
    async fn look_again(
        &mut self,
        consumer: &Consumer,
        open: &mut BTreeMap<i32, i64>,
        plan: &mut Plan,
    ) -> anyhow::Result<()> {
        let partitions: Vec<i32> = plan.offline.keys().copied().collect();
        self.cluster.forget(&self.args.topic);
        let clock = self.cluster.env().clock.clone();
        let news = match deadline::within(&clock, FAREWELL, self.plan_once(&partitions)).await {
            Ok(news) => news,
            // The next look finds out.
            Err(error) if self.away.is_worth_waiting(&error) => return Ok(()),
            Err(error) => return Err(error.into()),
        };
        consumer.add(&self.open(&news, open)).await?;
        plan.offline = news.offline;
        self.tell(consumer, plan);
        Ok(())
    }

    /// Where partitions begin and end, for as long as that is worth waiting for. `None`: the stop
    /// was asked for.
    async fn plan(&mut self, partitions: &[i32]) -> anyhow::Result<Option<Plan>> {
        let (stop, clock) = (self.stop.clone(), self.cluster.env().clock.clone());
        loop {
            let plan = tokio::select! {
                biased;
                () = stop.asked() => return Ok(None),
                plan = self.plan_once(partitions) => plan,
            };
            match plan {
                Ok(plan) => {
                    self.away.is_back();
                    return Ok(Some(plan));
                }
                Err(error) if self.away.is_worth_waiting(&error) => {}
                Err(error) => return Err(error.into()),
            }
            tokio::select! {
                biased;
                () = stop.asked() => return Ok(None),
                () = clock.sleep(PAUSE) => {}
            }
        }
    }

    async fn plan_once(&self, partitions: &[i32]) -> Result<Plan, ClientError> {
        let (cluster, topic) = (&self.cluster, &self.args.topic);
        let spec = match self.since {
            Some(ms) => Spec::Time(ms),
            None if self.args.from_beginning => Spec::Earliest,
            None => Spec::Latest,
        };
        let latest = offsets::list(cluster, topic, partitions, Spec::Latest).await?;
        let first = offsets::list(cluster, topic, partitions, Spec::Earliest).await?;
        let default = offsets::list(cluster, topic, partitions, spec).await?;
        let explicit = self.args.offset.is_some() || self.since.is_some();
        let committed = match &self.args.group {
            Some(group) if !explicit => group::offsets(cluster, group).await?,
            _ => Offsets::new(),
        };
        let mut plan = Plan::default();
        for listed in [&latest, &first, &default] {
            plan.offline.extend(listed.offline.iter().map(|(p, error)| (*p, error.clone())));
        }
        for partition in partitions.iter().filter(|p| !plan.offline.contains_key(p)) {
            let at = |listed: &offsets::Listed| listed.found.get(partition).copied().flatten();
            let end = at(&latest).unwrap_or(0);
            let start = match (self.args.offset, committed.get(&(topic.clone(), *partition))) {
                (Some(offset), _) if offset < 0 => {
                    end.saturating_add(offset).max(at(&first).unwrap_or(0))
                }
                (Some(offset), _) => offset,
                // What was committed may be gone by now.
                (None, Some(committed)) => (*committed).max(at(&first).unwrap_or(0)),
                (None, None) => at(&default).unwrap_or(end),
            };
            plan.starts.insert(*partition, start);
            plan.ends.insert(*partition, end);
        }
        Ok(plan)
    }

    fn print(&mut self, fetched: Fetched, open: &mut BTreeMap<i32, i64>) -> anyhow::Result<()> {
        let Some(end) = open.get(&fetched.partition).copied() else { return Ok(()) };
        let mut next = fetched.from;
        'batches: for batch in &fetched.batches {
            let corrupt = |source| ClientError::Corrupt {
                topic: fetched.topic.to_string(),
                partition: fetched.partition,
                offset: batch.header.base_offset,
                source,
            };
            let limits = Limits { max_decompressed_bytes: 1 << 30 };
            for record in decode_records(batch, &limits).map_err(corrupt)? {
                let record = record.map_err(corrupt)?;
                let offset = batch.offset_of(&record);
                if offset < fetched.from {
                    continue;
                }
                if offset >= end || self.left == 0 {
                    break 'batches;
                }
                self.printer.record(&fetched, offset, batch, &record)?;
                self.left -= 1;
                next = offset + 1;
            }
        }
        if self.left > 0 {
            next = fetched.next.min(end).max(next);
        }
        self.printer.flush()?;
        self.done.insert((fetched.topic.to_string(), fetched.partition), next);
        if fetched.next >= end {
            open.remove(&fetched.partition);
        }
        Ok(())
    }

    async fn commit_within(
        &mut self,
        member: Option<&Member>,
        limit: Duration,
    ) -> Result<(), ClientError> {
        let clock = self.cluster.env().clock.clone();
        deadline::within(&clock, limit, self.commit(member)).await
    }

    /// Commits what was printed since the last time.
    async fn commit(&mut self, member: Option<&Member>) -> Result<(), ClientError> {
        let Some(group) = self.args.group.clone() else { return Ok(()) };
        let news: Offsets = self
            .done
            .iter()
            .filter(|(place, offset)| self.committed.get(*place) != Some(offset))
            .map(|(place, offset)| (place.clone(), *offset))
            .collect();
        match member {
            Some(member) => member.commit(&news).await?,
            None => group::commit(&self.cluster, &group, CommitAs::default(), &news).await?,
        }
        self.committed.extend(news);
        Ok(())
    }
}
