//! Interface between a format's parser and the loop that feeds lines to it.

use crate::collect::Collector;

/// Parser of a format, line by line.
pub(crate) trait Parser {
    /// Parses a line that is not empty. Returns false if it is not a line of the format.
    fn take(&mut self, line: &str, collector: &mut Collector) -> bool;

    /// Called after the last line: adds events that are still pending.
    fn end(&mut self, _: &mut Collector) {}
}
