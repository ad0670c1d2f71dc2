//! The broker's configuration: one TOML file, then `TALOS_*` variables, then flags; the later goes
//! before the earlier.
//!
//! [`load`] judges everything before it gives up, so that one run shows all problems. The keys
//! themselves are declared in [`keys`].

pub mod docs;
pub mod keys;
mod nearest;
mod sources;
mod value;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

pub use keys::{
    KafkaConfig, Key, LimitsConfig, LogConfig, MemoryConfig, ServerConfig, TelemetryConfig,
};
pub use nearest::nearest;
pub use sources::{Flags, Place, Problem};
pub use value::{Kind, Value, split_address};

use sources::Assignment;

/// Variables that begin with `TALOS_` and are no settings of the broker.
pub const OTHER_VARIABLES: &[&str] = &["TALOS_BOOTSTRAP", "TALOS_CONFIG"];
/// Variables with this beginning belong to tests and are passed over.
pub const TEST_VARIABLES: &str = "TALOS_TEST_";

/// Everything that `talos serve` needs to know, checked.
#[derive(Clone, Debug)]
pub struct ServeConfig {
    /// `[server]`.
    pub server: ServerConfig,
    /// `[memory]`.
    pub memory: MemoryConfig,
    /// `[limits]`.
    pub limits: LimitsConfig,
    /// `[log]`.
    pub log: LogConfig,
    /// `[telemetry]`.
    pub telemetry: TelemetryConfig,
    /// `[kafka]`.
    pub kafka: KafkaConfig,
    /// Every key with its value and where it was set, as DescribeConfigs lists it.
    pub settings: Settings,
}

/// Every key with its value and place.
#[derive(Clone, Debug)]
pub struct Settings {
    values: BTreeMap<(&'static str, &'static str), Setting>,
}

/// One key with its value.
#[derive(Clone, Debug)]
pub struct Setting {
    /// The declaration.
    pub key: &'static Key,
    /// The value in force.
    pub value: Value,
    /// Where it was set.
    pub place: Place,
}

impl Settings {
    /// The value of a key.
    pub fn get(&self, section: &str, name: &str) -> Option<&Value> {
        self.find(section, name).map(|setting| &setting.value)
    }

    fn find(&self, section: &str, name: &str) -> Option<&Setting> {
        self.iter().find(|setting| setting.key.section == section && setting.key.name == name)
    }

    /// All keys, by section and name.
    pub fn iter(&self) -> impl Iterator<Item = &Setting> {
        self.values.values()
    }

    /// The keys under Kafka's names with their text form, as DescribeConfigs answers them. A key
    /// that is not set has an empty text.
    pub fn kafka(&self) -> BTreeMap<&'static str, String> {
        self.iter()
            .filter(|setting| setting.key.section == "kafka")
            .map(|setting| (setting.key.name, setting.value.to_string()))
            .collect()
    }
}

/// All that is wrong with a configuration, in the order of its places.
#[derive(Clone, Debug)]
pub struct ConfigError {
    /// Never empty.
    pub problems: Vec<Problem>,
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.problems.as_slice() {
            [one] => write!(f, "the configuration has a problem\n  {one}"),
            many => {
                write!(f, "the configuration has {} problems", many.len())?;
                many.iter().try_for_each(|problem| write!(f, "\n  {problem}"))
            }
        }
    }
}

impl std::error::Error for ConfigError {}

/// Reads and checks the whole configuration. `variables` are those of the environment (others than
/// `TALOS_*` are passed over).
pub fn load(
    file: Option<&Path>,
    variables: impl IntoIterator<Item = (String, String)>,
    flags: &Flags,
) -> Result<ServeConfig, ConfigError> {
    let text = match file {
        None => None,
        Some(path) => match std::fs::read_to_string(path) {
            Ok(text) => Some((path, text)),
            Err(error) => {
                let place = Place::Flag(format!("--config {}", path.display()));
                let text = format!("cannot read the file: {error}");
                return Err(ConfigError { problems: vec![Problem { place, text }] });
            }
        },
    };
    parse(text.as_ref().map(|(path, text)| (*path, text.as_str())), variables, flags)
}

/// [`load`] with the text of the file at hand.
pub fn parse(
    file: Option<(&Path, &str)>,
    variables: impl IntoIterator<Item = (String, String)>,
    flags: &Flags,
) -> Result<ServeConfig, ConfigError> {
    let mut problems = Vec::new();
    let mut values = defaults();
    if let Some((path, text)) = file {
        for assignment in sources::read_file(path, text, &mut problems) {
            let found = find(&assignment.name);
            apply(assignment, found, &mut values, &mut problems);
        }
    }
    let mut variables: Vec<_> = variables
        .into_iter()
        .filter(|(name, _)| name.starts_with("TALOS_") && !name.starts_with(TEST_VARIABLES))
        .filter(|(name, _)| !OTHER_VARIABLES.contains(&name.as_str()))
        .collect();
    variables.sort();
    for (name, value) in variables {
        let found = find_variable(&name);
        let place = Place::Variable(name.clone());
        let assignment = Assignment { place, name, value: Some(value) };
        apply(assignment, found, &mut values, &mut problems);
    }
    for mut assignment in sources::read_flags(flags, &mut problems) {
        // Kafka's names come without the name of their section.
        let in_kafka = format!("kafka.{}", assignment.name);
        let known = find(&assignment.name).is_ok();
        if !known && (find(&in_kafka).is_ok() || refusal(&in_kafka).is_some()) {
            assignment.name = in_kafka;
        }
        let found = find(&assignment.name);
        apply(assignment, found, &mut values, &mut problems);
    }
    let settings = Settings { values };
    let config = ServeConfig::take(settings);
    config.check(&mut problems);
    if problems.is_empty() {
        Ok(config)
    } else {
        problems.sort_by(|a, b| a.place.cmp(&b.place));
        Err(ConfigError { problems })
    }
}

fn defaults() -> BTreeMap<(&'static str, &'static str), Setting> {
    let setting = |key: &'static Key| {
        let number = !matches!(key.kind, Kind::Address { .. } | Kind::Path | Kind::Text);
        let value = match key.kind.parse(key.default) {
            _ if key.default.is_empty() && number => Value::Unset,
            Ok(value) => value,
            // A mistake in the table; a test finds it.
            Err(error) => unreachable!("default of {}: {error}", key.full_name()),
        };
        ((key.section, key.name), Setting { key, value, place: Place::Default })
    };
    keys::all().map(setting).collect()
}

/// Why a name is not a key: what the problem says about it.
type Unknown = String;

fn find(name: &str) -> Result<&'static Key, Unknown> {
    if let Some(key) = keys::all().find(|key| key.full_name() == name) {
        return Ok(key);
    }
    if let Some(why) = refusal(name) {
        return Err(why.into());
    }
    // Kafka's names are compared with and without their section, which `--set` leaves out.
    let mut names: Vec<String> = keys::all().map(Key::full_name).collect();
    names.extend(KafkaConfig::KEYS.iter().map(|key| key.name.to_owned()));
    let nearest = nearest(name, names.iter().map(String::as_str)).unwrap_or_default();
    Err(format!("is no known key; the nearest is {nearest}"))
}

fn find_variable(name: &str) -> Result<&'static Key, Unknown> {
    if let Some(key) = keys::all().find(|key| key.variable() == name) {
        return Ok(key);
    }
    let as_variable = |refused: &str| format!("TALOS_{}", refused.replace('.', "_")).to_uppercase();
    if let Some((_, why)) = keys::REFUSED.iter().find(|(refused, _)| as_variable(refused) == name) {
        return Err((*why).into());
    }
    let names: Vec<String> = keys::all().map(Key::variable).collect();
    let nearest = nearest(name, names.iter().map(String::as_str)).unwrap_or_default();
    Err(format!("is no known variable; the nearest is {nearest}"))
}

/// Why this name is refused, if it (or the section that it stands in) is on the list.
fn refusal(name: &str) -> Option<&'static str> {
    let refused = |full: &str| {
        name == full
            || (!full.contains('.')
                && name.strip_prefix(full).is_some_and(|rest| rest.starts_with('.')))
    };
    keys::REFUSED.iter().find(|(full, _)| refused(full)).map(|(_, why)| *why)
}

fn apply(
    assignment: Assignment,
    found: Result<&'static Key, Unknown>,
    values: &mut BTreeMap<(&'static str, &'static str), Setting>,
    problems: &mut Vec<Problem>,
) {
    let Assignment { place, name, value } = assignment;
    // A variable is its own place.
    let subject = match &place {
        Place::Variable(_) => String::new(),
        _ => format!("{name} "),
    };
    let key = match found {
        Ok(key) => key,
        Err(why) => {
            problems.push(Problem { place, text: format!("{subject}{why}") });
            return;
        }
    };
    let Some(text) = value else {
        let expected = key.kind.expected();
        problems.push(Problem { place, text: format!("{subject}must be {expected}") });
        return;
    };
    match key.kind.parse(&text) {
        Ok(value) => {
            values.insert((key.section, key.name), Setting { key, value, place });
        }
        Err(error) => {
            problems.push(Problem { place, text: format!("{subject}= {text:?} {error}") });
        }
    }
}

impl ServeConfig {
    fn take(settings: Settings) -> Self {
        let parts = (|| {
            Some((
                ServerConfig::take(&settings)?,
                MemoryConfig::take(&settings)?,
                LimitsConfig::take(&settings)?,
                LogConfig::take(&settings)?,
                TelemetryConfig::take(&settings)?,
                KafkaConfig::take(&settings)?,
            ))
        })();
        match parts {
            Some((server, memory, limits, log, telemetry, kafka)) => {
                Self { server, memory, limits, log, telemetry, kafka, settings }
            }
            // A kind that does not fit its field: a mistake in the table, which every test finds.
            None => unreachable!("a key's kind does not fit its field"),
        }
    }

    /// Where the value of `section.name` came from.
    fn place(&self, section: &str, name: &str) -> Place {
        self.settings.find(section, name).map_or(Place::Default, |setting| setting.place.clone())
    }

    /// Rules between keys.
    fn check(&self, problems: &mut Vec<Problem>) {
        let mut must = |right: bool, section: &str, name: &str, text: String| {
            if !right {
                let place = self.place(section, name);
                problems.push(Problem { place, text: format!("{section}.{name} {text}") });
            }
        };
        let any =
            |address: &str| matches!(split_address(address), Some(("0.0.0.0" | "::" | "*", _)));
        must(
            !any(&self.server.listen) || !self.server.advertised.is_empty(),
            "server",
            "listen",
            format!(
                "= {:?} listens everywhere, so set server.advertised to the HOST:PORT that clients reach",
                self.server.listen
            ),
        );
        must(
            !any(&self.server.advertised),
            "server",
            "advertised",
            format!("= {:?} is an address that no client can reach", self.server.advertised),
        );
        let same = self.server.admin == self.server.listen && !self.server.listen.ends_with(":0");
        must(!same, "server", "admin", "must not be the address that server.listen has".into());
        let (min, max) =
            (self.kafka.group_min_session_timeout_ms, self.kafka.group_max_session_timeout_ms);
        must(
            min <= max,
            "kafka",
            "group.min.session.timeout.ms",
            format!("= {min} must not be above group.max.session.timeout.ms = {max}"),
        );
        let (message, request) =
            (self.kafka.message_max_bytes, self.kafka.socket_request_max_bytes);
        must(
            message <= request,
            "kafka",
            "message.max.bytes",
            format!("= {message} must not be above socket.request.max.bytes = {request}"),
        );
        let receive = self.memory.receive;
        must(
            u64::try_from(request).unwrap_or(0) <= receive.0,
            "kafka",
            "socket.request.max.bytes",
            format!("= {request} must not be above memory.receive = {receive}"),
        );
        let (sort, journal) = (self.log.sort_after, self.log.journal_size);
        must(
            journal <= sort,
            "log",
            "journal_size",
            format!("= {journal} must not be above log.sort_after = {sort}"),
        );
        let raw = self.log.raw_limit;
        must(
            raw > sort,
            "log",
            "raw_limit",
            format!("= {raw} must be above log.sort_after = {sort}"),
        );
        if let Err(error) = crate::telemetry::parse_filter(&self.telemetry.filter) {
            let text = format!("= {:?} is no filter: {error}", self.telemetry.filter);
            must(false, "telemetry", "filter", text);
        }
    }

    /// The address that clients are told, given the one that the broker really listens on.
    pub fn advertised(&self, bound: std::net::SocketAddr) -> (String, u16) {
        match split_address(&self.server.advertised) {
            // Port 0: the one that was bound.
            Some((host, 0)) => (host.into(), bound.port()),
            Some((host, port)) => (host.into(), port),
            None => match split_address(&self.server.listen) {
                Some((host, _)) => (host.into(), bound.port()),
                None => (bound.ip().to_string(), bound.port()),
            },
        }
    }

    /// The data folder, made absolute.
    pub fn data_dir(&self) -> std::io::Result<PathBuf> {
        std::path::absolute(&self.server.data_dir)
    }
}
