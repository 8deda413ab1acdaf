//! Tests of libraries that do not know Evermap: each program of `examples/libraries` builds its
//! tree in an object. New processes walk it with the same library, at other addresses, without
//! parsing and without allocating, and must find the same as after a fresh parse. The table in
//! `docs/libraries.md`, which also lists unsuitable libraries, is compared with runs.
//!
//! A library whose package isn't installed is skipped visibly; `scripts/setup-libraries.sh`
//! installs them on Debian and Ubuntu. `EVERMAP_TEST_SEED` repeats the documents.
#![allow(clippy::unwrap_used)]

#[path = "libraries/documents.rs"]
mod documents;
#[path = "libraries/programs.rs"]
mod programs;
#[allow(dead_code, reason = "this test runs no program of tests/c")]
#[path = "library/staged.rs"]
mod staged;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::UNIX_EPOCH;

use documents::document;
use programs::{Outcome, Programs, list_lines, repository, version_of};

/// Numbers of items in documents. The largest XML and JSON documents have about a megabyte.
const SIZES: [usize; 3] = [1, 150, 6000];
/// Number of processes that walk each built tree.
const WALKS: usize = 4;

fn seed() -> u64 {
    let seed = match std::env::var("EVERMAP_TEST_SEED") {
        Ok(text) => text.parse().unwrap(),
        Err(_) => UNIX_EPOCH.elapsed().unwrap().as_micros() as u64,
    };
    eprintln!("EVERMAP_TEST_SEED={seed}");
    seed
}

/// Builds documents of all sizes with the program of an example. New processes walk the trees and
/// answer the query `question` like a fresh parse. For one size, further processes change the tree
/// and free it.
fn keeps_its_tree(example: &str, question: &str) {
    let programs = Programs::build(&[&format!("{example}/")]);
    let Some(program) = programs.get(example) else { return };
    let seed = seed();
    for items in SIZES {
        let text = document(&program.format, seed, items);
        let addresses = program.walks_like_a_fresh_parse(&text, question, WALKS);
        assert_addresses_vary(&addresses);
    }
    let tree = program.build(&document(&program.format, seed, SIZES[1]));
    let before = tree.run("walk").answer();
    if program.adds() {
        tree.run("add").success();
        let after = tree.run("walk").answer();
        assert_ne!(after, before, "{example}: nothing was added");
        assert_eq!(tree.run("walk").answer(), after, "{example}: what was added did not stay");
    }
    assert_eq!(tree.run("drop").number("blocks"), 0, "{example}: freeing the tree left blocks");
}

/// Asserts that programs ran at different addresses if the system randomises them.
fn assert_addresses_vary(addresses: &BTreeSet<String>) {
    let randomised = std::fs::read_to_string("/proc/sys/kernel/randomize_va_space");
    match randomised.as_deref().map(str::trim) {
        Ok("2") => assert!(addresses.len() > 1, "all ran at the same address: {addresses:?}"),
        other => eprintln!("SKIPPED: address space randomisation is {other:?} here"),
    }
}

#[test]
fn pugixml_walks_in_a_new_process_what_it_built_in_another() {
    keeps_its_tree("pugixml", "//item[@kind='k3']/name");
}

#[test]
fn rapidjson_walks_in_a_new_process_what_it_built_in_another() {
    keeps_its_tree("rapidjson", "/items/0/tags");
}

#[test]
fn yyjson_walks_in_a_new_process_what_it_built_in_another() {
    keeps_its_tree("yyjson", "/items/0/tags");
}

#[test]
fn cmark_walks_in_a_new_process_what_it_built_in_another() {
    keeps_its_tree("cmark", "link");
}

#[test]
fn pcre2_matches_in_a_new_process_with_what_it_compiled_in_another() {
    keeps_its_tree("pcre2", "a text with name1 and 42");
}

#[test]
fn a_tree_of_another_library_is_refused_and_named() {
    let programs = Programs::build(&["pugixml/", "rapidjson/"]);
    let (Some(xml), Some(json)) = (programs.get("pugixml"), programs.get("rapidjson")) else {
        return;
    };
    let tree = xml.build(&document("xml", 1, 3));
    let refused = json.run(&["walk".into(), tree.store.clone().into()]);
    assert_eq!(refused.outcome(""), Outcome::Refused);
    assert!(refused.errors.contains("built by pugixml"), "{}", refused.errors);
}

#[test]
fn documents_that_others_wrote_are_walked_like_a_fresh_parse() {
    let root = std::env::var_os("EVERMAP_CORPUS")
        .map_or_else(|| repository().join("../shared/corpus"), PathBuf::from);
    let Ok(folder) = std::fs::read_dir(root.join("xml")) else {
        eprintln!("SKIPPED: no corpus at {} (set EVERMAP_CORPUS)", root.display());
        return;
    };
    let programs = Programs::build(&["pugixml/"]);
    let Some(program) = programs.get("pugixml") else { return };
    for file in folder.map(|entry| entry.unwrap().path()) {
        if file.extension().is_some_and(|extension| extension == "xml") {
            let text = String::from_utf8_lossy(&std::fs::read(file).unwrap()).into_owned();
            program.walks_like_a_fresh_parse(&text, "//*[@id]", 1);
        }
    }
}

/// Returns the cells of a table's row.
fn cells(line: &str) -> Vec<&str> {
    line.trim().trim_matches('|').split('|').map(|cell| cell.trim().trim_matches('`')).collect()
}

#[test]
fn the_table_of_libraries_matches_runs() {
    let page = std::fs::read_to_string(repository().join("docs/libraries.md")).unwrap();
    let rows: Vec<Vec<&str>> =
        page.lines().filter(|line| line.starts_with("| `")).map(cells).collect();
    let in_table: BTreeSet<&str> = rows.iter().map(|row| row[0]).collect();
    let in_list = list_lines();
    let sources: BTreeSet<&str> = in_list.iter().map(|each| each.source.as_str()).collect();
    assert_eq!(in_table, sources, "docs/libraries.md and examples/libraries/libraries.txt differ");

    let programs = Programs::build(&[]);
    let mut wrong = Vec::new();
    for row in rows {
        let [source, version, read_only, writable, _, foreign, _] = row[..] else {
            panic!("{row:?}")
        };
        let Some(program) = programs.by_source(source) else { continue };
        let text = document(&program.format, 4, SIZES[1]);
        let expected = program.parse(&text, None).answer();
        let tree = program.build(&text);
        let outcomes = [tree.run("walk"), tree.run("walk-writable")]
            .map(|run| run.outcome(&expected).to_string());
        let installed = version_of(&program.package);
        if installed.as_deref().is_none_or(|installed| !installed.starts_with(version)) {
            eprintln!("SKIPPED: {source} is {installed:?} here, not {version}: {outcomes:?}");
            continue;
        }
        if outcomes != [read_only, writable] {
            wrong.push(format!("{source} {version}: {outcomes:?}, not {read_only}, {writable}"));
        }
        let found = program.foreign_targets(&text);
        if found.is_empty() != foreign.starts_with("none") {
            wrong.push(format!("{source} {version}: the audit found {found:?}, not {foreign}"));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}
