//! Between the lane and the program: the process that becomes the program gives itself what the program is to have.
//!
//! It is a program of its own (the command's hidden verb `lane start`), so that nothing of the lane is in it and it may do more than a
//! process between fork and exec. It does nothing before the lane has journalled it, and nothing if the lane is gone by then.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::io;
use std::num::NonZeroU64;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use rustix::process::{Resource, Rlimit, setrlimit};
use serde::{Deserialize, Serialize};

use crate::guard::LANE_VARIABLE;
use crate::guard::channel::Channel;
use crate::sys::scheduler::{self, Scheduling, Thread};
use crate::sys::spawn::adopt;
use crate::tier::View;
use crate::{Error, Result};

/// How long either waits for the other: a machine may be busy, and a disk too.
pub(super) const PATIENCE: Duration = Duration::from_secs(30);

/// What the program is to have.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Orders {
    /// The lane's id, for its environment.
    pub(super) id: String,
    pub(super) view: View,
    /// How it is scheduled: the first that the kernel grants.
    pub(super) wishes: Vec<Wish>,
    pub(super) timer_slack_ns: NonZeroU64,
    pub(super) lock_memory: bool,
}

/// One way to be scheduled.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Wish {
    pub(super) affinity: BTreeSet<u32>,
    pub(super) scheduling: Scheduling,
}

/// What became of the orders: numbers of errors, none for what was done.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Answer {
    /// Of each wish that was tried.
    pub(super) tried: Vec<Option<i32>>,
    pub(super) timer_slack: Option<i32>,
    pub(super) lock_memory: Option<i32>,
    /// The view, or the program itself: it is not started then.
    pub(super) not_started: Option<NotStarted>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct NotStarted {
    pub(super) error: Option<i32>,
    pub(super) why: String,
}

impl NotStarted {
    fn of(error: &io::Error) -> Self {
        Self { error: error.raw_os_error(), why: error.to_string() }
    }
}

/// Becomes the program, as the lane at the other end of the descriptor orders. Returns only if it could not, and the lane has heard why.
///
/// # Errors
/// There is no lane.
pub fn start(channel: i32, path: PathBuf, command: &[OsString]) -> Result<()> {
    let failed = |why: &str, source: io::Error| Error::NotStarted {
        program: path.clone(),
        source: io::Error::new(source.kind(), format!("{why}{source}")),
    };
    let channel = adopt(channel).map_err(|error| failed("not started by a lane: ", error))?;
    let mut channel = Channel::of(channel);
    let orders: Option<Orders> =
        channel.hear(PATIENCE).map_err(|error| failed("not started by a lane: ", error))?;
    let Some(orders) = orders else {
        return Err(failed("the lane is gone: ", io::ErrorKind::BrokenPipe.into()));
    };
    let mut answer = Answer::default();
    if let Err(error) = orders.view.enter() {
        answer.not_started = Some(NotStarted { error: None, why: error.to_string() });
        drop(channel.say(&answer));
        return Ok(());
    }
    follow(&orders, &mut answer);
    channel.say(&answer).map_err(|error| failed("the lane is gone: ", error))?;
    let Some((name, arguments)) = command.split_first() else {
        return Err(failed("no command: ", io::ErrorKind::InvalidInput.into()));
    };
    let mut program = Command::new(&path);
    program.arg0(name).args(arguments).env(LANE_VARIABLE, &orders.id);
    let error = program.exec();
    let not_started = Some(NotStarted::of(&error));
    drop(channel.say(&Answer { not_started, ..Answer::default() }));
    Ok(())
}

/// All that a process can only do for itself, or better does for itself; the policy last, so that until then it is an ordinary one.
fn follow(orders: &Orders, answer: &mut Answer) {
    let number =
        |result: io::Result<()>| result.err().map(|error| error.raw_os_error().unwrap_or(0));
    answer.timer_slack = number(scheduler::set_timer_slack(orders.timer_slack_ns));
    if orders.lock_memory {
        let unlimited = Rlimit { current: None, maximum: None };
        answer.lock_memory =
            number(setrlimit(Resource::Memlock, unlimited).map_err(io::Error::from));
    }
    for wish in &orders.wishes {
        let tried = number(
            scheduler::set_affinity(Thread::CURRENT, &wish.affinity)
                .and_then(|()| scheduler::set(Thread::CURRENT, &wish.scheduling)),
        );
        let is_granted = tried.is_none();
        answer.tried.push(tried);
        if is_granted {
            break;
        }
    }
}
