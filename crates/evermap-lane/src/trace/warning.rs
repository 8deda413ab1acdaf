//! What a trace has that could not be read as it stands: some of each kind by line, the rest counted.

use std::fmt;

/// Of each kind, this many are kept whole.
const LISTED_MAX: usize = 8;
/// Of the text that a warning is about, this much is shown.
const SHOWN_CHARS_MAX: usize = 120;

/// What may be wrong with a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Problem {
    /// It is no line of the format; left out.
    Malformed,
    /// It is longer than any line of the format; left out.
    LineTooLong,
    /// It has bytes that are no text; they are shown as `\xff`, and the line is read.
    NotText,
    /// The last line has no end and is no request: the recording was cut.
    Truncated,
    /// Its time lies before that of a line before it; sorted.
    Unordered,
    /// A request without an answer; kept without latency and with the length that was asked for, or left out when even that is not known.
    Unfinished,
    /// An answer without a request: it was made before the recording began; left out, or kept without what only the request would tell.
    Unstarted,
    /// An offset, or the end of the range that begins there, beyond 2^63; the request is kept without it.
    OffsetTooLarge,
    /// More bytes than one request can have; left out.
    LengthTooLarge,
    /// A read or write of nothing; kept.
    ZeroLength,
    /// The trace doesn't tell where in the file it was; kept without.
    UnknownOffset,
    /// Something was taken as other than it is; the text says what.
    Assumed,
    /// The program did something that such a trace does not show.
    Unseen,
    /// More events than were asked for; the rest was left out.
    TooManyEvents,
}

impl Problem {
    fn says(self) -> &'static str {
        match self {
            Problem::Malformed => "left out, it is no line of this format",
            Problem::LineTooLong => "left out, the line is too long",
            Problem::NotText => "bytes that are no text",
            Problem::Truncated => "left out, the last line is cut",
            Problem::Unordered => "earlier than the line before; sorted",
            Problem::Unfinished => "a request without an answer",
            Problem::Unstarted => "an answer without a request",
            Problem::OffsetTooLarge => "an offset beyond 2^63; kept without",
            Problem::LengthTooLarge => "left out, more bytes than a request can have",
            Problem::ZeroLength => "a request of 0 bytes",
            Problem::UnknownOffset => "where in the file is not known",
            Problem::Assumed => "taken as",
            Problem::Unseen => "not in this trace",
            Problem::TooManyEvents => "the rest is left out",
        }
    }
}

/// Something that was noticed, where, and how often more.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
#[non_exhaustive]
pub struct Warning {
    /// Its kind.
    pub problem: Problem,
    /// In which line, from 1; none when it is about the whole, and of what was recorded here: its lines are not kept.
    pub line: Option<u64>,
    /// What stood there, cut.
    pub text: String,
    /// How many more of its kind there were that are not listed; only with the last of a kind.
    pub and_more: u64,
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(line) = self.line {
            write!(f, "line {line}: ")?;
        }
        f.write_str(self.problem.says())?;
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
pub(super) struct Warnings {
    listed: Vec<Warning>,
}

impl Warnings {
    /// Notes one; of a kind that has been listed often enough, only the number.
    pub fn add(&mut self, problem: Problem, line: Option<u64>, text: &str) {
        let mut alike = self.listed.iter_mut().filter(|warning| warning.problem == problem);
        let (count, last) = match alike.by_ref().enumerate().last() {
            Some((index, last)) => (index + 1, Some(last)),
            None => (0, None),
        };
        match last {
            Some(last) if count >= LISTED_MAX => last.and_more += 1,
            _ => self.listed.push(Warning { problem, line, text: shown(text), and_more: 0 }),
        }
    }

    pub fn first(&self) -> Option<&Warning> {
        self.listed.first()
    }

    pub fn into_listed(self) -> Vec<Warning> {
        self.listed
    }
}

/// Text for a message: cut, control characters escaped.
pub(super) fn shown(text: &str) -> String {
    let mut shown = String::new();
    for (index, character) in text.chars().enumerate() {
        if index == SHOWN_CHARS_MAX {
            shown.push_str(" ...");
            break;
        }
        match character.is_control() {
            true => shown.extend(character.escape_default()),
            false => shown.push(character),
        }
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_million_of_a_kind_are_a_few_and_a_number() {
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
    fn what_is_shown_is_short_and_has_no_control_characters() {
        let text = shown(&format!("\x1b[2J\0{}", "x".repeat(1 << 20)));
        assert!(text.starts_with("\\u{1b}[2J\\u{0}xxx"), "{text}");
        assert!(text.chars().count() < SHOWN_CHARS_MAX + 20);
    }
}
