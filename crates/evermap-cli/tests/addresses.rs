//! Fixed addresses under address space randomisation: two programs open the stores of one program a
//! thousand times, and nothing else ever occupies the stores' addresses.
#![allow(clippy::unwrap_used)]

use std::path::Path;
use std::process::{Command, Stdio};

use evermap::{Options, Store, Window};
use evermap_dom::Document;

const REOPENINGS: usize = 1000;
const ARENA_BYTES: u64 = 1 << 30;

fn evermap(store: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_evermap"));
    command.arg("--store").arg(store).stdin(Stdio::null());
    command
}

#[test]
#[ignore = "the second program"]
fn child_reads_the_document() {
    let Some(path) = std::env::var_os("EVERMAP_TEST_STORE") else { return };
    let store = Store::open(path).unwrap();
    let document = store.read::<Document>("page").unwrap();
    let paragraphs = document.dom().unwrap().count(&"p".parse().unwrap());
    // The addresses of this run's code and stack.
    println!("\n{paragraphs} {:p} {:p}", child_reads_the_document as fn(), &raw const paragraphs);
}

#[test]
fn a_thousand_reopenings_by_two_programs_have_no_address_conflict() {
    let directory = tempfile::tempdir().unwrap();
    let page = directory.path().join("page.html");
    std::fs::write(&page, "<title>t</title>".to_string() + &"<p>word ".repeat(500)).unwrap();
    // One store is anywhere in the window, and one at each of its ends.
    let mut stores = vec![directory.path().join("anywhere")];
    let window = Window::default();
    for (name, base) in [("low", window.base()), ("high", window.end() - 2 * ARENA_BYTES)] {
        let narrow = Window::new(base, base + 2 * ARENA_BYTES).unwrap();
        let options = Options::new().window(narrow).arena_bytes(ARENA_BYTES);
        stores.push(directory.path().join(name));
        options.create_new(directory.path().join(name)).unwrap();
    }
    for store in &stores {
        let made = evermap(store).args(["parse", "--name", "page"]).arg(&page).output().unwrap();
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    }

    let mut layouts = std::collections::BTreeSet::new();
    for run in 0..REOPENINGS {
        let store = &stores[run / 2 % stores.len()];
        if run % 2 == 0 {
            let output = evermap(store).args(["query", "page", "p", "--count"]).output().unwrap();
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), "500");
        } else {
            let output = Command::new(std::env::current_exe().unwrap())
                .args(["--exact", "child_reads_the_document", "--ignored", "--nocapture"])
                .env("EVERMAP_TEST_STORE", store)
                .stdin(Stdio::null())
                .output()
                .unwrap();
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            let line = text.lines().find(|line| line.starts_with("500 "));
            let line = line.unwrap_or_else(|| panic!("run {run}: {text}"));
            layouts.insert(line.to_string());
        }
    }
    let randomised = std::fs::read_to_string("/proc/sys/kernel/randomize_va_space");
    match randomised.as_deref().map(str::trim) {
        Ok("2") => assert!(layouts.len() > REOPENINGS / 4, "no randomisation: {layouts:?}"),
        other => eprintln!("SKIPPED: address space randomisation is {other:?} here"),
    }
}
