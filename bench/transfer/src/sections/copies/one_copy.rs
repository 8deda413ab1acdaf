//! Measures the time of one copy of a file's bytes on this machine, in each round.
//!
//! The time depends on the processor's caches. A copy between the pages of two files has neither
//! side in a cache. A buffer of 128 KiB is in the second-level cache, and one of 8 KiB in the
//! first. So three times are measured, by programs whose number of copies is known. `map-write`
//! copies once, from page to page. `dd` copies twice, into its buffer and out of it, and runs with
//! both buffer sizes. The method's buffer determines which of the times applies to it.

use std::ffi::OsString;
use std::path::Path;
use std::process::Command;

use harness::Outcome;
use harness::process::{Failure, Job, find_program};
use harness::profile::Sampler;

use crate::subjects::Subject;

/// Copies of each byte by a program with a buffer.
pub const COPIES_BY_BUFFER: f64 = 2.0;
/// Subjects that move bytes through a buffer of about 100 KiB to 1 MiB.
const BUFFERED: [&str; 6] =
    ["read-write", "dd bs=128K", "dd bs=1M", "cp --reflink=never", "pv", "rsync -W"];
/// Subjects with a buffer of a few kilobytes. All subjects in neither list count as page to page:
/// they have no buffer, or several megabytes of buffers, as `uring` has.
const SMALL_BUFFERED: [&str; 1] = ["socat"];

/// The time of one copy, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct OneCopy {
    pub through_small_buffer_ns: f64,
    pub through_buffer_ns: f64,
    pub page_to_page_ns: f64,
}

impl OneCopy {
    /// Measures three copies of `source`; `prepare` runs before each.
    pub fn measure(
        sampler: &Sampler,
        own_folder: &Path,
        (source, destination): (&Path, &Path),
        prepare: impl Fn() -> Outcome,
    ) -> Outcome<Result<OneCopy, Failure>> {
        let of = |command: Command, copies: f64| -> Outcome<Result<f64, Failure>> {
            prepare()?;
            Ok(sampler.profile(Job::new(command))?.map(|profile| profile.copy_ns() / copies))
        };
        let dd = |block: &str| -> Outcome<Command> {
            let mut command = Command::new(find_program("dd").ok_or("`dd` is not installed")?);
            let operand = |name: &str, path: &Path| {
                let mut operand = OsString::from(name);
                operand.push(path);
                operand
            };
            command.args([operand("if=", source), operand("of=", destination)]);
            command.args([block, "status=none"]);
            Ok(command)
        };
        let mut map_write = Command::new(own_folder.join("map-write"));
        map_write.args([source, destination]);
        let small = of(dd("bs=8K")?, COPIES_BY_BUFFER)?;
        let buffer = of(dd("bs=128K")?, COPIES_BY_BUFFER)?;
        let page = of(map_write, 1.0)?;
        Ok((|| {
            Ok(OneCopy {
                through_small_buffer_ns: small?,
                through_buffer_ns: buffer?,
                page_to_page_ns: page?,
            })
        })())
    }

    /// Returns the time of one copy by this subject. `engines` are those it used (`splice +
    /// read-write`); if they are unknown, the subject's name decides.
    pub fn ns(&self, subject: &Subject, engines: Option<&str>) -> f64 {
        let name = engines.unwrap_or(&subject.name);
        let is_any_of = |names: &[&str]| name.split(" + ").any(|part| names.contains(&part));
        if is_any_of(&SMALL_BUFFERED) {
            self.through_small_buffer_ns
        } else if is_any_of(&BUFFERED) {
            self.through_buffer_ns
        } else {
            self.page_to_page_ns
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_buffer_of_a_method_determines_the_time_of_a_copy() {
        let one =
            OneCopy { through_small_buffer_ns: 0.5, through_buffer_ns: 1.0, page_to_page_ns: 2.0 };
        let subject = |engine| Subject::evermap(Path::new("evermap"), engine, None);
        assert_eq!(one.ns(&subject(Some("read-write")), None), 1.0);
        for engine in ["splice", "mmap-write", "uring", "uring-splice", "copy-file-range"] {
            assert_eq!(one.ns(&subject(Some(engine)), None), 2.0);
        }
        assert_eq!(one.ns(&subject(None), Some("splice + read-write")), 1.0);
        assert_eq!(one.ns(&subject(None), Some("splice")), 2.0);
        assert_eq!(one.ns(&subject(None), Some("socat")), 0.5);
    }
}
