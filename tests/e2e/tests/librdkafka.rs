//! All common scenarios with the client: Confluent.

use std::process::ExitCode;

use talos_e2e::client::Client;
use talos_e2e::suite::Suite;

fn main() -> ExitCode {
    let mut suite = Suite::new("librdkafka");
    suite.add_client(Client::Confluent);
    suite.run()
}
