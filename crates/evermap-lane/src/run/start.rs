//! Process between the lane and the program: applies the settings to itself and then becomes the
//! program.
//!
//! It is a separate program (the command's hidden verb `lane start`), so that it shares no memory
//! with the lane and may do more than a process between fork and exec. It does nothing before the
//! lane has journalled it, and exits if the lane is gone by then.

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

/// Longest time that either side waits for the other: the machine and its disk may be busy.
pub(super) const START_TIMEOUT: Duration = Duration::from_secs(30);

/// Settings of the program.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Settings {
    /// Id of the lane, for the environment.
    pub(super) id: String,
    pub(super) view: View,
    /// Alternatives for scheduling; the first that the kernel grants is used.
    #[serde(rename = "wishes")]
    pub(super) choices: Vec<SchedulingChoice>,
    pub(super) timer_slack_ns: NonZeroU64,
    pub(super) lock_memory: bool,
}

/// One alternative for scheduling.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct SchedulingChoice {
    pub(super) affinity: BTreeSet<u32>,
    pub(super) scheduling: Scheduling,
}

/// Result of applying the settings: error numbers, or `None` on success.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Response {
    /// Results of the alternatives that were tried.
    pub(super) tried: Vec<Option<i32>>,
    pub(super) timer_slack: Option<i32>,
    pub(super) lock_memory: Option<i32>,
    /// Failure of the view or of starting the program, which is not started then.
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

/// Becomes the program with the settings that the lane sends through the descriptor. Returns only
/// if that failed and the lane has received the reason.
///
/// # Errors
/// The lane is gone.
pub fn start(channel: i32, path: PathBuf, command: &[OsString]) -> Result<()> {
    let failed = |why: &str, source: io::Error| Error::NotStarted {
        program: path.clone(),
        source: io::Error::new(source.kind(), format!("{why}{source}")),
    };
    let channel = adopt(channel).map_err(|error| failed("not started by a lane: ", error))?;
    let mut channel = Channel::of(channel);
    let settings: Option<Settings> =
        channel.receive(START_TIMEOUT).map_err(|error| failed("not started by a lane: ", error))?;
    let Some(settings) = settings else {
        return Err(failed("the lane is gone: ", io::ErrorKind::BrokenPipe.into()));
    };
    let mut response = Response::default();
    if let Err(error) = settings.view.enter() {
        response.not_started = Some(NotStarted { error: None, why: error.to_string() });
        drop(channel.send(&response));
        return Ok(());
    }
    apply(&settings, &mut response);
    channel.send(&response).map_err(|error| failed("the lane is gone: ", error))?;
    let Some((name, arguments)) = command.split_first() else {
        return Err(failed("no command: ", io::ErrorKind::InvalidInput.into()));
    };
    let mut program = Command::new(&path);
    program.arg0(name).args(arguments).env(LANE_VARIABLE, &settings.id);
    let error = program.exec();
    let not_started = Some(NotStarted::of(&error));
    drop(channel.send(&Response { not_started, ..Response::default() }));
    Ok(())
}

/// Applies settings that a process can only or best apply to itself. The scheduling policy comes
/// last, so that the process is an ordinary one until then.
fn apply(settings: &Settings, response: &mut Response) {
    let number =
        |result: io::Result<()>| result.err().map(|error| error.raw_os_error().unwrap_or(0));
    response.timer_slack = number(scheduler::set_timer_slack(settings.timer_slack_ns));
    if settings.lock_memory {
        let unlimited = Rlimit { current: None, maximum: None };
        response.lock_memory =
            number(setrlimit(Resource::Memlock, unlimited).map_err(io::Error::from));
    }
    for choice in &settings.choices {
        let tried = number(
            scheduler::set_affinity(Thread::CURRENT, &choice.affinity)
                .and_then(|()| scheduler::set(Thread::CURRENT, &choice.scheduling)),
        );
        let is_granted = tried.is_none();
        response.tried.push(tried);
        if is_granted {
            break;
        }
    }
}
