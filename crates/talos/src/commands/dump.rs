//! `talos dump`: reads the files of a broker that is not running and verifies every checksum.

use std::path::PathBuf;

use clap::Args;

const EXAMPLES: &str = "\
Examples:
  talos dump ./talos-data
  talos dump ./talos-data --json

The broker must not be running. Nothing is changed. Exit code 1 if anything is damaged.";

/// Flags of `talos dump`.
#[derive(Clone, Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct DumpArgs {
    /// Data folder of the broker.
    #[arg(value_name = "DIR")]
    pub dir: PathBuf,
    /// Print JSON, one object per line.
    #[arg(long)]
    pub json: bool,
}

/// Reads every journal and segment under `args.dir`, prints what is there, and fails if a checksum
/// is wrong.
///
/// **To be filled in with the log's file formats.**
///
/// # Errors
/// The folder cannot be read, or something in it is damaged.
pub fn run(args: &DumpArgs) -> anyhow::Result<()> {
    anyhow::bail!(
        "this build cannot read the files in {}: `talos dump` is not wired to the log crate",
        args.dir.display()
    )
}
