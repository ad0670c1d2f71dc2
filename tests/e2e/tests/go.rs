//! All common scenarios with the client: Franz,Sarama.

use std::process::ExitCode;

use talos_e2e::client::Client;
use talos_e2e::suite::Suite;

fn main() -> ExitCode {
    let mut suite = Suite::new("go");
    suite.add_client(Client::Franz);
    suite.add_client(Client::Sarama);
    suite.run()
}
