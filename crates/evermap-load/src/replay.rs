//! Use of recordings by a load: make one, replay one, or none.

#[cfg(feature = "files")]
use std::{io::ErrorKind, path::PathBuf};

#[cfg(feature = "files")]
use crate::error::Error;
use crate::error::Result;
use crate::part::Part;
use crate::plan::{Options, Order};
use crate::recording::Recording;
use crate::source::Source;

/// Recording option of a loader.
#[derive(Debug, Clone, Default)]
pub(crate) enum RecordingMode {
    /// No recording.
    #[default]
    Nothing,
    /// Make a recording.
    Record,
    /// Replay this recording.
    Replay(Recording),
    /// Replay the recording in this file if it applies. Otherwise make one and save it there.
    #[cfg(feature = "files")]
    File(PathBuf),
}

/// Use of a recording by a load.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
#[non_exhaustive]
pub enum RecordingUse {
    /// A recording is being made.
    Made,
    /// A recording cannot be made, for this reason.
    NotMade(String),
    /// A recording was replayed.
    Replayed,
    /// The recording does not apply to this file, for this reason.
    Ignored(String),
}

/// Plan for the recording of one load.
#[derive(Debug, Default)]
pub(crate) struct Plan {
    /// True if a recording is to be made.
    pub(crate) is_record: bool,
    /// File to save it to when the image is dropped.
    #[cfg(feature = "files")]
    pub(crate) save: Option<PathBuf>,
    /// Recording to replay.
    pub(crate) recording: Option<Recording>,
    /// Use to report.
    pub(crate) used: Option<RecordingUse>,
}

impl RecordingMode {
    /// Plans a load of this part of a file.
    ///
    /// # Errors
    ///
    /// Errors of reading an existing recording. An invalid file is not overwritten.
    pub(crate) fn plan(&self, source: &Source, part: &Part) -> Result<Plan> {
        Ok(match self {
            RecordingMode::Nothing => Plan::default(),
            RecordingMode::Record => Plan { is_record: true, ..Plan::default() },
            RecordingMode::Replay(recording) => replay(recording.clone(), source, part),
            #[cfg(feature = "files")]
            RecordingMode::File(path) => {
                let plan = match Recording::read(path) {
                    Ok(recording) => replay(recording, source, part),
                    Err(Error::Io { source, .. }) if source.kind() == ErrorKind::NotFound => {
                        Plan::default()
                    }
                    Err(error) => return Err(error),
                };
                match plan.recording {
                    Some(_) => plan,
                    None => Plan { is_record: true, save: Some(path.clone()), ..plan },
                }
            }
        })
    }
}

fn replay(recording: Recording, source: &Source, part: &Part) -> Plan {
    match recording.mismatch(source.identity(), part) {
        Some(why) => Plan { used: Some(RecordingUse::Ignored(why.into())), ..Plan::default() },
        None => Plan {
            recording: Some(recording),
            used: Some(RecordingUse::Replayed),
            ..Plan::default()
        },
    }
}

impl Plan {
    /// Completes the options with values from the recording where the user set none.
    pub(crate) fn options(&self, options: &Options) -> Options {
        let mut options = options.clone();
        if let Some(recording) = &self.recording {
            options.touched.get_or_insert(recording.touched_share());
            options.written.get_or_insert(recording.written_share());
            if options.order == Order::Unknown {
                options.order = recording.order();
            }
        }
        options
    }
}
