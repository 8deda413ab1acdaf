//! The README's example is a program that compiles and does what the README says.

use std::fs;
use std::process::Command;

use crate::staged::{Place, WARNINGS, here, run, staged};

/// The first block of a language in a page.
fn block(page: &str, language: &str) -> String {
    let (_, rest) = page.split_once(&format!("```{language}\n")).unwrap();
    rest.split_once("```").unwrap().0.to_string()
}

#[test]
fn the_readmes_example_counts_its_runs() {
    let readme = fs::read_to_string(here().join("README.md")).unwrap();
    let place = Place::new();
    let (source, program) = (place.path().join("example.c"), place.path().join("example"));
    fs::write(&source, block(&readme, "c")).unwrap();
    let libraries = staged().join("lib");
    let mut compiler = Command::new("cc");
    compiler.args(WARNINGS).arg("-std=c99").arg("-I").arg(staged().join("include"));
    compiler.arg(&source).arg("-o").arg(&program).arg("-L").arg(&libraries).arg("-levermap");
    run(compiler.arg(format!("-Wl,-rpath,{}", libraries.display())));
    for expected in ["1 run\n", "2 runs\n", "3 runs\n"] {
        assert_eq!(run(place.command(&program).current_dir(place.path())), expected);
    }
}
