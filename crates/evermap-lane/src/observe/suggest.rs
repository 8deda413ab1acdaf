//! Derives a policy from an observation, with sentences about its reasons and about unknowns.

use std::path::Path;

use super::{Observation, ObservedFile, ObservedThread, Source, WAKE_UPS_MIN};
use crate::policy::{Core, IoMode, Rate, Scheduler};
use crate::{Period, Policy};

/// Usual rates of films and screens. A period within this relative distance of one of them is taken
/// for it; 24 and 23.976 are three times as far apart.
const RATES: [(u64, u64); 12] = [
    (24_000, 1_001),
    (24, 1),
    (25, 1),
    (30_000, 1_001),
    (30, 1),
    (48, 1),
    (50, 1),
    (60_000, 1_001),
    (60, 1),
    (90, 1),
    (120, 1),
    (1_000, 1),
];
const SAME_RATE_SHARE: f64 = 3e-4;
/// Minimum size of a mapped file on the tier.
const MAPPED_BYTES_MIN: u64 = 1 << 20;
/// Maximum number of files in a policy.
const FILES_MAX: usize = 16;
/// Directories with files of programs, not of the user.
const SYSTEM: [&str; 4] = ["/usr/", "/lib/", "/lib64/", "/etc/"];

pub(super) fn suggestion(seen: &Observation) -> (Policy, Vec<String>) {
    let mut policy = Policy::default();
    let mut why = vec![format!(
        "Suggested after observing process {1} ({2}) for {0:.1} s. Nothing applies it automatically: review it first.",
        seen.seconds, seen.process, seen.program
    )];
    if seen.has_ended {
        why.push("The process ended during the observation.".into());
    }
    policy.app.matches = Some(glob::Pattern::escape(&seen.program));
    suggest_period(seen, &mut policy, &mut why);
    suggest_scheduler(seen, &mut policy, &mut why);
    suggest_files(seen, &mut policy, &mut why);
    if seen.locked_bytes > 0 {
        why.push(format!("It has locked {} KiB of its memory already.", seen.locked_bytes >> 10));
    }
    why.extend(seen.warnings.iter().map(|warning| format!("Restriction: {warning}.")));
    (policy, why)
}

/// Thread that the deadlines are guessed from: the periodic thread with the most processor time.
fn leading(seen: &Observation) -> Option<&ObservedThread> {
    seen.threads
        .iter()
        .filter(|thread| thread.rhythm.is_periodic())
        .max_by(|one, other| one.processor_ms.total_cmp(&other.processor_ms))
}

fn suggest_period(seen: &Observation, policy: &mut Policy, why: &mut Vec<String>) {
    let Some(thread) = leading(seen) else {
        let most = seen.threads.iter().map(|thread| thread.rhythm.wake_ups).max().unwrap_or(0);
        why.push(match most < WAKE_UPS_MIN {
            true => format!("No period: no thread woke {WAKE_UPS_MIN} times (maximum: {most}). Observe longer (`--seconds`)."),
            false => "No period: no thread has periodic wake-ups. A lane can still give it priority; set `fps` if you know the rate.".into(),
        });
        why.extend(seen.threads.iter().take(4).map(|thread| of_thread(thread, seen.seconds)));
        return;
    };
    let Some(period_us) = thread.rhythm.period_us else { return };
    match RATES.iter().find(|(rate, per)| is_same(period_us, *rate, *per)) {
        Some((rate, 1)) => policy.app.fps = Some(Rate::Whole(*rate)),
        Some((rate, per)) => policy.app.fps = Some(Rate::Text(format!("{rate}/{per}"))),
        None => {
            policy.app.period_us =
                Period::of_us(period_us.round() as u64).map(|_| period_us.round() as u64)
        }
    }
    why.push(format!(
        "The period is from thread {} ({}): {period_us:.1} us, {:.3} a second.",
        thread.id,
        thread.name,
        1e6 / period_us
    ));
    why.push(of_thread(thread, seen.seconds));
    why.push(
        "Wake-ups need not have the period of the deadlines: players that poll wake every 10 ms at any rate of the clip. \
         If you know the program's rate, set that instead."
            .into(),
    );
    if let Some(ms) = thread.processor_ms_per_period(seen.seconds) {
        why.push(format!(
            "It takes {ms:.3} ms of processor time in a period on average, {:.0} % of it; with `scheduler = \"deadline\"`, `budget_us` must cover the \
             maximum, which was not measured.",
            ms * 1e5 / period_us
        ));
    }
    let others: Vec<String> = seen
        .threads
        .iter()
        .filter(|other| other.id != thread.id && other.rhythm.is_periodic())
        .filter_map(|other| {
            Some(format!("{} ({}) {:.1} us", other.id, other.name, other.rhythm.period_us?))
        })
        .take(8)
        .collect();
    if !others.is_empty() {
        why.push(format!("Other periodic threads: {}.", others.join(", ")));
    }
}

fn is_same(period_us: f64, rate: u64, per: u64) -> bool {
    let expected_us = 1e6 * per as f64 / rate as f64;
    (period_us / expected_us - 1.0).abs() < SAME_RATE_SHARE
}

/// Describes the times of a thread, and their precision.
fn of_thread(thread: &ObservedThread, seconds: f64) -> String {
    let rhythm = &thread.rhythm;
    let number =
        |value: Option<f64>| value.map_or("not known".into(), |value| format!("{value:.2}"));
    let how = match thread.source {
        Source::SwitchRecords => "from the kernel's switch records, exact to the microsecond, including the wait for a core".into(),
        Source::Polled { resolution_us } => format!("counted every {resolution_us:.0} us, which limits the precision"),
    };
    let lost = if thread.lost > 0 {
        format!(", {} of them without an individual time", thread.lost)
    } else {
        String::new()
    };
    format!(
        "Thread {} ({}): {} wake-ups{lost}, {:.1} us apart on average, coefficient of variation {}, autocorrelation {}, {} in a period; {how}. \
         It ran {:.1} ms of {:.1} s, and waited {:.1} ms for a core; {} page faults waited for a disk.",
        thread.id,
        thread.name,
        rhythm.wake_ups,
        rhythm.interval_us,
        number(rhythm.coefficient_of_variation),
        number(rhythm.autocorrelation),
        number(rhythm.wake_ups_per_period),
        thread.processor_ms,
        seconds,
        thread.run_queue_ms,
        thread.major_faults,
    )
}

fn suggest_scheduler(seen: &Observation, policy: &mut Policy, why: &mut Vec<String>) {
    let real_time = seen
        .threads
        .iter()
        .find(|thread| matches!(thread.scheduler.as_str(), "fifo" | "round-robin" | "deadline"));
    if let Some(thread) = real_time {
        why.push(format!(
            "Thread {} ({}) has the policy {} already, at priority {}.",
            thread.id, thread.name, thread.scheduler, thread.priority
        ));
        if thread.scheduler == "deadline" && policy.period().ok().flatten().is_some() {
            policy.app.scheduler = Scheduler::Deadline;
        } else if let Ok(priority @ 1..=98) = u8::try_from(thread.priority) {
            policy.app.priority = priority;
        }
    }
    // With one core, an affinity of one core is not deliberate.
    if seen.online.len() == 1 {
        return;
    }
    let all_on_one = seen.threads.iter().filter_map(|thread| match thread.affinity.len() {
        1 => thread.affinity.iter().next(),
        _ => None,
    });
    let cores: Vec<u32> = all_on_one.collect();
    if let Some(core) = cores
        .first()
        .filter(|core| cores.len() == seen.threads.len() && cores.iter().all(|one| one == *core))
    {
        policy.app.core = Core::Number(*core);
        why.push(format!(
            "It is already pinned to core {core}; with `core = \"auto\"` the lane chooses."
        ));
    }
}

fn suggest_files(seen: &Observation, policy: &mut Policy, why: &mut Vec<String>) {
    let wanted: Vec<&ObservedFile> =
        seen.files.iter().filter(|file| is_for_the_tier(file)).take(FILES_MAX).collect();
    let period_us = leading(seen).and_then(|thread| thread.rhythm.period_us);
    for file in &wanted {
        let rate = file.read_bytes as f64 / seen.seconds.max(1e-3);
        let by_period = period_us
            .map_or(String::new(), |us| format!(", {:.0} bytes in a period", rate * us / 1e6));
        let mapped = if file.mapped_bytes > 0 {
            format!(", {} bytes of it mapped", file.mapped_bytes)
        } else {
            String::new()
        };
        why.push(format!(
            "It read {} ({} bytes long) at {rate:.0} bytes a second{by_period}; {} backward seeks{mapped}.",
            file.path.display(), file.size_bytes, file.rewinds
        ));
    }
    policy.tier.files =
        wanted.iter().map(|file| glob::Pattern::escape(&file.path.to_string_lossy())).collect();
    if let (Some(read), Some(from_disks)) = (seen.read_bytes, seen.read_from_disks_bytes) {
        why.push(format!(
            "With system calls it read {read} bytes in all, {from_disks} of them from disks."
        ));
        let followed: u64 = seen.files.iter().map(|file| file.read_bytes).sum();
        if read > followed.saturating_mul(2).saturating_add(1 << 20) {
            why.push("Most of that was read at offsets, from pipes, or from files that were open too briefly to be seen: the list of files is incomplete.".into());
        }
    }
    if wanted.is_empty() {
        why.push("No observed file would benefit from the tier.".into());
        return;
    }
    let bytes: u64 = wanted.iter().map(|file| file.size_bytes).fold(0, u64::saturating_add);
    policy.tier.budget_mib = Some(bytes.div_ceil(1 << 20).max(1));
    let is_stream = wanted.iter().all(|file| file.mapped_bytes == 0 && file.rewinds == 0);
    if is_stream {
        policy.io.mode = IoMode::Nowait;
        why.push("It reads its files sequentially, so a program that uses the library can use read-ahead (`nowait`) without a tier.".into());
    }
}

/// Returns true for files that are read or mapped, never written, not code, and owned by the user.
fn is_for_the_tier(file: &ObservedFile) -> bool {
    let is_used = file.read_bytes > 0 || file.mapped_bytes >= MAPPED_BYTES_MIN;
    is_used && !file.is_written && !file.is_code && file.size_bytes > 0 && !is_system(&file.path)
}

fn is_system(path: &Path) -> bool {
    SYSTEM.iter().any(|begin| path.starts_with(begin))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observe::Rhythm;

    fn thread(period_us: f64) -> ObservedThread {
        let rhythm = Rhythm {
            wake_ups: 500,
            interval_us: period_us,
            coefficient_of_variation: Some(0.01),
            period_us: Some(period_us),
            autocorrelation: Some(0.97),
            wake_ups_per_period: Some(1.0),
        };
        ObservedThread {
            id: 7,
            name: "video\nout".into(),
            scheduler: "other".into(),
            priority: 0,
            nice: 0,
            affinity: [0, 1].into_iter().collect(),
            rhythm,
            source: Source::SwitchRecords,
            lost: 0,
            processor_ms: 500.0,
            run_queue_ms: 1.0,
            minor_faults: 0,
            major_faults: 0,
        }
    }

    fn file(path: &str) -> ObservedFile {
        ObservedFile {
            path: path.into(),
            size_bytes: 3 << 20,
            read_bytes: 1 << 20,
            rewinds: 0,
            mapped_bytes: 0,
            is_written: false,
            is_code: false,
        }
    }

    fn seen(threads: Vec<ObservedThread>, files: Vec<ObservedFile>) -> Observation {
        Observation {
            process: 7,
            program: "/opt/a [b]/player".into(),
            seconds: 10.0,
            has_ended: false,
            threads,
            files,
            read_bytes: Some(1 << 20),
            read_from_disks_bytes: Some(0),
            locked_bytes: 0,
            online: [0, 1, 2, 3].into_iter().collect(),
            warnings: vec!["a\nb = 1".into()],
        }
    }

    #[test]
    fn the_stanza_is_a_valid_policy_for_any_names() {
        let files = vec![
            file("/home/u/a \"b\"\nc[1].mkv"),
            file("/usr/share/x"),
            ObservedFile { is_written: true, ..file("/home/u/log") },
        ];
        let seen = seen(vec![thread(1_001e3 / 24.0)], files);
        let stanza = seen.stanza();
        let policy = Policy::parse(&stanza).unwrap();
        assert_eq!(policy, seen.suggestion().0, "{stanza}");
        assert_eq!(policy.app.fps, Some(Rate::Text("24000/1001".into())));
        assert_eq!(policy.tier.files.len(), 1, "{stanza}");
        assert!(
            glob::Pattern::new(&policy.tier.files[0]).unwrap().matches("/home/u/a \"b\"\nc[1].mkv")
        );
        assert!(
            glob::Pattern::new(policy.app.matches.as_ref().unwrap())
                .unwrap()
                .matches("/opt/a [b]/player")
        );
        assert_eq!((policy.tier.budget_mib, policy.io.mode), (Some(3), IoMode::Nowait));
        assert!(stanza.contains("need not have the period of the deadlines"), "{stanza}");
    }

    #[test]
    fn usual_rates_are_recognised_and_others_become_periods() {
        let fps = |period_us: f64| seen(vec![thread(period_us)], vec![]).suggestion().0.app;
        assert_eq!(fps(41_666.9).fps, Some(Rate::Whole(24)));
        assert_eq!(fps(16_683.0).fps, Some(Rate::Text("60000/1001".into())));
        assert_eq!(fps(16_667.5).fps, Some(Rate::Whole(60)));
        assert_eq!((fps(10_001.2).fps, fps(10_001.2).period_us), (None, Some(10_001)));
    }

    #[test]
    fn a_process_without_a_rhythm_gets_no_period_and_a_reason() {
        let mut idle = thread(1.0);
        idle.rhythm = Rhythm { wake_ups: 3, ..Rhythm::default() };
        let (policy, why) = seen(vec![idle.clone()], vec![]).suggestion();
        assert_eq!(policy.period().unwrap(), None);
        assert!(why.iter().any(|line| line.contains("woke 100 times")), "{why:?}");
        idle.rhythm = Rhythm {
            wake_ups: 500,
            autocorrelation: Some(0.1),
            period_us: Some(5.0),
            ..Rhythm::default()
        };
        let (policy, why) = seen(vec![idle], vec![]).suggestion();
        assert_eq!(policy.period().unwrap(), None);
        assert!(why.iter().any(|line| line.contains("no thread has periodic wake-ups")), "{why:?}");
    }

    #[test]
    fn a_real_time_thread_keeps_its_priority() {
        let mut audio = thread(5_333.3);
        audio.scheduler = "fifo".into();
        audio.priority = 77;
        audio.affinity = [3].into_iter().collect();
        let (policy, _) = seen(vec![audio.clone()], vec![]).suggestion();
        assert_eq!(
            (policy.app.scheduler, policy.app.priority, policy.app.core),
            (Scheduler::Fifo, 77, Core::Number(3))
        );
        // On a machine with one core the affinity is not deliberate.
        audio.affinity = [0].into_iter().collect();
        let mut alone = seen(vec![audio.clone()], vec![]);
        alone.online = [0].into_iter().collect();
        assert_eq!(alone.suggestion().0.app.core, Core::Auto);
        // Priority 99 is reserved for the watchdog.
        audio.priority = 99;
        let (policy, _) = seen(vec![audio], vec![]).suggestion();
        assert!(policy.verify().is_ok() && policy.app.priority == 50);
    }
}
