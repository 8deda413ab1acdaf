//! The `evermap-engine` program: lays out one page and exits. `evermap view`, `render` and
//! `prefetch` start it.

use std::process::ExitCode;

fn main() -> ExitCode {
    evermap_view::engine::main()
}
