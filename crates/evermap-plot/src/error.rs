//! Reasons why a chart is refused, and the limits of charts.

/// Reason why a chart cannot be drawn.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Invalid range of an axis.
    #[error(
        "the {axis} axis cannot range from {from} to {to}: use two finite numbers, the first below the second, and both above 0 on a logarithmic scale"
    )]
    Range {
        /// `x` or `y`.
        axis: &'static str,
        /// Begin of the range.
        from: f64,
        /// End of the range.
        to: f64,
    },
    /// Number of values and number of groups differ.
    #[error(
        "series `{series}` has {values} values for {groups} groups of bars: give one value per group, or NaN for a missing one"
    )]
    Unequal {
        /// Name of the series.
        series: String,
        /// Number of its values.
        values: usize,
        /// Number of groups.
        groups: usize,
    },
    /// Too many items to draw.
    #[error("too many {what}: {count}, at most {most}; draw fewer, or several charts")]
    TooMany {
        /// Kind of items.
        what: &'static str,
        /// Given number.
        count: usize,
        /// Maximum.
        most: usize,
    },
    /// The plotting library failed.
    #[error("cannot draw: {0}")]
    Drawing(String),
}

/// Limits that keep pictures small enough to open.
pub(crate) const SERIES_MAX: usize = 64;
pub(crate) const POINTS_MAX: usize = 1_000_000;

/// Refuses more than `most` items.
pub(crate) fn at_most(what: &'static str, count: usize, most: usize) -> Result<(), Error> {
    if count > most { Err(Error::TooMany { what, count, most }) } else { Ok(()) }
}
