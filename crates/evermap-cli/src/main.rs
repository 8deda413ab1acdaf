//! The `evermap` command: parses documents once, and later opens them in microseconds.
//!
//! A thin layer. `arguments` defines the command line, each file under `verbs` turns one verb into
//! a few library calls, `output` writes the results, and `failure` turns an error into one line and
//! one exit code. Nothing here knows how a store or a document works.
//!
//! Verbs that read must start fast: `query` on a warm store takes about a millisecond for the whole
//! process, so everything is set up on first use.

mod absent;
mod arguments;
mod closed_output;
mod comparison;
mod completion;
mod damage;
mod failure;
mod help;
mod hints;
mod kinds;
mod limits;
mod memory;
mod names;
mod output;
mod picture;
mod progress;
mod refresh_lock;
mod remote;
mod result_file;
mod source;
mod stale;
mod store_path;
mod text;
mod verbs;

use std::ffi::OsString;
use std::process::ExitCode;

use arguments::{Arguments, Verb};
use failure::Failure;

#[global_allocator]
static ALLOCATOR: memory::ExitOnFailure = memory::ExitOnFailure;

fn main() -> ExitCode {
    memory::with_enough_stack(command)
}

fn command() -> ExitCode {
    memory::ensure_stack_space();
    completion::answer_shell(Arguments::full_command);
    evermap_transfer::errors_for_size_limits();
    let words: Vec<_> = std::env::args_os().collect();
    let arguments = match Arguments::parse_line(&words) {
        Ok(arguments) => arguments,
        Err(error) => return refuse(error, &words),
    };
    output::trace_to_stderr(arguments.common.verbose);
    match run(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}

/// Prints an error of the command line, or the help that it asks for.
fn refuse(mut error: clap::Error, words: &[OsString]) -> ExitCode {
    let words: Vec<String> =
        words.iter().skip(1).map(|word| word.to_string_lossy().into_owned()).collect();
    if let Some(failure) = absent::missing_feature(&error, words.iter().cloned()) {
        return failure.report();
    }
    hints::correct(&mut error, &words, &Arguments::full_command());
    let code = ExitCode::from(error.exit_code() as u8);
    // clap writes to Rust's standard output, which takes a closed one for `/dev/null`.
    match error.print().and_then(|()| output::check_open()) {
        // A closed stderr leaves no way to report anything.
        Err(source) if !error.use_stderr() => Failure::Output(source).report(),
        _ => code,
    }
}

fn run(arguments: &Arguments) -> Result<(), Failure> {
    match &arguments.verb {
        Verb::Parse(parse) => parse.run(&arguments.store()?),
        Verb::Query(query) => query.run(&arguments.store()?),
        Verb::Ls(ls) => ls.run(&arguments.store()?),
        Verb::Info(info) => info.run(&arguments.store()?),
        Verb::Rm(rm) => rm.run(&arguments.store()?),
        Verb::Mv(mv) => mv.run(&arguments.store()?),
        Verb::Freeze(freeze) => freeze.run(&arguments.store()?),
        Verb::Store(store) => store.verb.run(&arguments.store()?),
        Verb::OldSpelling(verb) => verb.run(&arguments.store()?),
        #[cfg(feature = "view")]
        Verb::View(view) => view.run(&arguments.store()?),
        #[cfg(feature = "view")]
        Verb::Render(render) => render.run(&arguments.store()?),
        #[cfg(feature = "view")]
        Verb::Prefetch(prefetch) => prefetch.run(&arguments.store()?),
        Verb::Sandbox(sandbox) => sandbox.run(|| arguments.store()),
        Verb::Copy(copy) => copy.run(),
        Verb::Send(send) => send.run(),
        Verb::Receive(receive) => receive.run(),
        Verb::Load(load) => load.run(),
        Verb::Lane(lane) => lane.run(),
        Verb::Bench(bench) => bench.run(),
        Verb::Demo(demo) => demo.run(),
        Verb::Completions(completions) => completions.run(),
        Verb::Generate(generate) => generate.run(Arguments::full_command()),
    }
}
