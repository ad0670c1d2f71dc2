//! Brings what the client programs need into one cache folder, once: jars, a Python environment,
//! npm packages, a Go binary, `kcat`.
//!
//! The folder is `.services` of the workspace root, or `TALOS_SERVICES_DIR`. Each part carries a
//! stamp with a hash of all that it was made from, so that a second run only compares stamps.
//! Invariants: a part with a matching stamp is complete (the stamp is written last); two test
//! programs never make the same part at once (a lock file).

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::process;

/// Downloads and compilers get this long.
const LIMIT: Duration = Duration::from_secs(600);

/// Paths to all that was brought.
pub struct Services {
    root: PathBuf,
    manifest: PathBuf,
}

impl Services {
    /// Finds the cache folder; brings nothing yet.
    ///
    /// # Errors
    /// When the folder cannot be made.
    pub fn open() -> Result<Self> {
        let manifest = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
        let root = match std::env::var_os("TALOS_SERVICES_DIR") {
            Some(dir) => PathBuf::from(dir),
            None => workspace_root().join(".services"),
        };
        fs::create_dir_all(&root).with_context(|| format!("cannot make {}", root.display()))?;
        Ok(Self { root: root.canonicalize()?, manifest })
    }

    /// Folder of a client program's sources.
    pub fn client_dir(&self, name: &str) -> PathBuf {
        self.manifest.join("clients").join(name)
    }

    /// Class path with Apache Kafka 4.4: broker, tools, newest client.
    ///
    /// # Errors
    /// When Maven is missing or fails.
    pub fn kafka_jars(&self) -> Result<String> {
        Ok(format!("{}/*", self.jars("kafka")?.display()))
    }

    fn jars(&self, name: &str) -> Result<PathBuf> {
        let pom = self.manifest.join("services").join(name).join("pom.xml");
        self.part(&format!("jars-{name}"), &[&pom], |dir| {
            let mut mvn = process::command("mvn");
            mvn.args(["-q", "-B", "-f"]).arg(&pom).arg("dependency:copy-dependencies");
            mvn.arg(format!("-DoutputDirectory={}", dir.display()));
            process::check(mvn, "mvn (Debian package maven)", b"", LIMIT).map(drop)
        })
    }

    /// Class path of the Java client program, compiled against client 4.4 or the old 3.9.
    ///
    /// # Errors
    /// When Maven or the Java compiler is missing or fails.
    pub fn java_client(&self, old: bool) -> Result<String> {
        let (jars, name) = if old { ("clients-3.9", "java-3.9") } else { ("kafka", "java-4.4") };
        let jars = format!("{}/*", self.jars(jars)?.display());
        let sources = sources(&self.client_dir("java"), "java")?;
        let inputs: Vec<&Path> = sources.iter().map(PathBuf::as_path).collect();
        let classes = self.part(name, &inputs, |dir| {
            let mut javac = process::command("javac");
            javac.args(["-nowarn", "-cp", &jars, "-d"]).arg(dir).args(&sources);
            process::check(javac, "javac (Debian package openjdk-17-jdk-headless)", b"", LIMIT)
                .map(drop)
        })?;
        Ok(format!("{}:{jars}", classes.display()))
    }

    /// Python interpreter of an environment with the pinned packages.
    ///
    /// # Errors
    /// When Python is missing or pip fails.
    pub fn python(&self) -> Result<PathBuf> {
        let requirements = self.client_dir("python").join("requirements.txt");
        let dir = self.part("python", &[&requirements], |dir| {
            let mut venv = process::command("python3");
            venv.args(["-m", "venv"]).arg(dir);
            process::check(venv, "python3 -m venv (Debian package python3-venv)", b"", LIMIT)?;
            let mut pip = process::command(dir.join("bin/python"));
            pip.args(["-m", "pip", "install", "-q", "--no-input", "-r"]).arg(&requirements);
            process::check(pip, "pip install", b"", LIMIT).map(drop)
        })?;
        Ok(dir.join("bin/python"))
    }

    /// `node_modules` folder of the JavaScript client program.
    ///
    /// # Errors
    /// When npm is missing or fails.
    pub fn node_modules(&self) -> Result<PathBuf> {
        let source = self.client_dir("node");
        let inputs = [source.join("package.json"), source.join("package-lock.json")];
        let dir = self.part("node", &[&inputs[0], &inputs[1]], |dir| {
            for input in &inputs {
                fs::copy(input, dir.join(input.file_name().unwrap_or_default()))?;
            }
            let mut npm = process::command("npm");
            npm.args(["ci", "--omit=dev", "--ignore-scripts", "--no-audit", "--no-fund"]);
            npm.current_dir(dir);
            process::check(npm, "npm ci (Node.js 18 or later)", b"", LIMIT).map(drop)
        })?;
        Ok(dir.join("node_modules"))
    }

    /// The Go client program, built.
    ///
    /// # Errors
    /// When Go is missing or the build fails.
    pub fn go_client(&self) -> Result<PathBuf> {
        let source = self.client_dir("go");
        let mut inputs = sources(&source, "go")?;
        inputs.push(source.join("go.mod"));
        inputs.push(source.join("go.sum"));
        let inputs: Vec<&Path> = inputs.iter().map(PathBuf::as_path).collect();
        let dir = self.part("go", &inputs, |dir| {
            let mut go = process::command("go");
            go.args(["build", "-mod=readonly", "-o"]).arg(dir.join("client")).arg(".");
            go.current_dir(&source);
            process::check(go, "go build (Go 1.26 or later)", b"", LIMIT).map(drop)
        })?;
        Ok(dir.join("client"))
    }

    /// Makes sure that `kcat` can be called; installs Debian's package when it is missing.
    ///
    /// # Errors
    /// When it is missing and cannot be installed.
    pub fn kcat(&self) -> Result<()> {
        let _lock = self.lock()?;
        if have("kcat") {
            return Ok(());
        }
        let install = "apt-get update -qq && apt-get install -y -qq kcat";
        let mut apt = process::command("sh");
        apt.args(["-c", install]).env("DEBIAN_FRONTEND", "noninteractive");
        process::check(apt, "kcat is missing, and installing it", b"", LIMIT)?;
        if !have("kcat") {
            bail!("kcat is missing: install the Debian package kcat");
        }
        Ok(())
    }

    fn lock(&self) -> Result<File> {
        let lock = File::create(self.root.join("lock"))?;
        lock.lock().context("cannot lock the services folder")?;
        Ok(lock)
    }

    /// Gives the folder of a part, made anew when any of `inputs` has changed.
    fn part(
        &self,
        name: &str,
        inputs: &[&Path],
        make: impl FnOnce(&Path) -> Result<()>,
    ) -> Result<PathBuf> {
        let _lock = self.lock()?;
        let dir = self.root.join(name);
        let stamp = dir.join(".stamp");
        let wanted = hash(inputs)?;
        if fs::read_to_string(&stamp).is_ok_and(|found| found == wanted) {
            return Ok(dir);
        }
        eprintln!("bringing {name} into {}", self.root.display());
        if dir.exists() {
            fs::remove_dir_all(&dir)?;
        }
        fs::create_dir_all(&dir)?;
        make(&dir).with_context(|| format!("cannot bring {name}"))?;
        fs::write(&stamp, &wanted)?;
        Ok(dir)
    }
}

/// The root of the workspace.
pub fn workspace_root() -> PathBuf {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR"));
    manifest.ancestors().nth(2).unwrap_or(manifest).to_path_buf()
}

fn have(program: &str) -> bool {
    Command::new("sh")
        .args(["-c", &format!("command -v {program} >/dev/null")])
        .status()
        .is_ok_and(|status| status.success())
}

fn sources(dir: &Path, extension: &str) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        if path.extension().is_some_and(|e| e == extension) {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}

/// FNV-1a over the names and contents; it tells a change, it does not guard against malice.
fn hash(inputs: &[&Path]) -> Result<String> {
    let mut state: u64 = 0xcbf2_9ce4_8422_2325;
    for input in inputs {
        let bytes = fs::read(input).with_context(|| format!("cannot read {}", input.display()))?;
        let name = input.file_name().unwrap_or_default().to_string_lossy();
        for byte in name.bytes().chain(bytes) {
            state = (state ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
    Ok(format!("{state:016x}"))
}
