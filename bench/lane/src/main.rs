//! Measures programs with deadlines under a load, rung by rung.

use std::process::ExitCode;

fn main() -> ExitCode {
    bench_lane::AREA.main()
}
