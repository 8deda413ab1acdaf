//! Checks of the project's own source, which `make lint` runs.
//!
//! `layers` fails on an import that points up a layer and on a circle of files; `links` fails on a
//! broken link in a Markdown page; `widths` fails on a comment that is wider than 100 columns.

mod graph;
mod layers;
mod links;
mod modules;
mod widths;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

const USAGE: &str = "usage: cargo run -p xtask -- layers [--edges CRATE] | links | widths";

fn main() -> ExitCode {
    let root = root();
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let outcome = match arguments[..] {
        ["layers"] => layers::check(&root),
        ["layers", "--edges", name] => layers::print_edges(&root, name),
        ["links"] => links::check(&root),
        ["widths"] => widths::check(&root),
        _ => Err(USAGE.to_string()),
    };
    match outcome {
        Ok(summary) => {
            println!("{summary}");
            ExitCode::SUCCESS
        }
        Err(problems) => {
            eprintln!("{problems}");
            ExitCode::FAILURE
        }
    }
}

/// Returns the root folder of the workspace.
fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap_or(here).to_path_buf()
}
