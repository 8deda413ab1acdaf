//! What one copy of a file's bytes takes on this machine: two units, measured in each round.
//!
//! Copying between a file's pages and a small buffer has one side in the processor's cache, copying from page to page has
//! none, and takes up to twice as long. So there is a unit for each, both from programs that are known to copy so often:
//! `dd bs=128K` copies twice, into its buffer and out of it; `dd of=/dev/null` with one block as large as the file copies once,
//! from the file's pages to as many others. Which of both fits a method is known by how it works, and says nothing of
//! how often it copies.

use std::path::Path;
use std::process::Command;

use crate::Outcome;
use crate::process::{Failure, Job, find_program};
use crate::profile::Sampler;
use crate::subjects::Subject;

/// Copies of a byte by a program with a buffer.
pub const COPIES_BY_BUFFER: f64 = 2.0;
/// Those that move bytes through a small buffer; all others go from page to page, if at all.
const BUFFERED: [&str; 8] = [
    "read-write",
    "uring",
    "dd bs=128K",
    "dd bs=1M",
    "cp --reflink=never",
    "pv",
    "rsync -W",
    "socat",
];

/// The time of one copy, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct OneCopy {
    pub through_buffer_ns: f64,
    pub page_to_page_ns: f64,
}

impl OneCopy {
    /// The unit that fits a subject, or the engines that it used.
    pub fn ns(&self, subject: &Subject, engines: Option<&str>) -> f64 {
        match is_buffered(engines.unwrap_or(&subject.name)) {
            true => self.through_buffer_ns,
            false => self.page_to_page_ns,
        }
    }
}

fn is_buffered(name: &str) -> bool {
    name.split(" + ").any(|part| BUFFERED.contains(&part))
}

/// Reads a file in one block, into as much memory.
pub fn page_to_page_ns(
    sampler: &Sampler,
    source: &Path,
    bytes: u64,
) -> Outcome<Result<f64, Failure>> {
    let mut command = Command::new(find_program("dd").ok_or("there is no `dd`")?);
    let mut input = std::ffi::OsString::from("if=");
    input.push(source);
    command.arg(input).args(["of=/dev/null", "count=1", "status=none"]).arg(format!("bs={bytes}"));
    Ok(sampler.profile(Job::new(command))?.map(|profile| profile.copy_ns()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_method_is_held_against_the_unit_that_fits_it() {
        let one = OneCopy { through_buffer_ns: 1.0, page_to_page_ns: 2.0 };
        let subject = |engine| Subject::evermap(Path::new("evermap"), engine, None);
        assert_eq!(one.ns(&subject(Some("read-write")), None), 1.0);
        for engine in ["splice", "mmap-write", "uring-splice", "copy-file-range"] {
            assert_eq!(one.ns(&subject(Some(engine)), None), 2.0);
        }
        assert_eq!(one.ns(&subject(None), Some("uring + read-write")), 1.0);
        assert_eq!(one.ns(&subject(None), Some("splice")), 2.0);
    }
}
