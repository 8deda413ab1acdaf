//! The `evermap-engine` program: lays one page out and ends. `evermap view`, `render` and `prefetch` start it.

use std::process::ExitCode;

fn main() -> ExitCode {
    evermap_view::engine::main()
}
