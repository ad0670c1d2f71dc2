//! A broker on a disk that is full, slow, broken, gone or not ours, and what its clients saw.
//!
//! The whole test program runs in a mount namespace of its own ([`enter_own_mounts`]), so that small
//! file systems can be mounted and nothing stays behind, however it ends. A [`Rig`] is one broker with
//! its files; a [`Story`] is the history that its clients write for the [`crate::checker`].
//!
//! Invariants: a fault is proved to have happened before anything is concluded from it; every wait
//! has a limit and waits for a state, never for a time.

pub mod full;
pub mod limits;
pub mod place;
pub mod rig;
pub mod story;
pub mod sync;

use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};

use crate::process;
use crate::suite::Stage;

pub use rig::{Ending, Rig};
pub use story::Story;

/// Set in the program that is inside its namespace.
const INSIDE: &str = "TALOS_E2E_OWN_MOUNTS";
/// Every state that is waited for must come by then.
pub const LIMIT: Duration = Duration::from_secs(60);
const TOOL_LIMIT: Duration = Duration::from_secs(60);

/// Runs this program again inside a mount namespace of its own, as root or as root of a user
/// namespace. Returns inside of it only.
///
/// # Errors
/// When the machine allows neither, saying what is missing.
pub fn enter_own_mounts() -> Result<()> {
    if std::env::var_os(INSIDE).is_some() {
        return Ok(());
    }
    let root = rustix::process::geteuid().is_root();
    let ways: &[&[&str]] = if root {
        &[&["--mount"], &["--map-root-user", "--mount"]]
    } else {
        &[&["--map-root-user", "--mount"]]
    };
    let dir = tempfile::TempDir::with_prefix("talos-e2e-mounts-")?;
    let mut failures = Vec::new();
    for way in ways {
        let mut probe = Command::new("unshare");
        probe.args(*way).args(["--propagation", "private", "--", "mount", "-t", "tmpfs", "-o"]);
        probe.args(["size=1m", "talos-e2e"]).arg(dir.path()).stdin(Stdio::null());
        let output = probe.output().context("cannot run unshare (package util-linux)")?;
        if output.status.success() {
            drop(dir);
            let mut again = Command::new("unshare");
            again.args(*way).args(["--propagation", "private", "--"]);
            again.arg(std::env::current_exe()?).args(std::env::args_os().skip(1));
            // Gives an error only when it does not happen.
            return Err(again.env(INSIDE, "1").exec()).context("cannot run again in unshare");
        }
        let why = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        failures.push(format!("unshare {}: {why}", way.join(" ")));
    }
    bail!(
        "the suite disk mounts small file systems in a mount namespace of its own. Run it as root (in a \
         container with CAP_SYS_ADMIN), or allow user namespaces (user.max_user_namespaces above 0, \
         kernel.apparmor_restrict_unprivileged_userns=0 where there is AppArmor).\n{}",
        failures.join("\n")
    )
}

/// What the cases share: the compiled shim.
#[derive(Debug)]
pub struct Ground {
    dir: tempfile::TempDir,
}

impl Stage for Ground {
    fn open(_: &'static str) -> Result<Self> {
        let dir = tempfile::TempDir::with_prefix("talos-e2e-disk-")?;
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("preload/sync.c");
        let mut compile = process::command("cc");
        compile.args(["-O1", "-Wall", "-Werror", "-shared", "-fPIC", "-o"]);
        compile.arg(dir.path().join("sync.so")).arg(source).arg("-ldl");
        process::check(compile, "cc", b"", TOOL_LIMIT)?;
        Ok(Self { dir })
    }

    fn log_tail(&self) -> String {
        // Each case has brokers of its own, and says what they said.
        String::new()
    }

    fn close(self, _: &'static str, _: bool) -> Result<()> {
        Ok(())
    }
}

impl Ground {
    /// The shim in front of fsync and fdatasync.
    pub fn shim(&self) -> PathBuf {
        self.dir.path().join("sync.so")
    }
}

/// Waits until `found` gives something.
///
/// # Errors
/// When it does not within [`LIMIT`]; `what` names it. The first error of `found`.
pub fn wait_for<T>(what: &str, mut found: impl FnMut() -> Result<Option<T>>) -> Result<T> {
    let deadline = Instant::now() + LIMIT;
    loop {
        if let Some(found) = found()? {
            return Ok(found);
        }
        ensure!(Instant::now() < deadline, "{what}: not within {LIMIT:?}");
        std::thread::sleep(process::POLL);
    }
}

/// A small file system at a folder, in memory, until dropped.
#[derive(Debug)]
pub struct Small {
    at: PathBuf,
}

impl Small {
    /// Mounts one of `bytes` at `at`, an empty folder.
    ///
    /// # Errors
    /// When it cannot be mounted.
    pub fn mount(at: &Path, bytes: u64) -> Result<Self> {
        let mut mount = process::command("mount");
        mount.args(["-t", "tmpfs", "-o"]).arg(format!("size={bytes}"));
        process::check(mount_args(mount, at), "mount", b"", TOOL_LIMIT)?;
        Ok(Self { at: at.to_owned() })
    }

    /// Mounts it again, for reading only or not.
    ///
    /// # Errors
    /// When that is refused, as it is while files are open for writing.
    pub fn read_only(&self, on: bool) -> Result<()> {
        let mut mount = process::command("mount");
        mount.arg("-o").arg(if on { "remount,bind,ro" } else { "remount,bind,rw" }).arg(&self.at);
        process::check(mount, "mount", b"", TOOL_LIMIT).map(drop)
    }

    /// Bytes that are left.
    ///
    /// # Errors
    /// When the system does not say.
    pub fn available(&self) -> Result<u64> {
        let system = rustix::fs::statvfs(&self.at)?;
        Ok(system.f_bavail.saturating_mul(system.f_frsize))
    }

    /// Fills it to the last byte with a file that is not the broker's.
    ///
    /// # Errors
    /// When there is room left afterwards: the fault did not happen.
    pub fn fill(&self) -> Result<PathBuf> {
        use std::io::Write as _;
        let path = self.at.join("ballast");
        let mut file = std::fs::OpenOptions::new().create(true).append(true).open(&path)?;
        for piece in [1 << 20, 4 << 10, 1] {
            let zeros = vec![0; piece];
            // More than the file system holds, so that it ends.
            for _ in 0..1 << 20 {
                if file.write_all(&zeros).is_err() {
                    break;
                }
            }
        }
        let left = self.available()?;
        ensure!(left == 0, "{left} bytes are left: the file system is not full");
        Ok(path)
    }
}

fn mount_args(mut mount: Command, at: &Path) -> Command {
    mount.arg("talos-e2e").arg(at);
    mount
}

impl Drop for Small {
    fn drop(&mut self) {
        // Whatever stays mounted goes with the namespace, when this program ends.
        if let Ok(mut child) = process::command("umount").arg("--lazy").arg(&self.at).spawn() {
            let _ = child.wait();
        }
    }
}
