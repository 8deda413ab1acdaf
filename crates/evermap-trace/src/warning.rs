//! Warnings about a trace: some of each kind with their lines, and the number of further ones.

use std::fmt;

/// Number of warnings of each kind that are stored.
const LISTED_MAX: usize = 8;
/// Number of characters of the offending text that are shown.
const SHOWN_CHARS_MAX: usize = 120;

/// Kind of problem in a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Problem {
    /// Not a line of the format; left out.
    Malformed,
    /// Longer than any valid line of the format; left out.
    LineTooLong,
    /// Invalid UTF-8. It is shown as `\xff`, and the line is read.
    NotText,
    /// The last line is incomplete: the recording was truncated.
    Truncated,
    /// The time is before that of an earlier line; sorted.
    Unordered,
    /// Request without an answer. Kept without a latency and with the requested length, or left out
    /// if that is unknown.
    Unfinished,
    /// Answer without a request, which was made before the recording began. Left out, or kept
    /// without the fields of the request.
    Unstarted,
    /// The offset, or the end of the range, is beyond 2^63. Kept without an offset.
    OffsetTooLarge,
    /// More bytes than one request can have; left out.
    LengthTooLarge,
    /// Read or write of 0 bytes; kept.
    ZeroLength,
    /// The trace does not contain the offset in the file. Kept without an offset.
    UnknownOffset,
    /// An assumption was made; the text names it.
    Assumed,
    /// The program did something that this trace does not show.
    Unseen,
    /// More events than the limit; the rest was left out.
    TooManyEvents,
}

impl Problem {
    fn message(self) -> &'static str {
        match self {
            Problem::Malformed => "left out, not a line of this format",
            Problem::LineTooLong => "left out, the line is too long",
            Problem::NotText => "invalid UTF-8",
            Problem::Truncated => "left out, the last line is incomplete",
            Problem::Unordered => "earlier than the line before; sorted",
            Problem::Unfinished => "a request without an answer",
            Problem::Unstarted => "an answer without a request",
            Problem::OffsetTooLarge => "an offset beyond 2^63; kept without it",
            Problem::LengthTooLarge => "left out, more bytes than a request can have",
            Problem::ZeroLength => "a request of 0 bytes",
            Problem::UnknownOffset => "unknown offset in the file",
            Problem::Assumed => "assumed",
            Problem::Unseen => "not in this trace",
            Problem::TooManyEvents => "the rest is left out",
        }
    }
}

/// Problem in a trace, with its location.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
#[non_exhaustive]
pub struct Warning {
    /// Kind of problem.
    pub problem: Problem,
    /// Number of the line, from 1. `None` if the warning is about the whole trace, or about a
    /// recording, whose lines are not kept.
    pub line: Option<u64>,
    /// Beginning of the offending text.
    pub text: String,
    /// Number of further problems of this kind that are not listed. Set only in the last warning of
    /// a kind.
    pub and_more: u64,
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(line) = self.line {
            write!(f, "line {line}: ")?;
        }
        f.write_str(self.problem.message())?;
        if !self.text.is_empty() {
            write!(f, ": {}", self.text)?;
        }
        match self.and_more {
            0 => Ok(()),
            more => write!(f, " (and {more} more of this kind)"),
        }
    }
}

/// Warnings while they are collected.
#[derive(Debug, Default)]
pub(crate) struct Warnings {
    listed: Vec<Warning>,
}

impl Warnings {
    /// Adds a warning, or only counts it if enough of its kind are listed.
    pub fn add(&mut self, problem: Problem, line: Option<u64>, text: &str) {
        let mut alike = self.listed.iter_mut().filter(|warning| warning.problem == problem);
        let (count, last) = match alike.by_ref().enumerate().last() {
            Some((index, last)) => (index + 1, Some(last)),
            None => (0, None),
        };
        match last {
            Some(last) if count >= LISTED_MAX => last.and_more += 1,
            _ => self.listed.push(Warning { problem, line, text: excerpt(text), and_more: 0 }),
        }
    }

    pub fn first(&self) -> Option<&Warning> {
        self.listed.first()
    }

    pub fn into_listed(self) -> Vec<Warning> {
        self.listed
    }
}

/// Truncates text for a message, and escapes control characters.
pub(crate) fn excerpt(text: &str) -> String {
    let mut excerpt = String::new();
    for (index, character) in text.chars().enumerate() {
        if index == SHOWN_CHARS_MAX {
            excerpt.push_str(" ...");
            break;
        }
        match character.is_control() {
            true => excerpt.extend(character.escape_default()),
            false => excerpt.push(character),
        }
    }
    excerpt
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_million_warnings_of_one_kind_are_listed_briefly_and_counted() {
        let mut warnings = Warnings::default();
        for line in 1..=1_000_000 {
            warnings.add(Problem::Malformed, Some(line), "?");
        }
        warnings.add(Problem::Unordered, Some(3), "");
        let listed = warnings.into_listed();
        assert_eq!(listed.len(), LISTED_MAX + 1);
        let more: u64 = listed.iter().map(|warning| warning.and_more).sum();
        assert_eq!(more + LISTED_MAX as u64, 1_000_000);
        assert_eq!(listed[LISTED_MAX].problem, Problem::Unordered);
    }

    #[test]
    fn excerpts_are_short_and_have_no_control_characters() {
        let text = excerpt(&format!("\x1b[2J\0{}", "x".repeat(1 << 20)));
        assert!(text.starts_with("\\u{1b}[2J\\u{0}xxx"), "{text}");
        assert!(text.chars().count() < SHOWN_CHARS_MAX + 20);
    }
}
