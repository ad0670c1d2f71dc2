//! What cargo knows: where the workspace lies, its packages and the arrows between them.
//!
//! Facts come from `cargo metadata`, never from our own reading of manifests: inherited and
//! target-specific dependencies are seen as cargo sees them.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use serde_json::Value;

/// One package of the workspace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Package {
    /// Name in the manifest.
    pub(crate) name: String,
    /// Names of all packages that it needs to be built, ours and foreign ones; those of tests are
    /// left out.
    pub(crate) needs: Vec<String>,
}

/// The workspace as cargo sees it.
#[derive(Debug)]
pub(crate) struct Workspace {
    /// Folder of the root manifest.
    pub(crate) root: PathBuf,
    /// Where cargo puts what it builds.
    pub(crate) target: PathBuf,
    /// Members in cargo's order.
    pub(crate) packages: Vec<Package>,
}

impl Workspace {
    /// Asks cargo; needs no network.
    ///
    /// # Errors
    /// When cargo fails or answers something unknown.
    pub(crate) fn load() -> Result<Self> {
        let mut cargo = cargo();
        cargo.args(["metadata", "--format-version", "1", "--no-deps"]).current_dir(root());
        let output = cargo.output().context("cannot run cargo metadata")?;
        if !output.status.success() {
            bail!("cargo metadata failed: {}", String::from_utf8_lossy(&output.stderr).trim());
        }
        let answer = serde_json::from_slice(&output.stdout).context("cargo metadata")?;
        Self::parse(&answer).context("cargo metadata gave an unknown answer")
    }

    fn parse(answer: &Value) -> Option<Self> {
        let packages = answer["packages"].as_array()?.iter().map(package).collect::<Option<_>>()?;
        Some(Self {
            root: answer["workspace_root"].as_str()?.into(),
            target: answer["target_directory"].as_str()?.into(),
            packages,
        })
    }

    /// Whether a package of this name is a member.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.packages.iter().any(|package| package.name == name)
    }
}

fn package(value: &Value) -> Option<Package> {
    let needs = value["dependencies"]
        .as_array()?
        .iter()
        .filter(|dependency| dependency["kind"].as_str() != Some("dev"))
        .map(|dependency| dependency["name"].as_str().map(str::to_owned))
        .collect::<Option<_>>()?;
    Some(Package { name: value["name"].as_str()?.to_owned(), needs })
}

/// The cargo that runs this task.
pub(crate) fn cargo() -> Command {
    Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
}

/// The root of the workspace: above this crate, where cargo says that it lies now, else where it
/// was built.
pub(crate) fn root() -> PathBuf {
    let manifest = std::env::var_os("CARGO_MANIFEST_DIR")
        .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")), PathBuf::from);
    manifest.parent().map_or_else(|| manifest.clone(), Path::to_path_buf)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dev_dependencies_are_not_needs() {
        let answer = serde_json::json!({
            "workspace_root": "r", "target_directory": "t",
            "packages": [{"name": "a", "dependencies": [
                {"name": "b", "kind": null}, {"name": "c", "kind": "dev"},
                {"name": "d", "kind": "build"}]}],
        });
        let workspace = Workspace::parse(&answer).unwrap();
        assert_eq!(workspace.packages[0].needs, ["b", "d"]);
        assert!(workspace.has("a") && !workspace.has("b"));
    }

    #[test]
    fn an_unknown_answer_is_refused() {
        assert!(Workspace::parse(&serde_json::json!({"packages": []})).is_none());
    }
}
