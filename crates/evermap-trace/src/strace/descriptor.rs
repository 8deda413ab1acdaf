//! Descriptors in strace's arguments: the number, and its target with `-y`.

use std::borrow::Cow;

use super::line::decoration_end;
use crate::lines::escaped;

/// Descriptor such as `3</etc/passwd>`.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Descriptor<'a> {
    pub number: i32,
    /// Target, or `None` without `-y`.
    pub target: Option<Target<'a>>,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Target<'a> {
    /// Regular file or block device.
    File(Cow<'a, str>),
    /// Socket, pipe, terminal, or pseudo file of the kernel.
    NotFile,
}

/// Parses `3`, `3</path>`, `3</path>(deleted)`, `1</dev/null<char 1:3>>`, `8<TCP:[...]>`.
pub(super) fn descriptor(text: &str) -> Option<Descriptor<'_>> {
    let end = text.bytes().take_while(u8::is_ascii_digit).count();
    let number = text[..end].parse().ok()?;
    let rest = &text[end..];
    let target = match rest.starts_with('<') {
        false => None,
        true => {
            let close = decoration_end(rest.as_bytes(), 0);
            Some(target(rest.get(1..close).unwrap_or_default()))
        }
    };
    Some(Descriptor { number, target })
}

fn target(text: &str) -> Target<'_> {
    // With `-yy`, the device follows the path.
    let (path, device) = text.split_once('<').unwrap_or((text, ""));
    // The kernel appends ` (deleted)` to the path. Older versions of strace write it after the
    // bracket.
    let path = unescaped(path.strip_suffix(" (deleted)").unwrap_or(path));
    match path.starts_with('/') && !device.starts_with("char") && may_be_stored(&path) {
        true => Target::File(path),
        false => Target::NotFile,
    }
}

/// Returns true if the path may be on storage. False for terminals, `/dev/null` and pseudo files of
/// the kernel.
pub(super) fn may_be_stored(path: &str) -> bool {
    let is_pseudo = ["/proc/", "/sys/", "/memfd:", "/dev/pts/", "/dev/tty"];
    let is_device = [
        "/dev/null",
        "/dev/zero",
        "/dev/full",
        "/dev/random",
        "/dev/urandom",
        "/dev/ptmx",
        "/dev/console",
    ];
    !is_pseudo.iter().any(|start| path.starts_with(start)) && !is_device.contains(&path)
}

/// Returns the contents of a quoted string, or `None` for other text. A truncated string
/// (`"abc"...`) gives its visible part.
pub(super) fn string(text: &str) -> Option<Cow<'_, str>> {
    let inner = text.strip_prefix('"')?;
    let end = inner.rfind('"')?;
    Some(unescaped(&inner[..end]))
}

/// Decodes strace's escapes: letters as in C, `\376` and `\xfe`.
fn unescaped(text: &str) -> Cow<'_, str> {
    if !text.contains('\\') {
        return Cow::Borrowed(text);
    }
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        if byte != b'\\' {
            bytes.push(byte);
            continue;
        }
        let (byte, used) = escape(rest);
        bytes.push(byte);
        rest = &rest[used..];
    }
    Cow::Owned(escaped(&bytes).into_owned())
}

/// Decodes the escape after a backslash. Returns the byte and the number of characters used.
fn escape(rest: &[u8]) -> (u8, usize) {
    let octal = rest.iter().take(3).take_while(|digit| matches!(digit, b'0'..=b'7')).count();
    let value = |digits: &[u8], radix| {
        let digits = std::str::from_utf8(digits).unwrap_or_default();
        // Values above 255 are not valid in strace's output; any byte will do.
        u32::from_str_radix(digits, radix).unwrap_or(0) as u8
    };
    match rest.first() {
        None => (b'\\', 0),
        Some(_) if octal > 0 => (value(&rest[..octal], 8), octal),
        Some(b'x') => {
            let digits = rest[1..].iter().take(2).take_while(|d| d.is_ascii_hexdigit()).count();
            (value(&rest[1..=digits], 16), digits + 1)
        }
        Some(b'n') => (b'\n', 1),
        Some(b't') => (b'\t', 1),
        Some(b'r') => (b'\r', 1),
        Some(b'f') => (0x0c, 1),
        Some(b'v') => (0x0b, 1),
        Some(&other) => (other, 1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(text: &str) -> Option<String> {
        match descriptor(text)?.target? {
            Target::File(path) => Some(path.into_owned()),
            Target::NotFile => None,
        }
    }

    #[test]
    fn paths_are_unescaped() {
        assert_eq!(file(r#"3</tmp/a\76b\74c d\"e.txt>"#).unwrap(), "/tmp/a>b<c d\"e.txt");
        assert_eq!(file(r"3</tmp/n\nl\377\303\244>").unwrap(), "/tmp/n\nl\\xff\u{e4}");
        assert_eq!(file("5</tmp/gone>(deleted)").unwrap(), "/tmp/gone");
        assert_eq!(file("5</tmp/gone (deleted)>").unwrap(), "/tmp/gone");
        assert_eq!(file("5</dev/vda<block 254:0>>").unwrap(), "/dev/vda");
        assert_eq!(file(r"5</tmp/\>").unwrap(), "/tmp/\\");
    }

    #[test]
    fn targets_without_storage_are_not_files() {
        for text in [
            "1</dev/pts/0<char 136:0>>",
            "0</dev/null>",
            "3<pipe:[746243]>",
            "8<UNIX-STREAM:[748106->748107]>",
            "8<anon_inode:[eventpoll]>",
            "4</proc/self/maps>",
            "7</dev/input/event0<char 13:64>>",
        ] {
            let found = descriptor(text).unwrap();
            assert_eq!(found.target, Some(Target::NotFile), "{text}");
        }
        assert_eq!(descriptor("3").unwrap().target, None);
        for none in ["", "-1", "AT_FDCWD</tmp>", "NULL", "99999999999"] {
            assert_eq!(descriptor(none), None, "{none}");
        }
    }
}
