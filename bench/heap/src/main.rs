//! Measures heaps, allocators, persistent heaps and databases.

use std::process::ExitCode;

fn main() -> ExitCode {
    bench_heap::AREA.main()
}
