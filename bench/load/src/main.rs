//! Measures ways to load files, Evermap's and others.

use std::process::ExitCode;

fn main() -> ExitCode {
    bench_load::AREA.main()
}
