//! The places that settings come from (file, variables, flags), read into one flat list of
//! assignments with their place. Nothing is judged here except the form of the file.

use std::fmt;
use std::path::{Path, PathBuf};

use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// Where a setting was made.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Place {
    /// Nowhere: the default.
    Default,
    /// A line of the file, from 1.
    File {
        /// The file, as the user named it.
        path: PathBuf,
        /// The line.
        line: usize,
    },
    /// An environment variable.
    Variable(String),
    /// A command-line flag, as in `--listen`.
    Flag(String),
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::File { path, line } => write!(f, "{}:{line}", path.display()),
            Self::Variable(name) => write!(f, "variable {name}"),
            Self::Flag(flag) => write!(f, "flag {flag}"),
        }
    }
}

/// One thing that is wrong with the configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Where.
    pub place: Place,
    /// Which key, with its value if there is one; and what would be right.
    pub text: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.text)
    }
}

/// One assignment, not yet judged.
#[derive(Clone, Debug)]
pub(super) struct Assignment {
    pub(super) place: Place,
    /// Full name (`server.listen`); from a variable, the variable's name.
    pub(super) name: String,
    /// Text form of the value; `None` where the file has something that is no scalar.
    pub(super) value: Option<String>,
}

/// Reads the TOML text of `path`. Tables become dotted names, so that `num.partitions = 3` and
/// `"num.partitions" = 3` mean the same.
pub(super) fn read_file(path: &Path, text: &str, problems: &mut Vec<Problem>) -> Vec<Assignment> {
    let place = |at: usize| {
        let before = text.as_bytes().get(..at).unwrap_or(text.as_bytes());
        let line = 1 + before.iter().filter(|byte| **byte == b'\n').count();
        Place::File { path: path.to_path_buf(), line }
    };
    let (table, errors) = DeTable::parse_recoverable(text);
    for error in errors {
        let at = error.span().map_or(0, |span| span.start);
        let text = format!("not valid TOML: {}", error.message().trim());
        problems.push(Problem { place: place(at), text });
    }
    let mut assignments = Vec::new();
    flatten("", table.get_ref(), &mut |name, value: &Spanned<DeValue<'_>>, at| {
        let value = scalar(value.get_ref());
        assignments.push(Assignment { place: place(at), name, value });
    });
    assignments
}

fn flatten(
    prefix: &str,
    table: &DeTable<'_>,
    found: &mut impl FnMut(String, &Spanned<DeValue<'_>>, usize),
) {
    for (key, value) in table {
        let name = key.get_ref();
        let name = if prefix.is_empty() { name.to_string() } else { format!("{prefix}.{name}") };
        match value.get_ref() {
            DeValue::Table(inner) => flatten(&name, inner, found),
            _ => found(name, value, key.span().start),
        }
    }
}

fn scalar(value: &DeValue<'_>) -> Option<String> {
    match value {
        DeValue::String(text) => Some(text.to_string()),
        DeValue::Integer(number) => {
            let number = i64::from_str_radix(number.as_str(), number.radix()).ok()?;
            Some(number.to_string())
        }
        DeValue::Float(number) => Some(number.as_str().to_owned()),
        DeValue::Boolean(value) => Some(value.to_string()),
        DeValue::Datetime(_) | DeValue::Array(_) | DeValue::Table(_) => None,
    }
}

/// What the command line sets.
#[derive(Clone, Debug, Default)]
pub struct Flags {
    /// Flags with a name of their own: flag (`--listen`), full key name, value.
    pub named: Vec<(&'static str, &'static str, String)>,
    /// The values of `--set`, as typed.
    pub set: Vec<String>,
}

/// The assignments of the command line. `--set` takes Kafka's names, and ours in full.
pub(super) fn read_flags(flags: &Flags, problems: &mut Vec<Problem>) -> Vec<Assignment> {
    let named = flags.named.iter().map(|(flag, name, value)| Assignment {
        place: Place::Flag((*flag).into()),
        name: (*name).into(),
        value: Some(value.clone()),
    });
    let mut assignments: Vec<_> = named.collect();
    for set in &flags.set {
        let place = Place::Flag(format!("--set {set}"));
        match set.split_once('=') {
            Some((name, value)) if !name.trim().is_empty() => assignments.push(Assignment {
                place,
                name: name.trim().into(),
                value: Some(value.trim().into()),
            }),
            _ => problems
                .push(Problem { place, text: "must be NAME=VALUE, as in num.partitions=8".into() }),
        }
    }
    assignments
}
