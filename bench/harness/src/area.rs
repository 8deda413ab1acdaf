//! Entry point of an area's program: reads the options and runs the sections, or runs as a child.

use std::process::ExitCode;
use std::time::Instant;

use crate::bench::{Bench, Section};
use crate::options::{self, Choices, Options};
use crate::{Outcome, guard, quiet};

/// An area of the benchmarks. Each section answers one question.
pub struct Area<Own: 'static> {
    /// Name for the command line: `bench NAME [SECTION ...] [OPTIONS]`.
    pub name: &'static str,
    pub choices: Choices,
    /// Sections in the order in which they run.
    pub sections: &'static [Section<Own>],
    /// Prepares a run, and prints the description of the machine.
    pub start: fn(Options) -> Outcome<Bench<Own>>,
    /// Runs this program as `child ...`, since this time. Most measured work runs in new processes,
    /// and many of them are this program.
    pub child: fn(Instant, &[&str]) -> Outcome,
}

impl<Own> Area<Own> {
    /// Runs the program. Call it in the first line of `main`.
    pub fn main(&self) -> ExitCode {
        let start = Instant::now();
        let arguments: Vec<String> = std::env::args().skip(1).collect();
        let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let outcome = match words[..] {
            ["child", "guard"] => guard::watch(std::io::stdin().lock()),
            ["child", "spin", processor] => spin(processor),
            ["child", ref rest @ ..] => (self.child)(start, rest),
            _ => self.drive(),
        };
        match outcome {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("bench {}: {error}", self.name);
                ExitCode::FAILURE
            }
        }
    }

    fn drive(&self) -> Outcome {
        let names: Vec<&str> = self.sections.iter().map(|(name, _)| *name).collect();
        match Options::read(&names, &self.choices)? {
            Some(options) => (self.start)(options)?.run(self.sections),
            None => {
                println!("{}", options::help(self.name, &names, &self.choices));
                Ok(())
            }
        }
    }
}

/// Returns the error of an area for a child that it does not have.
pub fn unknown_child(arguments: &[&str]) -> Outcome {
    Err(format!("unknown child: {}", arguments.join(" ")).into())
}

fn spin(processor: &str) -> Outcome {
    quiet::spin(processor.parse()?)
}
