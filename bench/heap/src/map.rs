//! Measures a `std::map` of a million entries in an object, through `evermap.hpp`: a new process
//! opens it and looks up 1,000 keys. The comparison builds the map again, as a program without
//! Evermap does.

use std::path::PathBuf;

use crate::Scale;
use crate::foreign::Source;
use harness::Outcome;
use harness::children;
use harness::files::{Folder, text};
use harness::goals::Goals;
use harness::quiet::Awake;
use harness::samples::{Samples, figure, head, row};

const ENTRIES: usize = 1_000_000;
const ROUNDS: usize = 9;
const GOAL: f64 = 500.0;

pub fn report(folder: &Folder, scale: Scale, goals: &mut Goals) -> Outcome {
    println!("\n### `std::map` of a million entries\n");
    let Some(prefix) = prefix() else {
        println!(
            "**Not measured: `include/evermap.hpp` and `lib/libevermap.so` were not found (`EVERMAP_PREFIX`).**"
        );
        return Ok(());
    };
    let library = prefix.join("lib");
    let flags = [
        format!("-I{}", text(&prefix.join("include"))?),
        format!("-L{}", text(&library)?),
        format!("-Wl,-rpath,{}", text(&library)?),
        "-levermap".to_string(),
    ];
    let source = Source {
        name: "map",
        text: include_str!("../peers/map.cpp"),
        header: "evermap.hpp",
        package: "this repository's",
        flags: &flags.each_ref().map(String::as_str),
    };
    let Some(program) = source.compile(folder.path())? else { return Ok(()) };
    let entries = (ENTRIES / scale.divisor).to_string();
    let store = folder.join("map-store");
    let keep = ["keep", text(&store)?, &entries];
    let kept = children::run_program(&program, &keep)?.figure("us")? / 1e3;
    let _awake = Awake::new()?;
    let [mut rebuild, mut reopen, mut whole_rebuild, mut whole_reopen]: [Samples; 4] =
        Default::default();
    for _ in 0..scale.rounds(ROUNDS) {
        let child = children::run_program(&program, &["rebuild", text(&store)?, &entries])?;
        rebuild.push(child.figure("us")?);
        whole_rebuild.push_us(child.whole);
        let child = children::run_program(&program, &["reopen", text(&store)?, &entries])?;
        reopen.push(child.figure("us")?);
        whole_reopen.push_us(child.whole);
    }
    std::fs::remove_dir_all(&store)?;
    head(&["", "build or open, look up 1,000, us", "whole process, us"]);
    row(&["built again, on glibc's heap".into(), rebuild.to_string(), whole_rebuild.to_string()]);
    row(&["opened".into(), reopen.to_string(), whole_reopen.to_string()]);
    let ratio = whole_rebuild.median() / whole_reopen.median();
    println!(
        "\nRatio of whole processes: {} x. Building it in the object takes {} ms.",
        figure(ratio),
        figure(kept)
    );
    let got = (reopen.median(), format!("{reopen} us"));
    let rebuild = (rebuild.median(), "built again, us");
    goals.at_least("std::map: open, look up 1,000", GOAL, got, rebuild);
    Ok(())
}

/// Returns the folder of the installed C and C++ library: `EVERMAP_PREFIX`, or the one that the
/// entry point builds.
fn prefix() -> Option<PathBuf> {
    let prefix = std::env::var_os("EVERMAP_PREFIX").map(PathBuf::from).or_else(|| {
        let program = std::env::current_exe().ok()?;
        Some(program.ancestors().nth(2)?.join("evermap-c"))
    })?;
    let there = |file: &str| prefix.join(file).is_file();
    (there("include/evermap.hpp") && there("lib/libevermap.so")).then_some(prefix)
}
