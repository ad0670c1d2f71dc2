//! All common scenarios with the client: KafkaPython.

use std::process::ExitCode;

use talos_e2e::client::Client;
use talos_e2e::suite::Suite;

fn main() -> ExitCode {
    let mut suite = Suite::new("kafka_python");
    suite.add_client(Client::KafkaPython);
    suite.run()
}
