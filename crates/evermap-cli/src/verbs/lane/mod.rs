//! `evermap lane`: helps programs with deadlines meet them.

mod bench;
mod check;
mod guard;
mod observe;
mod place;
mod play;
mod run;
mod simulate;
mod start;
mod state;
mod status;
mod trace;
mod undo;

use clap::Subcommand;

use crate::failure::Failure;

const EXAMPLES: &str = "Examples:
  evermap lane check                   # what is possible here, with remedies
  evermap lane run -- mpv film.mkv     # run a program in a lane
  evermap lane play --seconds 5        # play a clip and count missed deadlines
  evermap lane play --seconds 5 --no-lane";

/// Give a program a core, a fast tier and non-blocking I/O; or simulate it
///
/// A lane is a core, a real-time policy and an I/O mode for one program: the program runs whenever
/// it wants to, and other programs run while it sleeps. Changes made by a lane are undone when the
/// program ends, even if processes are killed.
#[derive(Debug, clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub struct Lane {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    Bench(bench::Bench),
    Check(check::Check),
    #[command(hide = true)]
    Guard(guard::Guard),
    Observe(observe::Observe),
    Place(place::Place),
    Play(play::Play),
    Run(run::Run),
    Simulate(Box<simulate::Simulate>),
    #[command(hide = true)]
    Start(start::Start),
    Status(status::Status),
    Trace(trace::Trace),
    Undo(undo::Undo),
}

impl Lane {
    pub fn run(&self) -> Result<(), Failure> {
        match &self.what {
            What::Bench(bench) => bench.run(),
            What::Check(check) => check.run(),
            What::Guard(guard) => guard.run(),
            What::Observe(observe) => observe.run(),
            What::Place(place) => place.run(),
            What::Play(play) => play.run(),
            What::Run(run) => run.run(),
            What::Simulate(simulate) => simulate.run(),
            What::Start(start) => start.run(),
            What::Status(status) => status.run(),
            What::Trace(trace) => trace.run(),
            What::Undo(undo) => undo.run(),
        }
    }
}

/// Path of this program, which serves as guardian and starts programs of lanes.
fn helper() -> Result<std::path::PathBuf, Failure> {
    std::env::current_exe().map_err(Failure::source("/proc/self/exe"))
}
