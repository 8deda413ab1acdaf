//! Makes programs that a test starts.
//!
//! Another process writes them. If this process had a program open for writing, each child that
//! another thread starts would hold it open too, until its `exec`. Starting the program would then
//! fail with "Text file busy".
#![allow(dead_code, reason = "each test program uses its own part")]

use std::path::Path;
use std::process::Command;

/// Copies a program, mode included.
pub fn copy_program(from: &Path, to: &Path) {
    let copied = Command::new("cp").arg("--preserve=mode").args([from, to]).status();
    assert!(copied.expect("cp starts").success(), "cannot copy {}", from.display());
}

/// Writes a script that every user can start.
pub fn write_script(path: &Path, text: &str) {
    let write = "printf %s \"$1\" >\"$0\" && chmod 755 \"$0\"";
    let written = Command::new("sh").args(["-c", write]).arg(path).arg(text).status();
    assert!(written.expect("sh starts").success(), "cannot write {}", path.display());
}
