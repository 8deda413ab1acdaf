//! Behaviour of a simulated program while it reads.

use std::fmt;
use std::str::FromStr;

use serde::Serialize;

use crate::error::Error;

/// Behaviour of the program while it reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// The program gives up its core, and later waits for it.
    Blocking,
    /// The program keeps its core.
    Nonblocking,
}

impl Mode {
    /// Returns the name used in profiles.
    pub fn name(self) -> &'static str {
        match self {
            Mode::Blocking => "blocking",
            Mode::Nonblocking => "nonblocking",
        }
    }
}

impl FromStr for Mode {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        match text {
            "blocking" => Ok(Mode::Blocking),
            "nonblocking" => Ok(Mode::Nonblocking),
            other => Err(Error::InvalidValue {
                key: "mode".into(),
                value: format!("`{other}`"),
                why: "use `blocking` or `nonblocking`".into(),
            }),
        }
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
