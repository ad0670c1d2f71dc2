//! What one client library writes, every other one reads alike: each writer with each codec, each
//! reader compared by the digest over keys, values and headers.

use std::process::ExitCode;

use anyhow::{Result, ensure};
use talos_e2e::client::Client;
use talos_e2e::suite::{Suite, World};

const COUNT: &str = "60";

fn main() -> ExitCode {
    let mut suite = Suite::new("interop");
    for writer in Client::ALL {
        suite.add(format!("written_by::{}", writer.name()), move |world| {
            everyone_reads(world, writer)
        });
    }
    suite.run()
}

fn call(
    world: &World,
    client: Client,
    verb: &str,
    args: &[(&str, &str)],
) -> Result<serde_json::Value> {
    let mut sessions = world.sessions.borrow_mut();
    let bootstrap = world.broker.bootstrap();
    let answer = sessions.call(client, &world.services, &bootstrap, verb, args)?;
    ensure!(answer["ok"] == true, "{} {verb} {args:?} was refused: {answer}", client.name());
    Ok(answer)
}

fn everyone_reads(world: &mut World, writer: Client) -> Result<()> {
    for codec in writer.codecs() {
        let topic = format!("interop-{}-{codec}", writer.name());
        call(world, Client::Confluent, "create", &[("topic", &topic), ("partitions", "1")])?;
        // A header without a value is not the same thing to every reader.
        let produce = [
            ("topic", topic.as_str()),
            ("partition", "0"),
            ("count", COUNT),
            ("codec", codec),
            ("sizes", "0,1,30,2000"),
            ("null_headers", "false"),
        ];
        let sent = call(world, writer, "produce", &produce)?;
        let readers = Client::ALL.into_iter().filter(|reader| reader.codecs().contains(codec));
        for reader in readers {
            let consume = [("topic", topic.as_str()), ("partitions", "0"), ("count", COUNT)];
            let read = call(world, reader, "consume", &consume)?;
            ensure!(
                read["partitions"]["0"]["digest"] == sent["partitions"]["0"]["digest"],
                "{codec} by {}, read by {}:\n{sent}\n{read}",
                writer.name(),
                reader.name()
            );
        }
    }
    Ok(())
}
