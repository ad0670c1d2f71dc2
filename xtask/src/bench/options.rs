//! The command line of `bench-kafka`.

use anyhow::{Context, Result, bail};

use super::rows::{self, ROWS, Row};
use super::systems::System;

/// What to measure.
#[derive(Debug)]
pub(crate) struct Options {
    /// In the order of the table's columns; the first is what the others are compared with.
    pub(crate) systems: Vec<System>,
    /// In the order of the table.
    pub(crate) rows: Vec<Row>,
    /// Rounds.
    pub(crate) repeat: u32,
    /// About how long one measurement is, in seconds: it sets the counts of records.
    pub(crate) seconds: u64,
    /// Where to write all numbers.
    pub(crate) json: Option<String>,
    /// Whether to write the table into the committed page.
    pub(crate) write: bool,
    /// A binary that is already built.
    pub(crate) talos: Option<String>,
    /// Settings added to every producer, `K=V`.
    pub(crate) producer: Vec<String>,
}

/// The help text.
pub(crate) fn usage() -> String {
    let ids: Vec<_> = ROWS.iter().map(|row| row.id).collect();
    format!(
        "\
Usage: cargo xtask bench-kafka [OPTIONS]

  --systems LIST     of kafka, kafka-flush, talos (all; the first is the base of the ratios)
  --rows LIST        of {}
  --repeat N         rounds; numbers are medians over them (3)
  --seconds N        about how long one measurement takes (10)
  --quick            one round of one second each: checks the tool, the numbers mean nothing
  --json FILE        writes all numbers
  --write            puts the table into docs/benchmarks.md
  --talos PATH       a binary that is already built (else target/release/talos, built first)
  --producer K=V     one more setting for every producer of every system
",
        ids.join(", ")
    )
}

impl Options {
    /// Reads the arguments; nothing when help is asked for.
    ///
    /// # Errors
    /// When an argument is unknown or its value makes no sense.
    pub(crate) fn parse(args: &[String]) -> Result<Option<Self>> {
        let mut options = Self {
            systems: System::ALL.to_vec(),
            rows: ROWS.to_vec(),
            repeat: 3,
            seconds: 10,
            json: None,
            write: false,
            talos: None,
            producer: Vec::new(),
        };
        let mut args = args.iter();
        while let Some(arg) = args.next() {
            let mut value = || args.next().with_context(|| format!("{arg} needs a value"));
            match arg.as_str() {
                "-h" | "--help" => return Ok(None),
                "--systems" => options.systems = list(value()?, System::named)?,
                "--rows" => options.rows = list(value()?, rows::named)?,
                "--repeat" => options.repeat = number(arg, value()?, 1, 100)?,
                "--seconds" => options.seconds = number(arg, value()?, 1, 3600)?.into(),
                "--quick" => (options.repeat, options.seconds) = (1, 1),
                "--json" => options.json = Some(value()?.clone()),
                "--write" => options.write = true,
                "--talos" => options.talos = Some(value()?.clone()),
                "--producer" => options.producer.push(value()?.clone()),
                other => bail!("unknown option {other:?}\n\n{}", usage()),
            }
        }
        Ok(Some(options))
    }

    /// The arguments as a reader may repeat them: without paths of this machine.
    pub(crate) fn shown(&self, args: &[String]) -> String {
        let mut shown = Vec::new();
        let mut args = args.iter();
        while let Some(arg) = args.next() {
            match arg.as_str() {
                "--json" | "--talos" => drop(args.next()),
                "--write" => {}
                other => shown.push(other),
            }
        }
        shown.join(" ")
    }
}

fn list<T>(value: &str, named: impl Fn(&str) -> Option<T>) -> Result<Vec<T>> {
    let one = |name: &str| named(name).with_context(|| format!("no {name:?}\n\n{}", usage()));
    value.split(',').map(one).collect()
}

fn number(name: &str, value: &str, least: u32, most: u32) -> Result<u32> {
    let number = value.parse().ok().filter(|n| (least..=most).contains(n));
    number.with_context(|| format!("{name} is a number from {least} to {most}, not {value:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Option<Options>> {
        Options::parse(&line.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn lists_and_numbers_are_read() {
        let options =
            parse("--systems kafka,talos --rows consume-1k --repeat 5 --write").unwrap().unwrap();
        assert_eq!(options.systems, [System::Kafka, System::Talos]);
        assert_eq!(options.rows.len(), 1);
        assert_eq!((options.repeat, options.seconds, options.write), (5, 10, true));
        assert!(parse("--help").unwrap().is_none());
    }

    #[test]
    fn nonsense_is_refused() {
        for line in ["--systems redis", "--rows x", "--repeat 0", "--repeat", "--fast"] {
            assert!(parse(line).is_err(), "{line}");
        }
    }

    #[test]
    fn paths_are_not_shown() {
        let line = "--talos x/y --repeat 5 --json out --write";
        let args: Vec<_> = line.split(' ').map(str::to_owned).collect();
        assert_eq!(Options::parse(&args).unwrap().unwrap().shown(&args), "--repeat 5");
    }
}
