//! State file for measured figures: one figure a line.
//!
//! Files are in the user's cache directory. Deleting one only costs a new measurement of a tenth of
//! a second. The operations therefore never fail: an unreadable file counts as empty, and a failed
//! write is logged and ignored.

use std::ffi::OsString;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::{fs, io, process};

/// Older figures are measured again, because disks and kernels change.
const DAYS_MAX: u64 = 30;
/// Maximum number of lines read. A longer file was not written by this module.
const LINES_MAX: usize = 10_000;

/// File of lines that stay valid for a month. Each line holds words chosen by the caller, followed
/// by the day of writing.
///
/// ```
/// # let place = tempfile::tempdir()?;
/// use evermap_observe::StateFile;
/// let kept = StateFile::at(place.path().join("figures"));
/// kept.replace("speed 7 ", ["speed 7 250".to_string()]);
/// kept.replace("speed 7 ", ["speed 7 300".to_string()]);
/// assert_eq!(kept.lines().collect::<Vec<_>>(), ["speed 7 300"]);
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug, Clone, Default)]
pub struct StateFile {
    file: Option<PathBuf>,
}

impl StateFile {
    /// Opens the file `name` in `$XDG_CACHE_HOME/evermap`, or in `~/.cache/evermap`. Stores nothing
    /// if the user has no cache directory. Does not access the disk.
    pub fn of_user(name: &str) -> StateFile {
        let set = |name: &str| std::env::var_os(name).filter(|value: &OsString| !value.is_empty());
        let directory = set("XDG_CACHE_HOME")
            .map(PathBuf::from)
            .or_else(|| set("HOME").map(|home| Path::new(&home).join(".cache")));
        StateFile { file: directory.map(|directory| directory.join("evermap").join(name)) }
    }

    /// Opens `file`, which need not exist. Does not access the disk.
    pub fn at(file: PathBuf) -> StateFile {
        StateFile { file: Some(file) }
    }

    /// Returns the lines that are at most 30 days old, without their day. Reads the file.
    pub fn lines(&self) -> impl Iterator<Item = String> + use<> {
        let lines = self.dated_lines().into_iter();
        lines.filter_map(|line| unexpired(&line, today()).map(str::to_string))
    }

    /// Replaces all lines that begin with `prefix` by `lines`, dated today, and drops expired
    /// lines. Reads the file, writes a new one and renames it. If two processes replace lines at
    /// once, the lines of one can be lost, but no line is torn.
    pub fn replace(&self, prefix: &str, lines: impl IntoIterator<Item = String>) {
        let Some(file) = &self.file else { return };
        let day = today();
        let mut kept = self.dated_lines();
        kept.retain(|line| !line.starts_with(prefix) && unexpired(line, day).is_some());
        kept.extend(lines.into_iter().map(|line| format!("{line} {day}")));
        if let Err(error) = write_file(file, &kept) {
            tracing::debug!(file = %file.display(), %error, "cannot write the state file");
        }
    }

    fn dated_lines(&self) -> Vec<String> {
        let text =
            self.file.as_ref().and_then(|file| fs::read_to_string(file).ok()).unwrap_or_default();
        text.lines().take(LINES_MAX).map(str::to_string).collect()
    }
}

fn write_file(file: &Path, lines: &[String]) -> io::Result<()> {
    // Makes the temporary name unique among the threads of this process.
    static NEXT: AtomicU32 = AtomicU32::new(0);
    if let Some(directory) = file.parent() {
        fs::create_dir_all(directory)?;
    }
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let temporary = file.with_extension(format!("{}-{number}", process::id()));
    let outcome = fs::File::create(&temporary)
        .and_then(|mut out| lines.iter().try_for_each(|line| writeln!(out, "{line}")))
        .and_then(|()| fs::rename(&temporary, file));
    if outcome.is_err() {
        // The temporary file is useless now; removal is best effort.
        let _ = fs::remove_file(&temporary);
    }
    outcome
}

/// Returns the line without its day if it has not expired by `today`. A day in the future comes
/// from a wrong clock and counts as expired.
fn unexpired(line: &str, today: u64) -> Option<&str> {
    let (words, day) = line.rsplit_once(' ')?;
    let day: u64 = day.parse().ok()?;
    today.checked_sub(day).is_some_and(|age| age <= DAYS_MAX).then_some(words)
}

/// Returns the days since 1970 by the system clock.
fn today() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.map_or(0, |time| time.as_secs() / 86_400)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn lines(kept: &StateFile) -> Vec<String> {
        kept.lines().collect()
    }

    #[test]
    fn replace_changes_only_lines_with_the_prefix() {
        let directory = tempfile::tempdir().unwrap();
        let kept = StateFile::at(directory.path().join("cache/figures"));
        assert_eq!(lines(&kept), [""; 0]);
        kept.replace("a 1 ", ["a 1 x".into(), "a 1 y".into()]);
        kept.replace("a 11 ", ["a 11 z".into()]);
        kept.replace("a 1 ", ["a 1 w".into()]);
        assert_eq!(lines(&kept), ["a 11 z", "a 1 w"]);
        let names = fs::read_dir(directory.path().join("cache")).unwrap();
        assert_eq!(names.count(), 1);
    }

    #[test]
    fn expired_and_future_lines_are_ignored_and_dropped_by_replace() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("figures");
        let (old, last, tomorrow) = (today() - DAYS_MAX - 1, today() - DAYS_MAX, today() + 1);
        fs::write(&file, format!("a {old}\nb {last}\nc {tomorrow}\n")).unwrap();
        let kept = StateFile::at(file.clone());
        assert_eq!(lines(&kept), ["b"]);
        kept.replace("d", ["d".into()]);
        assert_eq!(fs::read_to_string(&file).unwrap(), format!("b {last}\nd {}\n", today()));
    }

    #[test]
    fn malformed_lines_are_ignored() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("figures");
        fs::write(&file, "a\nb x\n\u{0}\n\n 9999999999999999999999\n").unwrap();
        assert_eq!(lines(&StateFile::at(file)), [""; 0]);
    }

    #[test]
    fn a_file_that_cannot_be_written_is_ignored() {
        let nowhere = StateFile::default();
        nowhere.replace("a ", ["a 1".into()]);
        assert_eq!(lines(&nowhere), [""; 0]);
        let below_a_file = StateFile::at("/proc/self/status/figures".into());
        below_a_file.replace("a ", ["a 1".into()]);
        assert_eq!(lines(&below_a_file), [""; 0]);
    }
}
