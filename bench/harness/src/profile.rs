//! Measures the time that processors spent copying for a program, by samples of its processor time
//! (`perf record -e cpu-clock`).
//!
//! A sample in a routine that moves bytes in memory counts as copying: between user and kernel,
//! from page to page, into a socket's buffers, or in the program itself. Finding, allocating,
//! zeroing and accounting pages is work, but not copying.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use crate::Outcome;
use crate::counting::wrap;
use crate::process::{self, Job, find_program};

const RATE_FILE: &str = "/proc/sys/kernel/perf_event_max_sample_rate";
const RATE_MOST: u64 = 20_000;
/// Parts of the names of routines that only copy.
const COPY_ROUTINES: [&str; 15] = [
    "_copy_to_iter",
    "_copy_from_iter",
    "copy_folio_from_iter",
    "copy_page_from_iter",
    "copy_page_to_iter",
    "copy_folio_to_iter",
    "rep_movs_alternative",
    "copy_user_generic",
    "copy_user_enhanced",
    "memcpy",
    "memmove",
    "memcpy_orig",
    "csum_and_copy",
    "skb_copy_datagram",
    "skb_copy_bits",
];

/// Processor time by routine, in nanoseconds. Each sample stands for the time since the previous
/// one.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Profile {
    by_routine_ns: BTreeMap<String, u64>,
}

/// Returns true if this routine copies bytes.
pub fn copies(routine: &str) -> bool {
    COPY_ROUTINES.iter().any(|part| routine.contains(part)) || routine == "copy_page"
}

impl Profile {
    pub fn cpu_ns(&self) -> f64 {
        self.by_routine_ns.values().sum::<u64>() as f64
    }

    /// Processor time in routines that copy.
    pub fn copy_ns(&self) -> f64 {
        let all = self.by_routine_ns.iter().filter(|(name, _)| copies(name));
        all.map(|(_, ns)| *ns).sum::<u64>() as f64
    }

    pub fn add(&mut self, other: &Profile) {
        for (name, ns) in &other.by_routine_ns {
            *self.by_routine_ns.entry(name.clone()).or_default() += ns;
        }
    }

    /// Lists the routines that copied, with their share of all samples: `_copy_to_iter 41 %`.
    pub fn evidence(&self) -> String {
        let all = self.cpu_ns().max(1.0);
        let mut parts: Vec<(&String, &u64)> =
            self.by_routine_ns.iter().filter(|(name, _)| copies(name)).collect();
        parts.sort_by_key(|(_, ns)| std::cmp::Reverse(**ns));
        let parts = parts.iter().map(|(name, ns)| (name, **ns as f64 / all * 100.0));
        let parts: Vec<String> = parts
            .filter(|(_, share)| *share >= 0.5)
            .map(|(name, share)| format!("{name} {share:.0} %"))
            .collect();
        if parts.is_empty() { "-".to_string() } else { parts.join(" + ") }
    }

    /// Parses lines of a period in nanoseconds, an address and a routine: `50000
    /// ffffffff8157c701 _copy_to_iter+0x10`.
    fn parse(text: &str) -> Profile {
        let mut profile = Profile::default();
        for line in text.lines() {
            let mut fields = line.split_whitespace();
            let (period, routine) = (fields.next(), fields.nth(1).unwrap_or("[unknown]"));
            let Some(ns) = period.and_then(|period| period.parse::<u64>().ok()) else { continue };
            *profile.by_routine_ns.entry(name(routine).to_string()).or_default() += ns;
        }
        profile
    }
}

/// Removes the offset: `__memcpy_avx_unaligned_erms+0x10` is one routine at every offset.
fn name(routine: &str) -> &str {
    routine.split('+').next().unwrap_or(routine)
}

/// Takes samples of programs. The error of `find` says why that is not possible.
pub struct Sampler {
    rate: u64,
}

impl Sampler {
    pub fn find() -> Outcome<Sampler> {
        find_program("perf").ok_or("`perf` is not installed")?;
        let most: u64 = std::fs::read_to_string(RATE_FILE)?.trim().parse()?;
        let sampler = Sampler { rate: RATE_MOST.min(most) };
        let mut command = Command::new("dd");
        command.args(["if=/dev/zero", "of=/dev/null", "bs=1M", "count=500", "status=none"]);
        match sampler.profile(Job::new(command))?? {
            profile if profile.cpu_ns() > 0.0 => Ok(sampler),
            _ => Err("perf takes no samples".into()),
        }
    }

    pub fn describe(&self) -> String {
        format!("{} samples a second of processor time (perf record -e cpu-clock)", self.rate)
    }

    /// Runs a program once and samples it from its first instruction.
    pub fn profile(&self, job: Job) -> Outcome<Result<Profile, process::Failure>> {
        let folder = tempfile::tempdir()?;
        let data = folder.path().join("perf.data");
        let rate = self.rate.to_string();
        let before = ["record", "-q", "-N", "-B", "-e", "cpu-clock", "-F", &rate, "-o"];
        let wrapped = wrap("perf", &before, &data, &["--"], &job.command).ok_or("no `perf`")?;
        match process::run(Job { command: wrapped, ..job })? {
            Ok(_) => self.read(&data).map(Ok),
            Err(failure) => Ok(Err(failure)),
        }
    }

    fn read(&self, data: &Path) -> Outcome<Profile> {
        let perf = find_program("perf").ok_or("`perf` is not installed")?;
        let mut command = Command::new(perf);
        command.args(["script", "-F", "period,ip,sym", "-i"]).arg(data);
        let output = command.output()?;
        Ok(Profile::parse(&String::from_utf8_lossy(&output.stdout)))
    }
}

/// Returns true if the kernel shows the names of its routines, which sampling needs.
pub fn names_are_visible() -> bool {
    let text = std::fs::read_to_string("/proc/kallsyms").unwrap_or_default();
    text.lines()
        .any(|line| line.ends_with(" _copy_to_iter") && !line.starts_with("0000000000000000"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn copying_is_distinguished_from_other_work() {
        for name in [
            "_copy_to_iter",
            "__pi_memcpy",
            "copy_folio_from_iter_atomic",
            "__memmove_avx512_unaligned_erms",
            "copy_page",
        ] {
            assert!(copies(name), "{name}");
        }
        for name in [
            "clear_page_erms",
            "filemap_get_pages",
            "copy_file_range",
            "copy_process",
            "get_page_from_freelist",
        ] {
            assert!(!copies(name), "{name}");
        }
    }

    #[test]
    fn shares_and_times_come_from_the_periods_of_samples() {
        let text =
            "50000 ff memcpy\n 50000  fe _copy_to_iter+0x10\n50000 ff memcpy\n50000 1 main\n\n";
        let profile = Profile::parse(text);
        assert_eq!((profile.cpu_ns(), profile.copy_ns()), (200_000.0, 150_000.0));
        assert_eq!(profile.evidence(), "memcpy 50 % + _copy_to_iter 25 %");
        assert_eq!(Profile::parse("50000 1 main\n50000 2\n").evidence(), "-");
        let mut twice = profile.clone();
        twice.add(&profile);
        assert_eq!(twice.cpu_ns(), 400_000.0);
    }

    #[test]
    fn dd_is_seen_to_copy() {
        let sampler = match Sampler::find() {
            Ok(sampler) if names_are_visible() => sampler,
            Ok(_) => return eprintln!("skipped: kernel symbols are hidden"),
            Err(error) => return eprintln!("skipped: {error}"),
        };
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        std::fs::write(&file, vec![1; 32 << 20]).unwrap();
        let mut command = Command::new("dd");
        command.arg(format!("if={}", file.display())).args([
            "of=/dev/null",
            "bs=128K",
            "status=none",
        ]);
        let profile = sampler.profile(Job::new(command)).unwrap().unwrap();
        assert!(profile.copy_ns() > profile.cpu_ns() / 10.0, "{profile:?}");
    }
}
