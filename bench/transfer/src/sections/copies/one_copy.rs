//! What one copy of a file's bytes takes on this machine, measured in each round.
//!
//! It depends on what lies in the processor's caches: between two files' pages neither side does, with a buffer of 128 KiB one
//! side is in the second-level cache, with one of 8 KiB in the first. So there is a unit for each, from programs that are
//! known to copy so often: `map-write` once, from page to page; `dd` twice, into its buffer and out of it. Which of them fits a
//! method is known by how it works, and says nothing of how often it copies.

use std::ffi::OsString;
use std::path::Path;
use std::process::Command;

use common::Outcome;
use common::process::{Failure, Job, find_program};
use common::profile::Sampler;

use crate::subjects::Subject;

/// Copies of a byte by a program with a buffer.
pub const COPIES_BY_BUFFER: f64 = 2.0;
/// Those that move bytes through some hundred kilobytes at a time.
const BUFFERED: [&str; 6] =
    ["read-write", "dd bs=128K", "dd bs=1M", "cp --reflink=never", "pv", "rsync -W"];
/// And those through a few; all others go from page to page, if at all. (A ring's buffers are megabytes.)
const BARELY_BUFFERED: [&str; 1] = ["socat"];

/// The time of one copy, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct OneCopy {
    pub through_small_buffer_ns: f64,
    pub through_buffer_ns: f64,
    pub page_to_page_ns: f64,
}

impl OneCopy {
    /// By three copies of `source`, before each of which `prepare` makes everything ready.
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
            let mut command = Command::new(find_program("dd").ok_or("there is no `dd`")?);
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

    /// The unit that fits a subject, or the engines that it used.
    pub fn ns(&self, subject: &Subject, engines: Option<&str>) -> f64 {
        let name = engines.unwrap_or(&subject.name);
        let is_any_of = |names: &[&str]| name.split(" + ").any(|part| names.contains(&part));
        if is_any_of(&BARELY_BUFFERED) {
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
    fn each_method_is_held_against_the_unit_that_fits_it() {
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
