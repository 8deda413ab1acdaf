//! `/proc/PID/mountinfo`: the mounts that a process sees.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

/// One mount.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mount {
    /// Number of the mount, as in `statx`.
    pub id: u64,
    /// Directory of the file system that is mounted at `at`.
    pub root: PathBuf,
    /// Mount point.
    pub at: PathBuf,
    /// Type of the file system: `ext4`, `cgroup2`.
    pub system: String,
    /// Options of the mount, separated by commas: `rw,noatime`.
    pub options: String,
    /// Options of the file system, separated by commas: `rw,errors=continue`.
    pub system_options: String,
}

impl Mount {
    /// Parses `36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext3 /dev/root rw,errors=continue`.
    fn parse(line: &str) -> Option<Self> {
        let (of_mount, of_system) = line.split_once(" - ")?;
        let mut of_mount = of_mount.split(' ');
        let id = of_mount.next()?.parse().ok()?;
        let mut of_mount = of_mount.skip(2);
        let (root, at, options) = (of_mount.next()?, of_mount.next()?, of_mount.next()?);
        let mut of_system = of_system.split(' ');
        let (system, more) = (of_system.next()?, of_system.nth(1).unwrap_or_default());
        Some(Mount {
            id,
            root: unescape(root),
            at: unescape(at),
            system: system.to_owned(),
            options: options.to_owned(),
            system_options: more.to_owned(),
        })
    }

    /// Returns true if the mount or its file system has this option.
    pub fn has(&self, option: &str) -> bool {
        self.options.split(',').any(|own| own == option) || self.system_has(option)
    }

    /// Returns true if the file system has this option, whatever the mount has.
    pub fn system_has(&self, option: &str) -> bool {
        self.system_options.split(',').any(|own| own == option)
    }
}

/// Parses all mounts in order; of two mounts at one place, the later one is visible.
///
/// ```
/// use evermap_observe::proc::mounts;
/// let all = mounts("36 35 98:0 / /mnt rw,noatime master:1 - ext3 /dev/root rw\n");
/// assert_eq!((all[0].at.as_path(), &*all[0].system), ("/mnt".as_ref(), "ext3"));
/// ```
pub fn mounts(text: &str) -> Vec<Mount> {
    text.lines().filter_map(Mount::parse).collect()
}

/// Returns the mounts that the calling thread sees, or none if `/proc` does not list them.
pub fn own_mounts() -> Vec<Mount> {
    let text = std::fs::read("/proc/thread-self/mountinfo").unwrap_or_default();
    mounts(&String::from_utf8_lossy(&text))
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
        let all = mounts(text);
        assert_eq!((all.len(), all[0].id), (1, 36));
        assert_eq!(all[0].root, PathBuf::from("/a b"));
        assert_eq!(all[0].at, PathBuf::from("/mnt\\\t2"));
        assert_eq!(all[0].system, "ext3");
        assert!(all[0].has("noatime") && all[0].has("errors=continue") && !all[0].has("ro"));
        assert!(all[0].system_has("rw") && !all[0].system_has("noatime"));
    }
}
