//! All common scenarios with the client: KafkaJs.

use std::process::ExitCode;

use talos_e2e::client::Client;
use talos_e2e::suite::Suite;

fn main() -> ExitCode {
    let mut suite = Suite::new("kafkajs");
    suite.add_client(Client::KafkaJs);
    suite.run()
}
