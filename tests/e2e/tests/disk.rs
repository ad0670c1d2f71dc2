//! A disk that is full, slow, broken, gone, or not ours, under the real binary. Needs root or user
//! namespaces, and a C compiler.
#![allow(clippy::print_stdout, reason = "says what is missing")]

use std::process::ExitCode;

use talos_e2e::disk::{self, Ground, full, limits, place, sync};
use talos_e2e::suite::Suite;

fn main() -> ExitCode {
    if let Err(error) = disk::enter_own_mounts() {
        println!("disk: {error:#}\n\n0 passed, 1 failed");
        return ExitCode::FAILURE;
    }
    let mut suite: Suite<Ground> = Suite::new("disk");
    suite.add("full_refuses_produce_serves_all_else_and_heals", full::refuses_and_heals);
    suite.add("full_deleting_a_topic_makes_room", full::deleting_makes_room);
    suite.add("full_killed_and_started_again", full::killed_and_started_again);
    suite.add("full_to_the_last_byte_refuses_metadata_and_heals", full::metadata_refuses_and_heals);
    suite.add("slow_sync_bounds_memory_and_reads_go_on", sync::slow);
    suite.add("failing_sync_of_a_journal_ends_the_process", sync::failing_journal);
    suite.add("failing_sync_of_the_metadata_loses_nothing", sync::failing_metadata);
    suite.add("kill_at_every_kind_of_sync", sync::killed_at_syncs);
    suite.add("file_size_limit_is_a_full_disk", limits::file_size);
    suite.add("few_file_descriptors_and_many_connections", limits::file_descriptors);
    suite.add("removed_data_folder_ends_the_process", place::removed);
    suite.add("moved_data_folder_ends_the_process", place::moved);
    suite.add("removed_journal_is_never_acknowledged_into", place::removed_journal);
    suite.add("read_only_and_forbidden_folders_say_what_to_do", place::not_ours);
    suite.run()
}
