//! Reads lines of bounded length as text. Invalid UTF-8 is escaped and long lines are skipped;
//! neither ends the reading.

use std::borrow::Cow;
use std::io::{self, BufRead};

/// Maximum length of a line, well above any valid one. The longest are those of strace with a path
/// of 4,096 bytes, each escaped as `\377`, twice.
pub(crate) const LINE_BYTES_MAX: usize = 64 * 1024;

/// Line of a trace.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Line<'a> {
    /// A line without its line ending.
    Text {
        /// The text, with invalid UTF-8 escaped.
        text: Cow<'a, str>,
        /// True if the line ended in a line feed, so that nothing is missing.
        is_whole: bool,
    },
    /// Beginning of a line longer than [`LINE_BYTES_MAX`].
    TooLong(Cow<'a, str>),
}

/// Reads and counts lines.
#[derive(Debug)]
pub(crate) struct Lines<R> {
    reader: R,
    buffer: Vec<u8>,
    number: u64,
}

impl<R: BufRead> Lines<R> {
    pub fn new(reader: R) -> Self {
        Self { reader, buffer: Vec::new(), number: 0 }
    }

    /// Returns the number of lines read.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Returns the next line and its number, from 1, or `None` at the end. Stores at most
    /// [`LINE_BYTES_MAX`] of a line.
    pub fn next(&mut self) -> io::Result<Option<(u64, Line<'_>)>> {
        self.buffer.clear();
        let mut is_too_long = false;
        let mut is_whole = false;
        let mut is_any = false;
        while !is_whole {
            let available = match self.reader.fill_buf() {
                Ok(available) => available,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            if available.is_empty() {
                break;
            }
            is_any = true;
            let end = available.iter().position(|&byte| byte == b'\n');
            let taken = end.unwrap_or(available.len());
            let room = LINE_BYTES_MAX - self.buffer.len();
            self.buffer.extend_from_slice(&available[..taken.min(room)]);
            is_too_long |= taken > room;
            is_whole = end.is_some();
            self.reader.consume(taken + usize::from(is_whole));
        }
        if !is_any {
            return Ok(None);
        }
        self.number += 1;
        if is_whole && self.buffer.last() == Some(&b'\r') {
            self.buffer.pop();
        }
        let text = escaped(&self.buffer);
        let line = match is_too_long {
            true => Line::TooLong(text),
            false => Line::Text { text, is_whole },
        };
        Ok(Some((self.number, line)))
    }
}

/// Escapes invalid UTF-8 as `\xff`, so that different names stay different.
pub(crate) fn escaped(bytes: &[u8]) -> Cow<'_, str> {
    if let Ok(text) = std::str::from_utf8(bytes) {
        return Cow::Borrowed(text);
    }
    let mut text = String::with_capacity(bytes.len() + 16);
    for chunk in bytes.utf8_chunks() {
        text.push_str(chunk.valid());
        for byte in chunk.invalid() {
            text.push_str(&format!("\\x{byte:02x}"));
        }
    }
    Cow::Owned(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(bytes: &[u8], buffer_bytes: usize) -> Vec<String> {
        let mut lines = Lines::new(io::BufReader::with_capacity(buffer_bytes, bytes));
        let mut all = Vec::new();
        while let Some((_, line)) = lines.next().unwrap() {
            all.push(match line {
                Line::Text { text, is_whole: true } => text.into_owned(),
                Line::Text { text, is_whole: false } => format!("cut:{text}"),
                Line::TooLong(text) => format!("long:{}", text.len()),
            });
        }
        all
    }

    #[test]
    fn lines_end_in_lf_or_crlf_and_the_last_may_be_incomplete() {
        for buffer_bytes in [1, 2, 3, 64] {
            let lines = all(b"a\r\n\n\xff\xc3\xa4\nb\rc\nend\r", buffer_bytes);
            assert_eq!(lines, ["a", "", "\\xff\u{e4}", "b\rc", "cut:end\r"]);
        }
        assert!(all(b"", 8).is_empty());
    }

    #[test]
    fn a_huge_line_is_skipped_and_not_held() {
        let mut bytes = vec![b'x'; 3 << 20];
        bytes.extend_from_slice(b"\nnext\n");
        assert_eq!(all(&bytes, 4_096), [format!("long:{LINE_BYTES_MAX}"), "next".into()]);
        let mut lines = Lines::new(&bytes[..]);
        lines.next().unwrap();
        assert!(lines.buffer.capacity() <= 2 * LINE_BYTES_MAX);
    }

    #[test]
    fn a_line_of_exactly_the_maximum_length_is_complete() {
        let mut bytes = vec![b'x'; LINE_BYTES_MAX];
        bytes.push(b'\n');
        assert_eq!(all(&bytes, 100)[0].len(), LINE_BYTES_MAX);
    }
}
