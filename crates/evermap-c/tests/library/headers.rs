//! Tests of the headers alone, and of the exports of the shared library.

use std::collections::BTreeSet;
use std::fs;
use std::process::Command;

use crate::staged::{Place, WARNINGS, here, run, staged};

const HEADERS: [&str; 5] =
    ["evermap.h", "evermap_transfer.h", "evermap_load.h", "fastio.h", "nvheap.h"];

#[test]
fn each_header_compiles_alone_in_c_and_cpp() {
    let place = Place::new();
    for (language, standard) in [("c", "c99"), ("c", "c11"), ("c++", "c++11"), ("c++", "c++20")] {
        if language == "c++" && Command::new("c++").arg("--version").output().is_err() {
            eprintln!("SKIPPED: no c++ here, the headers were compiled as C only");
            continue;
        }
        for header in HEADERS {
            let source = place.path().join("alone");
            fs::write(&source, format!("#include <{header}>\n#include <{header}>\n")).unwrap();
            let mut compiler = Command::new(if language == "c" { "cc" } else { "c++" });
            compiler.args(WARNINGS).arg("-fsyntax-only").arg(format!("-std={standard}"));
            compiler.arg("-I").arg(here().join("include"));
            run(compiler.args(["-x", language]).arg(&source));
        }
    }
}

/// Returns the functions that the headers declare, found by an independent parser.
pub fn declared() -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for header in HEADERS {
        let text = fs::read_to_string(here().join("include").join(header)).unwrap();
        for line in text.lines().filter(|line| !line.starts_with([' ', '/', '#'])) {
            if let Some((before, _)) = line.split_once('(')
                && !line.starts_with("typedef")
            {
                let name = before.rsplit([' ', '*']).next().unwrap();
                names.insert(name.to_string());
            }
        }
    }
    assert!(names.len() > 60, "{names:?}");
    names
}

#[test]
fn the_shared_library_exports_the_headers_functions_and_nothing_else() {
    let library = staged().join("lib/libevermap.so");
    if Command::new("nm").arg("--version").output().is_err() {
        return eprintln!("SKIPPED: no nm here (Debian: binutils)");
    }
    let listed = run(Command::new("nm").args(["-D", "--defined-only"]).arg(&library));
    let symbols = listed.lines().map(|line| line.split_whitespace().last().unwrap());
    let symbols = symbols.filter(|name| *name != "EVERMAP_0");
    let exported: BTreeSet<_> = symbols.map(str::to_string).collect();
    let expected: BTreeSet<_> = declared().iter().map(|n| format!("{n}@@EVERMAP_0")).collect();
    assert_eq!(exported, expected);
    let dynamic = run(Command::new("objdump").arg("-p").arg(&library));
    let soname = dynamic.lines().find(|line| line.contains("SONAME")).unwrap();
    assert!(soname.ends_with(" libevermap.so.0"), "{soname}");
}
