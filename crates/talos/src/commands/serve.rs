//! `talos serve`: configuration, logs, signals, admin HTTP and the banner around the broker.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context as _;
use clap::Args;

use crate::admin::{self, AdminHandle};
use crate::commands::broker;
use crate::config::{self, Flags, ServeConfig};
use crate::output;
use crate::stop::{Asked, Signals, Stop};
use crate::telemetry;

const EXAMPLES: &str = "\
Examples:
  talos serve
  talos serve --listen 0.0.0.0:9092 --advertised broker1.example:9092 --data-dir /var/lib/talos
  talos serve --config talos.toml --set num.partitions=8 --set log.retention.ms=3d
  TALOS_SERVER_LISTEN=127.0.0.1:19092 talos serve

The file comes first, then TALOS_* variables, then flags; the later goes
before the earlier. All keys are described in docs/configuration.md. With
--check, --json prints an array of objects: section, name, value, type,
set_by. Ctrl-C or SIGTERM stops cleanly; a second one ends the process at once
(the next start recovers).";

/// Flags of `talos serve`.
#[derive(Clone, Debug, Default, Args)]
#[command(after_help = EXAMPLES)]
pub struct ServeArgs {
    /// Configuration file (TOML).
    #[arg(long, value_name = "FILE", env = "TALOS_CONFIG")]
    pub config: Option<PathBuf>,
    /// Address of the Kafka protocol [default: 127.0.0.1:9092].
    #[arg(long, value_name = "HOST:PORT")]
    pub listen: Option<String>,
    /// Address that clients are told to connect to [default: that of --listen].
    #[arg(long, value_name = "HOST:PORT")]
    pub advertised: Option<String>,
    /// Folder of everything that the broker stores [default: ./talos-data].
    #[arg(long, value_name = "DIR")]
    pub data_dir: Option<String>,
    /// Address of the admin HTTP server, '' for none [default: 127.0.0.1:9644].
    #[arg(long, value_name = "HOST:PORT")]
    pub admin: Option<String>,
    /// Id of this broker [default: 0].
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pub node_id: Option<String>,
    /// Any other key: Kafka's broker configuration names, or ours as in memory.tail_cache=1GiB.
    #[arg(long, value_name = "NAME=VALUE")]
    pub set: Vec<String>,
    /// Check the configuration, print it with the place of each value, and end.
    #[arg(long)]
    pub check: bool,
    /// With --check: print JSON.
    #[arg(long, requires = "check")]
    pub json: bool,
}

impl ServeArgs {
    /// The whole configuration, with this process's environment.
    pub fn load(&self) -> Result<ServeConfig, config::ConfigError> {
        let mut flags = Flags { named: Vec::new(), set: self.set.clone() };
        let named = [
            ("--listen", "server.listen", &self.listen),
            ("--advertised", "server.advertised", &self.advertised),
            ("--data-dir", "server.data_dir", &self.data_dir),
            ("--admin", "server.admin", &self.admin),
            ("--node-id", "server.node_id", &self.node_id),
        ];
        for (flag, name, value) in named {
            flags.named.extend(value.clone().map(|value| (flag, name, value)));
        }
        // A variable that is not UTF-8 is none of ours, or shows as a wrong value.
        let variables = std::env::vars_os().map(|(name, value)| {
            (name.to_string_lossy().into_owned(), value.to_string_lossy().into_owned())
        });
        config::load(self.config.as_deref(), variables, &flags)
    }
}

/// Runs a broker until a signal ends it.
pub fn run(args: &ServeArgs) -> anyhow::Result<ExitCode> {
    let config = args.load()?;
    if args.check {
        return check(&config, args.json);
    }
    telemetry::start(&config.telemetry)?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .context("cannot start the runtime")?;
    let code = runtime.block_on(async {
        let mut signals = Signals::new().context("cannot listen for signals")?;
        // A closed standard output is no reason to stop a broker.
        let say = |text| drop(output::line(text));
        serve(config, say, async || signals.next().await, broker::run).await
    })?;
    // Whatever still blocks a thread must not hold up the end.
    runtime.shutdown_background();
    Ok(ExitCode::from(code))
}

/// Everything around `broker`: the admin server, the banner, and the way to the end. Gives the exit
/// code. `say` gets the banner; `next_signal` waits for the next signal (its name and exit code).
async fn serve<B>(
    config: ServeConfig,
    say: impl FnOnce(String),
    mut next_signal: impl AsyncFnMut() -> (&'static str, u8),
    broker: impl FnOnce(ServeConfig, AdminHandle, Asked) -> B,
) -> anyhow::Result<u8>
where
    B: Future<Output = anyhow::Result<()>>,
{
    let stop = Stop::new();
    let handle = AdminHandle::new();
    let listener = match config.server.admin.as_str() {
        "" => None,
        address => Some(admin::bind(address).await?),
    };
    let admin_bound = listener.as_ref().map(|listener| listener.local_addr()).transpose()?;
    // The admin server outlives the broker's stop, so that one can watch it.
    let admin_stop = Stop::new();
    let admin = {
        let (handle, asked) = (handle.clone(), admin_stop.asked());
        async move {
            match listener {
                Some(listener) => admin::serve(listener, handle, asked).await,
                None => Ok(()),
            }
        }
    };
    let watch = {
        let (config, handle, stop) = (config.clone(), handle.clone(), stop.clone());
        async move {
            tokio::select! {
                biased;
                bound = handle.listening() => say(banner(&config, bound, admin_bound)),
                () = stop.asked() => {}
            }
        }
    };
    let limit = config.server.stop_timeout;
    let running = {
        let (handle, asked, admin_stop) = (handle.clone(), stop.asked(), admin_stop.clone());
        let all_stop = stop.clone();
        async move {
            let ended = broker(config, handle, asked).await;
            all_stop.ask();
            admin_stop.ask();
            ended
        }
    };
    let work = async {
        let (ended, served, ()) = tokio::join!(running, admin, watch);
        ended.and(served)
    };
    tokio::pin!(work);
    let (name, code) = tokio::select! {
        biased;
        signal = next_signal() => signal,
        ended = &mut work => return ended.map(|()| 0),
    };
    tracing::info!(signal = name, "stopping; a second signal ends the process at once");
    handle.set_not_ready("stopping");
    stop.ask();
    wait_for_end(work, next_signal, code, limit).await
}

/// After the first signal: the clean end, a second signal, or too long.
async fn wait_for_end(
    work: std::pin::Pin<&mut impl Future<Output = anyhow::Result<()>>>,
    mut next_signal: impl AsyncFnMut() -> (&'static str, u8),
    code: u8,
    limit: talos_common::Period,
) -> anyhow::Result<u8> {
    let clock = talos_common::Clock::system();
    tokio::select! {
        biased;
        ended = work => ended.map(|()| {
            tracing::info!("stopped");
            0
        }),
        _ = next_signal() => {
            tracing::warn!("ended by a second signal; the next start recovers");
            Ok(code)
        }
        () = clock.sleep(limit.0) => anyhow::bail!(
            "not stopped after {limit} (server.stop_timeout); ending anyway, the next start recovers"
        ),
    }
}

/// What a start prints: where it listens, where data lies, three commands to try.
pub fn banner(config: &ServeConfig, bound: SocketAddr, admin: Option<SocketAddr>) -> String {
    let (host, port) = config.advertised(bound);
    let address =
        if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") };
    let data = config.data_dir().unwrap_or_else(|_| config.server.data_dir.clone());
    let mut text = format!("Talos {} is ready.\n\n", env!("CARGO_PKG_VERSION"));
    let _ = writeln!(text, "  Kafka clients   {address}");
    let _ = writeln!(text, "  data            {}", data.display());
    let _ = match admin {
        Some(admin) => writeln!(text, "  admin           http://{admin}/metrics"),
        None => writeln!(text, "  admin           off"),
    };
    let option = match address.as_str() {
        "127.0.0.1:9092" => String::new(),
        other => format!(" --bootstrap {other}"),
    };
    let _ = write!(
        text,
        "\nTry, in another terminal:\n\
         \n  talos topic create greetings --partitions 3{option}\
         \n  echo hello | talos produce greetings{option}\
         \n  talos consume greetings --from-beginning --exit{option}\n\
         \nCtrl-C stops cleanly."
    );
    text
}

fn check(config: &ServeConfig, json: bool) -> anyhow::Result<ExitCode> {
    if json {
        let all: Vec<_> = config
            .settings
            .iter()
            .map(|setting| {
                serde_json::json!({
                    "section": setting.key.section,
                    "name": setting.key.name,
                    "value": setting.value.to_string(),
                    "type": setting.key.kind.name(),
                    "set_by": setting.place.to_string(),
                })
            })
            .collect();
        output::json(&all)?;
    } else {
        let rows = config.settings.iter().map(|setting| {
            vec![
                format!("[{}]", setting.key.section),
                setting.key.name.to_owned(),
                setting.value.to_string(),
                setting.place.to_string(),
            ]
        });
        output::table(&["section", "key", "value", "set by"], rows)?;
    }
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use tokio::sync::mpsc;

    use super::*;

    fn config() -> ServeConfig {
        let set = ["server.admin=", "server.stop_timeout=1s"];
        let flags = Flags { named: Vec::new(), set: set.iter().map(ToString::to_string).collect() };
        config::parse(None, vec![], &flags).unwrap()
    }

    /// Runs `broker` and sends the signals once it listens.
    async fn run_with<B: Future<Output = anyhow::Result<()>>>(
        signals: usize,
        broker: impl FnOnce(ServeConfig, AdminHandle, Asked) -> B,
    ) -> anyhow::Result<u8> {
        let (send, mut receive) = mpsc::channel(4);
        let next = async move || match receive.recv().await {
            Some(signal) => signal,
            None => std::future::pending().await,
        };
        let ready = Stop::new();
        let listening = ready.clone();
        let wrapped = |config, handle: AdminHandle, asked| {
            handle.set_listening("127.0.0.1:9".parse().unwrap());
            listening.ask();
            broker(config, handle, asked)
        };
        let sending = async {
            ready.asked().await;
            for _ in 0..signals {
                send.send(("SIGTERM", 143)).await.unwrap();
            }
            std::future::pending::<()>().await;
        };
        tokio::select! {
            biased;
            ended = serve(config(), |_| {}, next, wrapped) => ended,
            () = sending => unreachable!("waits for ever"),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_first_signal_stops_cleanly() {
        let code = run_with(1, |_, handle, asked| async move {
            handle.set_ready();
            asked.await;
            Ok(())
        });
        assert_eq!(code.await.unwrap(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn the_second_signal_ends_at_once() {
        let code = run_with(2, |_, _, _| std::future::pending());
        assert_eq!(code.await.unwrap(), 143);
    }

    #[tokio::test(start_paused = true)]
    async fn a_stop_that_takes_too_long_is_an_error() {
        let error = run_with(1, |_, _, _| std::future::pending()).await.unwrap_err();
        assert!(error.to_string().starts_with("not stopped after 1s"), "{error}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_broker_that_fails_ends_the_process_with_its_error() {
        let error = run_with(0, |_, _, _| async { anyhow::bail!("no") }).await.unwrap_err();
        assert_eq!(error.to_string(), "no");
    }

    #[test]
    fn the_banner_names_places_and_three_commands() {
        let bound = "127.0.0.1:9092".parse().unwrap();
        let text = banner(&config(), bound, Some("127.0.0.1:9644".parse().unwrap()));
        assert!(text.contains("Kafka clients   127.0.0.1:9092\n"), "{text}");
        assert!(text.contains("talos-data\n"), "{text}");
        assert!(text.contains("http://127.0.0.1:9644/metrics\n"), "{text}");
        assert_eq!(text.matches("  talos ").count() + text.matches("| talos ").count(), 3);
        assert!(!text.contains("--bootstrap"), "the default needs none");
        let other = banner(&config(), "127.0.0.1:7".parse().unwrap(), None);
        assert_eq!(other.matches("--bootstrap 127.0.0.1:7").count(), 3, "{other}");
    }
}
