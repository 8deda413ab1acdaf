//! Copies in a child process, which can be killed or run as another user. The child is this
//! program, running only the test `copies`.

use std::path::Path;
use std::process::Command;
use std::sync::atomic::Ordering;

use evermap_transfer::Error;
use evermap_transfer::tree::{self, TreeMeter, TreeOptions};

const SOURCE: &str = "EVERMAP_TEST_TREE_SOURCE";
const TARGET: &str = "EVERMAP_TEST_TREE_TARGET";
const KEEP_GOING: &str = "EVERMAP_TEST_TREE_KEEP_GOING";

/// Body of the child process. Does nothing in the parent.
#[test]
fn copies() {
    let (Some(source), Some(target)) = (std::env::var_os(SOURCE), std::env::var_os(TARGET)) else {
        return;
    };
    let options = TreeOptions {
        keep_going: std::env::var_os(KEEP_GOING).is_some(),
        ..TreeOptions::default()
    };
    let copied = tree::copy(source.as_ref(), target.as_ref(), &options, &TreeMeter::default());
    match copied {
        Ok(report) => {
            println!("{:?} {} errors", report.outcome, report.errors_total);
            report.errors.iter().for_each(|error| println!("error: {error}"));
            report
                .not_kept
                .iter()
                .for_each(|not| println!("not kept: {} of {:?}: {}", not.what, not.path, not.why));
        }
        Err(Error::Incomplete(report)) => {
            println!("incomplete: {report}");
            std::process::exit(7);
        }
        Err(error) => {
            println!("failed: {error}");
            std::process::exit(8);
        }
    }
}

/// Returns a command that copies.
pub fn command(source: &Path, target: &Path, keep_going: bool) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "child::copies", "--nocapture", "--test-threads=1"]);
    command.env(SOURCE, source).env(TARGET, target);
    if keep_going {
        command.env(KEEP_GOING, "1");
    }
    command
}

/// Sets the flag once a copy has completed `files` files.
pub fn cancel_after(meter: &TreeMeter, files: u64, cancelled: &std::sync::atomic::AtomicBool) {
    while meter.counts().files < files {
        std::thread::yield_now();
    }
    cancelled.store(true, Ordering::Relaxed);
}
