//! Mounts, parsed from `/proc/self/mountinfo`.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

/// One mount.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mount {
    /// Directory of the file system that is mounted at `at`.
    pub(crate) root: PathBuf,
    /// Mount point.
    pub(crate) at: PathBuf,
    /// Type of the file system: `ext4`, `cgroup2`.
    pub(crate) system: String,
    /// Options of the mount and of the file system: `rw`, `cpuset`.
    pub(crate) options: Vec<String>,
}

impl Mount {
    pub(crate) fn has(&self, option: &str) -> bool {
        self.options.iter().any(|own| own == option)
    }
}

/// Parses all mounts in order; of two mounts at one place, the later one is visible. Skips invalid
/// lines.
pub(crate) fn parse(text: &str) -> Vec<Mount> {
    text.lines().filter_map(mount).collect()
}

/// Parses `36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext3 /dev/root rw,errors=continue`.
fn mount(line: &str) -> Option<Mount> {
    let (of_mount, of_system) = line.split_once(" - ")?;
    let mut of_mount = of_mount.split(' ').skip(3);
    let (root, at, options) = (of_mount.next()?, of_mount.next()?, of_mount.next()?);
    let mut of_system = of_system.split(' ');
    let (system, more) = (of_system.next()?, of_system.nth(1).unwrap_or_default());
    let options = options.split(',').chain(more.split(','));
    Some(Mount {
        root: unescape(root),
        at: unescape(at),
        system: system.to_owned(),
        options: options.filter(|option| !option.is_empty()).map(str::to_owned).collect(),
    })
}

/// Decodes a path. The kernel writes blanks, tabs, line feeds and backslashes as three octal
/// digits.
fn unescape(text: &str) -> PathBuf {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&first, after)) = rest.split_first() {
        let escaped = (first == b'\\').then(|| after.get(..3)).flatten();
        let octal = escaped
            .and_then(|digits| std::str::from_utf8(digits).ok())
            .and_then(|digits| u8::from_str_radix(digits, 8).ok());
        match octal {
            Some(byte) => {
                bytes.push(byte);
                rest = &after[3..];
            }
            None => {
                bytes.push(first);
                rest = after;
            }
        }
    }
    OsString::from_vec(bytes).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn optional_fields_and_escapes_are_parsed() {
        let text = "36 35 98:0 /a\\040b /mnt\\134\\0112 rw,noatime master:1 propagate_from:2 - ext3 /dev/root rw,errors=continue\n\
                    nonsense\n1 2 3 - x\n";
        let all = parse(text);
        assert_eq!(all.len(), 1);
        assert_eq!(all[0].root, PathBuf::from("/a b"));
        assert_eq!(all[0].at, PathBuf::from("/mnt\\\t2"));
        assert_eq!(all[0].system, "ext3");
        assert!(all[0].has("noatime") && all[0].has("errors=continue") && !all[0].has("ro"));
    }
}
