//! Why there is no simulation: what was asked for, what is wrong with it, what would be right.

/// Why there is no simulation.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// No TOML, or not what is expected there.
    #[error("{what}: {why}")]
    Syntax {
        /// A profile or targets.
        what: &'static str,
        /// As the reader of TOML says it, with the line.
        why: String,
    },
    /// A parameter of no such name.
    #[error("there is no parameter `{key}`; {remedy}")]
    UnknownKey {
        /// As it was written.
        key: String,
        /// The names there are.
        remedy: String,
    },
    /// A parameter that every profile has.
    #[error("the profile has no `{key}` ({meaning}); give it a value, and a source")]
    MissingKey {
        /// Its name.
        key: String,
        /// What it says.
        meaning: &'static str,
    },
    /// A value that cannot be.
    #[error("`{key}` cannot be {value}: {why}")]
    Impossible {
        /// The parameter.
        key: String,
        /// As it was given.
        value: String,
        /// What it can be.
        why: String,
    },
    /// No device of that name in the profile.
    #[error("there is no device `{name}` in profile `{profile}`; it has {}", known.join(", "))]
    UnknownDevice {
        /// As it was written.
        name: String,
        /// The profile.
        profile: String,
        /// Those that there are.
        known: Vec<String>,
    },
    /// No profile of that name comes with this crate.
    #[error("there is no profile `{name}`; there are {known}, and your own from a file")]
    UnknownProfile {
        /// As it was written.
        name: String,
        /// Those that there are.
        known: String,
    },
    /// What a sweep goes over.
    #[error(
        "`{text}` is nothing to go over: {why}; write `capacity=10..100:10` or `wait=0,20,50`, with any parameter's name"
    )]
    Axis {
        /// As it was written.
        text: String,
        /// What is wrong.
        why: String,
    },
    /// More than this would end in a sensible time.
    #[error("{what}: {count} are too many, {most} at most; {remedy}")]
    TooMuch {
        /// Of what.
        what: &'static str,
        /// How many.
        count: u64,
        /// How many there may be.
        most: u64,
        /// What to do.
        remedy: &'static str,
    },
    /// A trace without a read.
    #[error(
        "the trace has no such reads, so there is nothing to simulate; record one of the program at work, or name other files"
    )]
    EmptyTrace,
    /// Targets that say what cannot be.
    #[error("target `{name}`: {why}")]
    Target {
        /// Its name.
        name: String,
        /// What is wrong, and what would be right.
        why: String,
    },
    /// No chart.
    #[cfg(feature = "plots")]
    #[error(transparent)]
    Plot(#[from] crate::plot::Error),
}

/// An error if there are more than end in a sensible time.
pub(super) fn at_most(
    what: &'static str,
    count: u64,
    most: u64,
    remedy: &'static str,
) -> Result<(), Error> {
    if count <= most { Ok(()) } else { Err(Error::TooMuch { what, count, most, remedy }) }
}
