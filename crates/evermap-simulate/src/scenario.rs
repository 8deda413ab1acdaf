//! Scenarios: a profile with a device and a mode. Simulates one, or many that share work.
//!
//! Scenarios that differ only in capacity, wait, device or mode have the same frames and
//! references. These are drawn once, and the caches of all capacities are simulated in one pass.

use std::collections::BTreeMap;

use crate::device::Device;
use crate::error::Error;
use crate::mode::Mode;
use crate::model::{Model, Run};
use crate::parameters::Key;
use crate::profile::Profile;
use crate::workload::{Counting, Workload, key_of};

/// Case to simulate.
///
/// ```
/// use evermap_simulate::{Mode, Profile, Scenario, Workload};
///
/// let profile = Profile::built_in("bahn2019")?;
/// let blocking = Scenario::new(profile.clone())?.run(&Workload::Drawn, 1)?;
/// let lane = Scenario::of(profile, Mode::Nonblocking, "pcram")?.run(&Workload::Drawn, 1)?;
/// assert!(lane.summary.missed < blocking.summary.missed);
/// # Ok::<(), evermap_simulate::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Scenario {
    profile: Profile,
    mode: Mode,
    device_name: String,
    device: Device,
}

impl Scenario {
    /// Creates a scenario with the mode and device of the profile.
    ///
    /// # Errors
    ///
    /// Same errors as [`of`](Self::of).
    pub fn new(profile: Profile) -> Result<Self, Error> {
        let (mode, device) = (profile.mode(), profile.device().to_string());
        Self::of(profile, mode, &device)
    }

    /// Creates a scenario with the given mode and device.
    ///
    /// # Errors
    ///
    /// The profile has no such device, or the device would collect garbage all the time.
    pub fn of(profile: Profile, mode: Mode, device: &str) -> Result<Self, Error> {
        let found = profile.device_of(device)?;
        Ok(Self { device: found, device_name: device.into(), mode, profile })
    }

    /// Simulates the scenario. The same seed gives the same run on any machine. Takes some tens of
    /// nanoseconds per reference.
    ///
    /// # Errors
    ///
    /// There are too many references to simulate in reasonable time.
    pub fn run(&self, workload: &Workload, seed: u64) -> Result<Run, Error> {
        let mut runs =
            run_all(std::slice::from_ref(self), workload, seed, Counting::Exact, |run| run)?;
        runs.pop().ok_or(Error::EmptyTrace)
    }

    /// Returns the mode.
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// Returns the name of the device.
    pub fn device_name(&self) -> &str {
        &self.device_name
    }
}

/// Simulates all scenarios, and returns the results of `keep` in order.
pub(crate) fn run_all<T>(
    scenarios: &[Scenario],
    workload: &Workload,
    seed: u64,
    counting: Counting,
    keep: impl Fn(Run) -> T,
) -> Result<Vec<T>, Error> {
    let mut alike: BTreeMap<[u64; 7], Vec<usize>> = BTreeMap::new();
    for (index, scenario) in scenarios.iter().enumerate() {
        workload.check(&scenario.profile)?;
        alike.entry(key_of(&scenario.profile)).or_default().push(index);
    }
    let mut kept: Vec<(usize, T)> = Vec::with_capacity(scenarios.len());
    for indices in alike.into_values() {
        let first = &scenarios[indices[0]].profile;
        let capacities: Vec<f64> =
            indices.iter().map(|&index| scenarios[index].profile.value(Key::Capacity)).collect();
        workload.check_counts(first, capacities.len())?;
        let demand = workload.demand(first, seed, &capacities, counting);
        for index in indices {
            let Scenario { profile, mode, device_name, device } = &scenarios[index];
            let model = Model::new(profile, device, *mode, seed);
            let misses = workload.misses(&demand, profile);
            let frames = model.frames(&demand.decode_ms, &demand.references, misses);
            kept.push((index, keep(model.run(device_name, frames))));
        }
    }
    kept.sort_by_key(|(index, _)| *index);
    Ok(kept.into_iter().map(|(_, kept)| kept).collect())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::model::Summary;

    fn scenario(changes: &[(&str, f64)], mode: Mode, device: &str) -> Scenario {
        let mut profile = Profile::built_in("bahn2019").unwrap();
        changes.iter().for_each(|(key, value)| profile.set(key, *value).unwrap());
        Scenario::of(profile, mode, device).unwrap()
    }

    fn summary(changes: &[(&str, f64)], mode: Mode, device: &str, seed: u64) -> Summary {
        scenario(changes, mode, device).run(&Workload::Drawn, seed).unwrap().summary
    }

    #[test]
    fn equal_seeds_give_equal_bytes_and_different_seeds_do_not() {
        let text = |seed| {
            let run = scenario(&[], Mode::Blocking, "nand").run(&Workload::Drawn, seed).unwrap();
            serde_json::to_string(&run).unwrap()
        };
        assert_eq!(text(1), text(1));
        assert_ne!(text(1), text(2));
    }

    #[test]
    fn a_run_has_the_same_bytes_on_any_machine() {
        // Set all fitted parameters, so that a new fit does not change the hashes.
        let given = [
            ("decode", 10.5),
            ("frames.decode_cv", 0.15),
            ("references", 6_400.0),
            ("frames.references_sigma", 0.66),
            ("wait", 5.0),
            ("background", 6.0),
            ("devices.pcram.read_us_per_page", 3.2),
        ];
        let hash = |mode, device| {
            let run = scenario(&given, mode, device).run(&Workload::Drawn, 1).unwrap();
            blake3::hash(serde_json::to_string(&run).unwrap().as_bytes()).to_hex().to_string()
        };
        let runs = [(Mode::Blocking, "nand"), (Mode::Nonblocking, "pcram")];
        assert_eq!(
            runs.map(|(mode, device)| hash(mode, device)),
            [
                "bad9d11cb10fe88790defbc0fa3f379b3be2feb86bcf7ff88842872cf9c3d053",
                "8345619a7ba3c7f13ccdfcd643e2be71fd16da5d20ddf939f710d54778ee39a2",
            ]
        );
    }

    #[test]
    fn with_a_full_cache_only_decoding_takes_time() {
        for (mode, device) in [(Mode::Blocking, "nand"), (Mode::Nonblocking, "hdd")] {
            let run = scenario(&[("capacity", 100.0), ("wait", 100.0)], mode, device)
                .run(&Workload::Drawn, 1)
                .unwrap();
            for frame in &run.frames {
                assert_eq!(
                    (frame.requests, frame.io_ms, frame.delay_ms, frame.wait_ms),
                    (0, 0.0, 0.0, 0.0)
                );
            }
            assert_eq!(run.summary.utilisation_percent, 100.0);
        }
    }

    #[test]
    fn without_a_cache_every_reference_is_read() {
        let run = scenario(&[("capacity", 0.0)], Mode::Nonblocking, "pcram");
        let run = run.run(&Workload::Drawn, 1).unwrap();
        assert!(run.frames.iter().all(|frame| frame.misses == frame.references));
        assert!(run.frames.iter().all(|frame| frame.requests == frame.references.div_ceil(8)));
    }

    #[test]
    fn only_a_blocking_program_waits_a_slice_for_each_request() {
        let changes = [("wait", 100.0), ("slice", 2.0)];
        let run = scenario(&changes, Mode::Blocking, "nand").run(&Workload::Drawn, 1).unwrap();
        for frame in &run.frames {
            assert!((frame.wait_ms - 2.0 * f64::from(frame.requests)).abs() < 1e-9);
            assert!((frame.switch_ms - 0.03 * f64::from(frame.requests)).abs() < 1e-9);
        }
        let none =
            scenario(&[("wait", 0.0)], Mode::Blocking, "nand").run(&Workload::Drawn, 1).unwrap();
        assert_eq!(none.summary.wait_ms_mean, 0.0);
        for wait in [0.0, 50.0, 100.0] {
            let of = summary(&[("wait", wait)], Mode::Nonblocking, "pcram", 1);
            assert_eq!(of, summary(&[], Mode::Nonblocking, "pcram", 1), "{wait}");
        }
    }

    #[test]
    fn a_completion_is_the_sum_of_its_parts_and_a_miss_exceeds_the_deadline() {
        let changes = [("wait", 10.0), ("frames.deadline_percent", 80.0)];
        let run = scenario(&changes, Mode::Blocking, "nand").run(&Workload::Drawn, 5).unwrap();
        assert!((run.deadline_ms - 0.8 * 1e3 / 24.0).abs() < 1e-9);
        for frame in &run.frames {
            let parts = [
                frame.decode_ms,
                frame.cache_ms,
                frame.io_ms,
                frame.delay_ms,
                frame.switch_ms,
                frame.wait_ms,
            ];
            assert!((frame.completion_ms - parts.iter().sum::<f64>()).abs() < 1e-9);
            assert_eq!(frame.is_missed, frame.completion_ms > run.deadline_ms);
        }
        let missed = run.frames.iter().filter(|frame| frame.is_missed).count();
        assert_eq!(run.summary.missed, missed);
        assert!(missed > 0 && missed < run.frames.len());
    }

    #[test]
    fn a_held_core_is_idle_and_a_released_core_is_used() {
        for device in ["dram", "pcram", "nand", "hdd"] {
            let (kept, given) = (
                summary(&[], Mode::Nonblocking, device, 1),
                summary(&[], Mode::Blocking, device, 1),
            );
            assert_eq!(given.utilisation_percent, 100.0, "{device}");
            assert!(given.utilisation_less_switches_percent < 100.0, "{device}");
            assert_eq!(kept.utilisation_percent, kept.utilisation_less_switches_percent);
            // One of two cores is held, so at most half is lost.
            assert!(
                kept.utilisation_percent >= 50.0 && kept.utilisation_percent < 100.0,
                "{device}"
            );
        }
    }

    #[test]
    fn scenarios_give_the_same_results_together_and_alone() {
        let changes: [&[(&str, f64)]; 4] =
            [&[("capacity", 30.0)], &[], &[("decode", 5.0)], &[("capacity", 0.0)]];
        let scenarios = changes.map(|changes| scenario(changes, Mode::Blocking, "nand"));
        let together =
            run_all(&scenarios, &Workload::Drawn, 9, Counting::Exact, |run| run).unwrap();
        for (scenario, run) in scenarios.iter().zip(together) {
            assert_eq!(scenario.run(&Workload::Drawn, 9).unwrap(), run);
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(40))]

        #[test]
        fn more_capacity_never_misses_more_and_more_wait_never_fewer(
            seed in any::<u64>(),
            capacities in (0.0_f64..100.0, 0.0_f64..100.0),
            waits in (0.0_f64..100.0, 0.0_f64..100.0),
            nonblocking in any::<bool>(),
            device in prop::sample::select(vec!["dram", "pcram", "nand", "hdd"]),
        ) {
            let mode = if nonblocking { Mode::Nonblocking } else { Mode::Blocking };
            let missed = |capacity: f64, wait: f64| {
                let small = [("frames", 20.0), ("capacity", capacity), ("wait", wait)];
                summary(&small, mode, device, seed).missed
            };
            let (less, more) = (capacities.0.min(capacities.1), capacities.0.max(capacities.1));
            prop_assert!(missed(more, waits.0) <= missed(less, waits.0));
            let (less, more) = (waits.0.min(waits.1), waits.0.max(waits.1));
            prop_assert!(missed(capacities.0, less) <= missed(capacities.0, more));
        }

        #[test]
        fn no_slower_device_misses_fewer(
            seed in any::<u64>(),
            device in prop::sample::select(vec!["dram", "pcram", "nand", "hdd"]),
            field in prop::sample::select(vec!["read_us_per_request", "read_us_per_page", "stall_ms"]),
            slower in 1.0_f64..20.0,
            capacity in 0.0_f64..100.0,
        ) {
            let small = [("frames", 20.0), ("capacity", capacity)];
            let stalls = format!("devices.{device}.stall_percent");
            let key = format!("devices.{device}.{field}");
            let missed = |factor: f64| {
                let mut profile = Profile::built_in("bahn2019").unwrap();
                small.iter().for_each(|(key, value)| profile.set(key, *value).unwrap());
                profile.set(&stalls, 5.0).unwrap();
                let before = profile.get(&key).map_or(1.0, |parameter| parameter.value.max(1.0));
                profile.set(&key, before * factor).unwrap();
                // A slower device may collect garbage all the time, which is an error and tested
                // elsewhere.
                let scenario = Scenario::of(profile, Mode::Blocking, device).ok()?;
                Some(scenario.run(&Workload::Drawn, seed).unwrap().summary.missed)
            };
            if let (Some(before), Some(after)) = (missed(1.0), missed(slower)) {
                prop_assert!(before <= after, "{} before, {} after", before, after);
            }
        }
    }
}
