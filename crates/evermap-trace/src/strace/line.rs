//! Parses a line of strace into process, time, and the call's name, arguments, result and duration.
//! Knows strace's quoting, but not the meaning of calls.

use crate::numbers::seconds_in_ns;

/// Largest process id in Linux.
const PROCESS_MAX: u32 = 1 << 22;
/// Earlier times are not from `-ttt`: `-r` prints the time since the previous line in the same
/// form.
const EPOCH_NS_MIN: u64 = 1_000_000 * 1_000_000_000;

/// Common beginning of all lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Line<'a> {
    /// `None` without `-f`.
    pub process: Option<u32>,
    pub at_ns: u64,
    pub rest: &'a str,
}

/// Parses `12358 1795464441.162362 ...`, `[pid 12358] 1795464441.162362 ...`, or `1795464441.162362
/// ...`.
pub(super) fn split(line: &str) -> Option<Line<'_>> {
    let line = line.trim_start();
    let (process, line) = match line.strip_prefix("[pid") {
        Some(rest) => {
            let (process, rest) = rest.split_once(']')?;
            (Some(process.trim()), rest.trim_start())
        }
        None => match line.split_once(' ')? {
            (word, rest) if word.bytes().all(|byte| byte.is_ascii_digit()) => {
                (Some(word), rest.trim_start())
            }
            _ => (None, line),
        },
    };
    let process = match process {
        Some(word) => Some(word.parse().ok().filter(|&process| process <= PROCESS_MAX)?),
        None => None,
    };
    let (time, rest) = line.split_once(' ')?;
    let at_ns = seconds_in_ns(time).filter(|&at_ns| at_ns >= EPOCH_NS_MIN && time.contains('.'))?;
    Some(Line { process, at_ns, rest: rest.trim_start() })
}

/// Call, complete or unfinished.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Call<'a> {
    pub name: &'a str,
    pub arguments: Vec<&'a str>,
    /// Text after `=`, without the duration. `None` if the call never ended.
    pub result: Option<&'a str>,
    pub duration_ns: Option<u64>,
}

impl Call<'_> {
    /// Returns an argument, or an empty string if there are fewer.
    pub fn argument(&self, index: usize) -> &str {
        self.arguments.get(index).copied().unwrap_or_default()
    }

    /// Returns the result as a number. `None` if the call failed or never ended.
    pub fn value(&self) -> Option<u64> {
        leading_number(self.result?)
    }
}

/// Parses the digits at the beginning of a text. `None` if there are none, as for `-1` and `?`.
pub(super) fn leading_number(text: &str) -> Option<u64> {
    if let Some(hexadecimal) = text.strip_prefix("0x") {
        let end = hexadecimal.bytes().take_while(u8::is_ascii_hexdigit).count();
        return u64::from_str_radix(&hexadecimal[..end], 16).ok();
    }
    let end = text.bytes().take_while(u8::is_ascii_digit).count();
    text[..end].parse().ok()
}

/// Parses `name(arguments) = result <duration>`, or an unfinished call up to the end of its
/// arguments.
pub(super) fn call(text: &str) -> Option<Call<'_>> {
    let open = text.find('(')?;
    let name = &text[..open];
    let is_name = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    if name.is_empty() || !name.bytes().all(is_name) {
        return None;
    }
    let (arguments, rest) = arguments(&text[open + 1..]);
    let Some(rest) = rest else {
        return Some(Call { name, arguments, result: None, duration_ns: None });
    };
    let result = rest.trim_start().strip_prefix('=')?.trim();
    let (result, duration_ns) = match result.rsplit_once('<') {
        Some((before, duration)) => match duration.strip_suffix('>').and_then(seconds_in_ns) {
            Some(ns) => (before.trim_end(), Some(ns)),
            None => (result, None),
        },
        None => (result, None),
    };
    Some(Call { name, arguments, result: Some(result), duration_ns })
}

/// Splits the arguments at commas. Also returns the text after the closing bracket, or `None`
/// without one.
fn arguments(text: &str) -> (Vec<&str>, Option<&str>) {
    let bytes = text.as_bytes();
    let mut arguments = Vec::new();
    let (mut begin, mut at, mut depth) = (0, 0, 0_u32);
    while let Some(&byte) = bytes.get(at) {
        match byte {
            b'"' => at = string_end(bytes, at),
            b'<' if is_decoration(bytes, at) => at = decoration_end(bytes, at),
            b'/' if bytes[at..].starts_with(b"/*") => at = comment_end(text, at),
            b'(' | b'[' | b'{' => depth += 1,
            b')' if depth == 0 => {
                push(&mut arguments, &text[begin..at]);
                return (arguments, Some(&text[at + 1..]));
            }
            b')' | b']' | b'}' => depth = depth.saturating_sub(1),
            b',' if depth == 0 => {
                push(&mut arguments, &text[begin..at]);
                begin = at + 1;
            }
            _ => {}
        }
        at += 1;
    }
    push(&mut arguments, text.get(begin..).unwrap_or_default());
    (arguments, None)
}

fn push<'a>(arguments: &mut Vec<&'a str>, text: &'a str) {
    let text = text.trim();
    if !text.is_empty() {
        arguments.push(text);
    }
}

/// Returns the index of the closing quote of the string at `at`, or the length of the text.
fn string_end(bytes: &[u8], at: usize) -> usize {
    let mut index = at + 1;
    while let Some(&byte) = bytes.get(index) {
        match byte {
            b'\\' => index += 1,
            b'"' => return index,
            _ => {}
        }
        index += 1;
    }
    bytes.len()
}

fn comment_end(text: &str, at: usize) -> usize {
    text[at..].find("*/").map_or(text.len(), |length| at + length + 1)
}

/// Returns true if this bracket opens a descriptor's target, as in `3</etc/passwd>` and
/// `AT_FDCWD</tmp>`. False for comparisons and shifts.
fn is_decoration(bytes: &[u8], at: usize) -> bool {
    let is_after_descriptor = at > 0 && (bytes[at - 1].is_ascii_digit() || bytes[at - 1] == b'D');
    is_after_descriptor && bytes.get(at + 1).is_some_and(|&byte| byte != b'<' && byte != b'=')
}

/// Returns the index at which the target that begins at `at` ends. In paths, `<` and `>` are
/// escaped. Addresses of sockets contain `->` in square brackets.
pub(super) fn decoration_end(bytes: &[u8], at: usize) -> usize {
    let (mut index, mut depth, mut square) = (at + 1, 0_u32, 0_u32);
    let is_path = bytes.get(index) == Some(&b'/');
    while let Some(&byte) = bytes.get(index) {
        match byte {
            b'"' if !is_path => index = string_end(bytes, index),
            b'[' if !is_path => square += 1,
            b']' if !is_path => square = square.saturating_sub(1),
            b'<' => depth += 1,
            b'>' if square > 0 => {}
            b'>' if depth == 0 => return index,
            b'>' => depth -= 1,
            _ => {}
        }
        index += 1;
    }
    bytes.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_with_and_without_a_process_are_parsed() {
        let at_ns = 1_795_464_441_162_362_000;
        let rest = "read(3) = 0";
        for (line, process) in [
            ("12358 1795464441.162362 read(3) = 0", Some(12_358)),
            ("71    1795464441.162362 read(3) = 0", Some(71)),
            ("[pid 12358] 1795464441.162362 read(3) = 0", Some(12_358)),
            ("[pid   123] 1795464441.162362 read(3) = 0", Some(123)),
            ("1795464441.162362 read(3) = 0", None),
        ] {
            assert_eq!(split(line), Some(Line { process, at_ns, rest }), "{line}");
        }
        for none in [
            "",
            "read(3) = 0",
            "12:30:01 read(3) = 0",
            "     0.000123 read(3) = 0",
            "99999999 1795464441.162362 read(3) = 0",
            "1795464441 read(3) = 0",
        ] {
            assert_eq!(split(none), None, "{none}");
        }
    }

    #[test]
    fn quotes_brackets_and_decorations_do_not_end_arguments() {
        let text = r#"read(3</tmp/a\76b (x), y>(deleted), "\"), = 1 <0.1>"..., {a=1, b=[2, 3]}, 32 /* a, b) */) = 7 <0.000010>"#;
        let call = call(text).unwrap();
        assert_eq!(call.name, "read");
        assert_eq!(call.argument(0), r"3</tmp/a\76b (x), y>(deleted)");
        assert_eq!(call.argument(1), r#""\"), = 1 <0.1>"..."#);
        assert_eq!(call.argument(2), "{a=1, b=[2, 3]}");
        assert_eq!(call.argument(3), "32 /* a, b) */");
        assert_eq!((call.value(), call.duration_ns), (Some(7), Some(10_000)));
    }

    #[test]
    fn sockets_and_devices_in_targets_are_parsed() {
        let text = r#"sendto(8<TCPv6:[[::1]:80->[::1]:90]>, "x", 1, 0</dev/null<char 1:3>>, 9<UNIX-STREAM:[7->8,"/a>b"]>) = -1 EPIPE (Broken pipe) <0.000018>"#;
        let call = call(text).unwrap();
        assert_eq!(call.arguments.len(), 5);
        assert_eq!(call.argument(3), "0</dev/null<char 1:3>>");
        assert_eq!(call.argument(4), r#"9<UNIX-STREAM:[7->8,"/a>b"]>"#);
        assert_eq!((call.value(), call.duration_ns), (None, Some(18_000)));
    }

    #[test]
    fn an_unfinished_call_has_no_result() {
        let cut = call(r#"read(3</a>, "ab"#).unwrap();
        assert_eq!((cut.arguments, cut.result), (vec!["3</a>", "\"ab"], None));
        assert_eq!(call("exit_group(0)   = ?").unwrap().value(), None);
        let hexadecimal = call("mmap(NULL, 5) = 0x7f00<0.1>").unwrap();
        assert_eq!(hexadecimal.value(), Some(0x7f00));
        for none in ["", "+++ exited", "(1) = 2", "a b(1) = 2", "read(3) 4"] {
            assert_eq!(call(none), None, "{none}");
        }
    }
}
