//! Tests that examples in the README, in docs/c.md and in the tutorials compile and work as
//! described.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use crate::staged::{Place, WARNINGS, here, pkg_config, run, said, staged};
use crate::walkthrough::{follow, tutorial};

/// Returns the first code block of a language in a page.
fn block(page: &str, language: &str) -> String {
    let (_, rest) = page.split_once(&format!("```{language}\n")).unwrap();
    rest.split_once("```").unwrap().0.to_string()
}

/// Compiles the first program of a page.
fn example(page: &str, place: &Place) -> PathBuf {
    let page = fs::read_to_string(here().join(page)).unwrap();
    let (source, program) = (place.path().join("example.c"), place.path().join("example"));
    fs::write(&source, block(&page, "c")).unwrap();
    let libraries = staged().join("lib");
    let mut compiler = Command::new("cc");
    compiler.args(WARNINGS).arg("-std=c99").arg("-I").arg(staged().join("include"));
    compiler.arg(&source).arg("-o").arg(&program).arg("-L").arg(&libraries).arg("-levermap");
    run(compiler.arg(format!("-Wl,-rpath,{}", libraries.display())));
    program
}

#[test]
fn the_readmes_example_counts_its_runs() {
    let place = Place::new();
    let program = example("README.md", &place);
    for expected in ["1 run\n", "2 runs\n", "3 runs\n"] {
        assert_eq!(run(place.command(&program).current_dir(place.path())), expected);
    }
}

#[test]
fn the_example_of_loading_counts_lines_and_leaves_the_file_alone() {
    let place = Place::new();
    let program = example("../../docs/c.md", &place);
    let (text, file) = ("a line\n".repeat(100_000), place.path().join("text"));
    fs::write(&file, &text).unwrap();
    assert_eq!(run(place.command(&program).arg(&file)), "100000 lines\n");
    assert!(fs::read_to_string(&file).unwrap() == text);
    let output = place.command(&program).arg(place.path().join("none")).output().unwrap();
    assert!(!output.status.success() && said(&output).contains("check the name"));
}

#[test]
fn the_tutorial_on_a_first_object_in_c_works() {
    let place = Place::new();
    let flags = pkg_config(place.path());
    follow(&tutorial("first-object-c.md"), place.path(), &[("pkg-config", &flags)]);
}
