//! Errors of the simulator. Each names the input, the cause and the remedy.

/// Reason why a simulation cannot run.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Invalid TOML, or an unexpected value in it.
    #[error("{what}: {why}")]
    Syntax {
        /// The profile or the targets.
        what: &'static str,
        /// Message of the TOML parser, with the line.
        why: String,
    },
    /// Unknown parameter.
    #[error("there is no parameter `{key}`; {remedy}")]
    UnknownKey {
        /// The name as given.
        key: String,
        /// The known names.
        remedy: String,
    },
    /// A required parameter is missing.
    #[error("the profile has no `{key}` ({meaning}); add a value and its source")]
    MissingKey {
        /// Name of the parameter.
        key: String,
        /// Meaning of the parameter.
        meaning: &'static str,
    },
    /// Invalid value.
    #[error("`{key}` cannot be {value}: {why}")]
    InvalidValue {
        /// The parameter.
        key: String,
        /// The value as given.
        value: String,
        /// The valid values.
        why: String,
    },
    /// Unknown device.
    #[error("there is no device `{name}` in profile `{profile}`; it has {}", known.join(", "))]
    UnknownDevice {
        /// The name as given.
        name: String,
        /// The profile.
        profile: String,
        /// The known devices.
        known: Vec<String>,
    },
    /// Unknown built-in profile.
    #[error("there is no profile `{name}`; there are {known}; or give the path of a file")]
    UnknownProfile {
        /// The name as given.
        name: String,
        /// The known profiles.
        known: String,
    },
    /// Invalid axis.
    #[error(
        "`{text}` is not a valid range: {why}; write, for example, `capacity=10..100:10` or `wait=0,20,50`"
    )]
    Axis {
        /// The axis as given.
        text: String,
        /// Reason.
        why: String,
    },
    /// The simulation would take too long.
    #[error("too many {what}: {count}, at most {most}; {remedy}")]
    LimitExceeded {
        /// Name of the quantity.
        what: &'static str,
        /// Given value.
        count: u64,
        /// Maximum.
        most: u64,
        /// Remedy.
        remedy: &'static str,
    },
    /// The trace has no reads.
    #[error(
        "the trace has no such reads; record the program while it works, or choose other files"
    )]
    EmptyTrace,
    /// Invalid target.
    #[error("target `{name}`: {why}")]
    Target {
        /// Name of the target.
        name: String,
        /// Reason and remedy.
        why: String,
    },
    /// Drawing a chart failed.
    #[error(transparent)]
    Plot(#[from] evermap_plot::Error),
}

/// Returns an error if `count` exceeds `most`.
pub(crate) fn at_most(
    what: &'static str,
    count: u64,
    most: u64,
    remedy: &'static str,
) -> Result<(), Error> {
    if count <= most { Ok(()) } else { Err(Error::LimitExceeded { what, count, most, remedy }) }
}
