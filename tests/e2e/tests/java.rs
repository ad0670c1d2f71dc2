//! All common scenarios with the client: Java,JavaOld.

use std::process::ExitCode;

use talos_e2e::client::Client;
use talos_e2e::suite::Suite;

fn main() -> ExitCode {
    let mut suite = Suite::new("java");
    suite.add_client(Client::Java);
    suite.add_client(Client::JavaOld);
    suite.run()
}
