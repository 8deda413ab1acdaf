//! Figures that were measured once and are kept in a file, a line each.
//!
//! A convenience in the user's cache directory: whoever deletes such a file loses a measurement of a tenth of a second. Whatever goes
//! wrong with one, its user goes on without. So nothing here fails: what cannot be read is not there, what cannot be written is not kept.

use std::ffi::OsString;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::{fs, io, process};

/// What is older is measured again: disks are exchanged, kernels renewed.
const DAYS_MAX: u64 = 30;
/// More lines than this are somebody else's file.
const LINES_MAX: usize = 10_000;

/// A file of lines that are good for a month: words in an order that the user of it knows, and behind them the day they were written.
///
/// ```
/// # let place = tempfile::tempdir()?;
/// use evermap_observe::KeptLines;
/// let kept = KeptLines::at(place.path().join("figures"));
/// kept.replace("speed 7 ", ["speed 7 250".to_string()]);
/// kept.replace("speed 7 ", ["speed 7 300".to_string()]);
/// assert_eq!(kept.lines().collect::<Vec<_>>(), ["speed 7 300"]);
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug, Clone, Default)]
pub struct KeptLines {
    file: Option<PathBuf>,
}

impl KeptLines {
    /// The file `name` in `$XDG_CACHE_HOME/evermap`, else in `~/.cache/evermap`; nowhere, and nothing is kept, if the user has no
    /// cache directory. Touches no disk.
    pub fn of_user(name: &str) -> KeptLines {
        let set = |name: &str| std::env::var_os(name).filter(|value: &OsString| !value.is_empty());
        let directory = set("XDG_CACHE_HOME")
            .map(PathBuf::from)
            .or_else(|| set("HOME").map(|home| Path::new(&home).join(".cache")));
        KeptLines { file: directory.map(|directory| directory.join("evermap").join(name)) }
    }

    /// This file, which need not be there.
    pub fn at(file: PathBuf) -> KeptLines {
        KeptLines { file: Some(file) }
    }

    /// The lines that are no older than a month, without their days. Reads the file.
    pub fn lines(&self) -> impl Iterator<Item = String> + use<> {
        let lines = self.dated().into_iter();
        lines.filter_map(|line| fresh(&line, today()).map(str::to_string))
    }

    /// Puts `lines`, written today, in the place of those that begin with `prefix`, and drops what is too old. Reads the file, and
    /// writes it anew under its name. Two at it at once: one's lines are lost, none is torn.
    pub fn replace(&self, prefix: &str, lines: impl IntoIterator<Item = String>) {
        let Some(file) = &self.file else { return };
        let day = today();
        let mut kept = self.dated();
        kept.retain(|line| !line.starts_with(prefix) && fresh(line, day).is_some());
        kept.extend(lines.into_iter().map(|line| format!("{line} {day}")));
        if let Err(error) = written(file, &kept) {
            tracing::debug!(file = %file.display(), %error, "measurement not kept");
        }
    }

    fn dated(&self) -> Vec<String> {
        let text =
            self.file.as_ref().and_then(|file| fs::read_to_string(file).ok()).unwrap_or_default();
        text.lines().take(LINES_MAX).map(str::to_string).collect()
    }
}

fn written(file: &Path, lines: &[String]) -> io::Result<()> {
    // Threads of one process don't write into each other's.
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
        // What is left of it is of no use to anybody, and may be in the way of nobody.
        let _ = fs::remove_file(&temporary);
    }
    outcome
}

/// The line without its day, if that is not too long before `today`. A day in the future was written by a clock that was wrong.
fn fresh(line: &str, today: u64) -> Option<&str> {
    let (words, day) = line.rsplit_once(' ')?;
    let day: u64 = day.parse().ok()?;
    today.checked_sub(day).is_some_and(|age| age <= DAYS_MAX).then_some(words)
}

/// Days since 1970, as the system's clock has it.
fn today() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.map_or(0, |time| time.as_secs() / 86_400)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn lines(kept: &KeptLines) -> Vec<String> {
        kept.lines().collect()
    }

    #[test]
    fn what_begins_alike_is_replaced_and_the_rest_stays() {
        let directory = tempfile::tempdir().unwrap();
        let kept = KeptLines::at(directory.path().join("cache/figures"));
        assert_eq!(lines(&kept), [""; 0]);
        kept.replace("a 1 ", ["a 1 x".into(), "a 1 y".into()]);
        kept.replace("a 11 ", ["a 11 z".into()]);
        kept.replace("a 1 ", ["a 1 w".into()]);
        assert_eq!(lines(&kept), ["a 11 z", "a 1 w"]);
        let names = fs::read_dir(directory.path().join("cache")).unwrap();
        assert_eq!(names.count(), 1);
    }

    #[test]
    fn what_is_a_month_old_or_of_tomorrow_is_no_figure_and_goes_with_the_next() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("figures");
        let (old, last, tomorrow) = (today() - DAYS_MAX - 1, today() - DAYS_MAX, today() + 1);
        fs::write(&file, format!("a {old}\nb {last}\nc {tomorrow}\n")).unwrap();
        let kept = KeptLines::at(file.clone());
        assert_eq!(lines(&kept), ["b"]);
        kept.replace("d", ["d".into()]);
        assert_eq!(fs::read_to_string(&file).unwrap(), format!("b {last}\nd {}\n", today()));
    }

    #[test]
    fn a_file_of_anything_else_has_no_figures() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("figures");
        fs::write(&file, "a\nb x\n\u{0}\n\n 9999999999999999999999\n").unwrap();
        assert_eq!(lines(&KeptLines::at(file)), [""; 0]);
    }

    #[test]
    fn without_a_place_nothing_is_kept_and_nothing_fails() {
        let nowhere = KeptLines::default();
        nowhere.replace("a ", ["a 1".into()]);
        assert_eq!(lines(&nowhere), [""; 0]);
        let below_a_file = KeptLines::at("/proc/self/status/figures".into());
        below_a_file.replace("a ", ["a 1".into()]);
        assert_eq!(lines(&below_a_file), [""; 0]);
    }
}
