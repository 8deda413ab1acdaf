//! Measures transfers by Evermap and by other programs.

use std::process::ExitCode;

fn main() -> ExitCode {
    bench_transfer::AREA.main()
}
