//! Runs this program again, as one of the measured programs.

use std::process::{Child, Command, Stdio};

use evermap_lane::Policy;
use evermap_lane::bench::{Play, Played};
use harness::Outcome;
use rustix::process::{Signal, set_parent_process_death_signal};
use serde::de::DeserializeOwned;

use crate::watched::{Request, Watched};
use crate::{bench::Bench, watched};

/// Plays, and prints the result as JSON.
pub fn play(policy: &str, play: &str) -> Outcome {
    set_parent_process_death_signal(Some(Signal::KILL))?;
    let (policy, play): (Policy, Play) =
        (serde_json::from_str(policy)?, serde_json::from_str(play)?);
    let played = evermap_lane::bench::play(&policy, &play, None)?;
    println!("{}", serde_json::to_string(&played)?);
    Ok(())
}

/// Takes a decoder's frames, and prints their times as JSON.
pub fn watch(request: &str) -> Outcome {
    set_parent_process_death_signal(Some(Signal::KILL))?;
    let request: Request = serde_json::from_str(request)?;
    println!("{}", serde_json::to_string(&watched::watch(&request)?)?);
    Ok(())
}

/// Child process whose result is read later.
pub struct Asked {
    child: Child,
}

impl Asked {
    pub fn to_play(bench: &Bench, policy: &Policy, play: &Play) -> Outcome<Asked> {
        let words = [serde_json::to_string(policy)?, serde_json::to_string(play)?];
        Self::start(bench, "play", &words)
    }

    pub fn to_watch(bench: &Bench, request: &Request) -> Outcome<Asked> {
        Self::start(bench, "watch", &[serde_json::to_string(request)?])
    }

    fn start(bench: &Bench, what: &str, words: &[String]) -> Outcome<Asked> {
        let mut command = Command::new(&bench.options.program);
        command.args(["child", what]).args(words);
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        Ok(Asked { child: command.spawn()? })
    }

    pub fn played(self) -> Outcome<Played> {
        self.answer()
    }

    pub fn watched(self) -> Outcome<Watched> {
        self.answer()
    }

    fn answer<T: DeserializeOwned>(self) -> Outcome<T> {
        let output = self.child.wait_with_output()?;
        if !output.status.success() {
            return Err(format!("a player ended: {}", output.status).into());
        }
        Ok(serde_json::from_slice(&output.stdout)?)
    }
}
