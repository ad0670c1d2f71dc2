//! Scenarios that are the same for every client library: written once over the verbs.
//!
//! Invariants: every scenario uses topics and groups of its own, named after client and scenario,
//! so that the scenarios of a file share a broker and run in any order.

pub mod admin;
pub mod data;
pub mod groups;

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use crate::client::{Client, Member};
use crate::process::POLL;
use crate::suite::World;

/// A change that was acknowledged must be seen by then.
const LEARNED: Duration = Duration::from_secs(15);

/// One scenario.
pub type Body = fn(&mut Ctx<'_>) -> Result<()>;

/// All scenarios, by name.
pub const ALL: &[(&str, Body)] = &[
    ("create_topic", admin::create_topic),
    ("auto_create", data::auto_create),
    ("codecs", data::codecs),
    ("sizes", data::sizes),
    ("acks", data::acks),
    ("idempotent", data::idempotent),
    ("keys", data::keys),
    ("offsets_by_time", data::offsets_by_time),
    ("too_large", data::too_large),
    ("fetch_inside_batch", data::fetch_inside_batch),
    ("offset_out_of_range", data::offset_out_of_range),
    ("delete_records", admin::delete_records),
    ("configs", admin::configs),
    ("create_partitions", admin::create_partitions),
    ("delete_topic", admin::delete_topic),
    ("restart", data::restart),
    ("group_of_two", groups::of_two),
    ("group_of_five", groups::of_five),
    ("static_members", groups::static_members),
    ("dead_member", groups::dead_member),
    ("group_admin", groups::group_admin),
];

/// Whether a client library can do what a scenario asks for.
pub fn applies(client: Client, scenario: &str) -> bool {
    match (client, scenario) {
        // kafkajs has no static membership, changes settings only by the old AlterConfigs (which
        // Talos does not serve), and hides OFFSET_OUT_OF_RANGE by starting over by itself.
        (Client::KafkaJs, "static_members" | "configs" | "offset_out_of_range") => false,
        _ => true,
    }
}

/// A scenario's view of the world: one client library and one broker.
pub struct Ctx<'a> {
    world: &'a mut World,
    client: Client,
    scenario: &'static str,
}

impl<'a> Ctx<'a> {
    /// For one run of one scenario.
    pub fn new(world: &'a mut World, client: Client, scenario: &'static str) -> Self {
        Self { world, client, scenario }
    }

    /// The client library under test.
    pub fn client(&self) -> Client {
        self.client
    }

    /// A topic or group name of this scenario's own.
    pub fn name(&self, suffix: &str) -> String {
        format!("{}-{}-{suffix}", self.client.name(), self.scenario.replace('_', "-"))
    }

    /// Runs a verb; the answer may be a refusal.
    ///
    /// # Errors
    /// When the program gives no answer.
    pub fn call(&self, verb: &str, args: &[(&str, &str)]) -> Result<Value> {
        let World { services, broker, sessions } = &*self.world;
        let mut sessions = sessions.borrow_mut();
        sessions.call(self.client, services, &broker.bootstrap(), verb, args)
    }

    /// Runs a verb that must succeed.
    ///
    /// # Errors
    /// When it is refused.
    pub fn ok(&self, verb: &str, args: &[(&str, &str)]) -> Result<Value> {
        let answer = self.call(verb, args)?;
        ensure!(answer["ok"] == true, "{verb} {args:?} was refused: {answer}");
        Ok(answer)
    }

    /// Asks until an answer is as wanted. Kafka's controller acknowledges a change before its
    /// broker has learned of it, so a question right after may still get the old answer.
    ///
    /// # Errors
    /// When the answer is still another one after a while.
    pub fn until(
        &self,
        verb: &str,
        args: &[(&str, &str)],
        wanted: impl Fn(&Value) -> bool,
    ) -> Result<()> {
        let deadline = Instant::now() + LEARNED;
        loop {
            let answer = self.ok(verb, args)?;
            if wanted(&answer) {
                return Ok(());
            }
            ensure!(Instant::now() < deadline, "{verb} {args:?} still answers {answer}");
            std::thread::sleep(POLL);
        }
    }

    /// Waits until a topic is listed with this number of partitions; `None`: not at all.
    ///
    /// # Errors
    /// When it is not so after a while.
    pub fn listed(&self, topic: &str, partitions: Option<i64>) -> Result<()> {
        self.until("topics", &[], |answer| answer["topics"][topic].as_i64() == partitions)
    }

    /// Runs a verb that must be refused with one of Kafka's error numbers.
    ///
    /// # Errors
    /// When it succeeds, or is refused otherwise.
    pub fn refused(&self, verb: &str, args: &[(&str, &str)], codes: &[i64]) -> Result<()> {
        let answer = self.call(verb, args)?;
        ensure!(answer["ok"] == false, "{verb} {args:?} was not refused: {answer}");
        let code = int(&answer, "code")?;
        ensure!(codes.contains(&code), "{verb} {args:?}: not refused with {codes:?}: {answer}");
        Ok(())
    }

    /// Creates a topic.
    ///
    /// # Errors
    /// When it is refused.
    pub fn create(&self, topic: &str, partitions: u32, configs: &str) -> Result<()> {
        let partitions = partitions.to_string();
        let mut args = vec![("topic", topic), ("partitions", partitions.as_str())];
        if !configs.is_empty() {
            args.push(("configs", configs));
        }
        self.ok("create", &args).map(drop)
    }

    /// Starts a group member; `extra` adds to group and topic.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn member(&self, group: &str, topic: &str, extra: &[(&str, &str)]) -> Result<Member> {
        let mut args = vec![("group", group), ("topic", topic)];
        args.extend_from_slice(extra);
        Member::start(self.client, &self.world.services, &self.world.broker.bootstrap(), &args)
    }

    /// Stops the broker cleanly and starts it again.
    ///
    /// # Errors
    /// When it does not stop or start in time.
    pub fn restart(&mut self) -> Result<()> {
        self.world.broker.stop()?;
        self.world.broker.launch().map(drop)
    }
}

/// A number of an answer.
///
/// # Errors
/// When it is missing.
pub fn int(answer: &Value, name: &str) -> Result<i64> {
    answer[name].as_i64().with_context(|| format!("no number {name} in {answer}"))
}

/// Checks a number of an answer.
///
/// # Errors
/// When it is another one.
pub fn expect(answer: &Value, name: &str, wanted: i64) -> Result<()> {
    let found = int(answer, name)?;
    if found != wanted {
        bail!("{name} is {found}, not {wanted}: {answer}");
    }
    Ok(())
}
