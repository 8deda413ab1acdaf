//! What a load does with recordings: makes one, begins with one, or has none.

#[cfg(feature = "files")]
use std::{io::ErrorKind, path::PathBuf};

#[cfg(feature = "files")]
use crate::error::Error;
use crate::error::Result;
use crate::part::Part;
use crate::plan::{Order, Wishes};
use crate::recording::Recording;
use crate::source::Source;

/// What a loader was told.
#[derive(Debug, Clone, Default)]
pub(crate) enum Told {
    /// Nothing.
    #[default]
    Nothing,
    /// To make one.
    Record,
    /// To begin with this one.
    Replay(Recording),
    /// To begin with the one of this file if it fits, else to make one and save it there.
    #[cfg(feature = "files")]
    File(PathBuf),
}

/// What a load did with a recording.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
#[non_exhaustive]
pub enum RecordingUse {
    /// It is being made.
    Made,
    /// It was to be made, and can't: why.
    NotMade(String),
    /// The load began with it.
    Replayed,
    /// It does not tell how this file will be used: why.
    Ignored(String),
}

/// What comes of it for one load.
#[derive(Debug, Default)]
pub(crate) struct Plan {
    /// One is to be made.
    pub(crate) is_record: bool,
    /// And saved here, when the image is dropped.
    #[cfg(feature = "files")]
    pub(crate) save: Option<PathBuf>,
    /// This one fits.
    pub(crate) recording: Option<Recording>,
    /// For the report.
    pub(crate) used: Option<RecordingUse>,
}

impl Told {
    /// What a load of this part of this file does.
    ///
    /// # Errors
    ///
    /// Those of reading a recording that is there: what is none is not written over.
    pub(crate) fn plan(&self, source: &Source, part: &Part) -> Result<Plan> {
        Ok(match self {
            Told::Nothing => Plan::default(),
            Told::Record => Plan { is_record: true, ..Plan::default() },
            Told::Replay(recording) => replay(recording.clone(), source, part),
            #[cfg(feature = "files")]
            Told::File(path) => {
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
    match recording.misfit(source.identity(), part) {
        Some(why) => Plan { used: Some(RecordingUse::Ignored(why.into())), ..Plan::default() },
        None => Plan {
            recording: Some(recording),
            used: Some(RecordingUse::Replayed),
            ..Plan::default()
        },
    }
}

impl Plan {
    /// Wishes, and where nobody said any, what was recorded.
    pub(crate) fn wishes(&self, wishes: &Wishes) -> Wishes {
        let mut wishes = wishes.clone();
        if let Some(recording) = &self.recording {
            wishes.touched.get_or_insert(recording.touched_share());
            wishes.written.get_or_insert(recording.written_share());
            if wishes.order == Order::Unknown {
                wishes.order = recording.order();
            }
        }
        wishes
    }
}
