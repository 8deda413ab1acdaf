//! Demand of a program per frame: processor time, page references, and cache misses.
//!
//! The references are drawn or come from a trace. Drawn workloads have lognormal decode times,
//! lognormal numbers of references that correlate between frames, and uniformly distributed pages.
//! Misses are those of exact LRU caches, simulated for all capacities in one pass.

use crate::cache::{CAPACITIES_MAX, Caches};
use crate::error::Error;
use crate::error::at_most;
use crate::parameters::Key;
use crate::profile::Profile;
use crate::random::{Purpose, Random, lognormal, sigma_of_cv};
use crate::traced::Traced;

/// Maximum number of references: a run with more would take minutes.
const REFERENCES_MAX: u64 = 4_000_000_000;
/// Maximum number of miss counts (frames times capacities): a gigabyte.
const COUNTS_MAX: u64 = 1 << 28;
/// Maximum number of references of one frame, which bounds the lognormal distribution.
const FRAME_REFERENCES_MAX: f64 = 1e8;

/// Source of a program's references.
#[derive(Clone, Debug, Default)]
pub enum Workload {
    /// Drawn with the profile's parameters.
    #[default]
    Drawn,
    /// From a trace. Decode times are drawn with the profile's parameters.
    Traced(Traced),
}

/// Method of counting misses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Counting {
    /// Simulates exact caches.
    Exact,
    /// Uses the expected misses of uniform references. Thousands of times faster, for searches.
    Expected,
}

/// Demand of all frames.
#[derive(Clone, Debug)]
pub(crate) struct Demand {
    pub(crate) decode_ms: Vec<f64>,
    pub(crate) references: Vec<u32>,
    footprint: u32,
    /// Misses of each frame, for each capacity in pages.
    misses: Vec<(u32, Vec<u32>)>,
}

/// Returns the parameters on which demand depends, except for the capacity. Equal keys give equal
/// demand.
pub(crate) fn key_of(profile: &Profile) -> [u64; 7] {
    [
        Key::Frames,
        Key::DecodeMean,
        Key::DecodeCv,
        Key::ReferencesMean,
        Key::ReferencesSigma,
        Key::ReferencesCorrelation,
        Key::Footprint,
    ]
    .map(|key| profile.value(key).to_bits())
}

impl Workload {
    /// Returns the number of frames of a run.
    pub(crate) fn frames(&self, profile: &Profile) -> usize {
        match self {
            Workload::Drawn => profile.value(Key::Frames) as usize,
            Workload::Traced(traced) => traced.frames().len(),
        }
    }

    /// Checks the number of miss counts for the given number of capacities.
    pub(crate) fn check_counts(&self, profile: &Profile, capacities: usize) -> Result<(), Error> {
        let count = (self.frames(profile) as u64).saturating_mul(capacities as u64);
        let remedy = "lower frames.count, or sweep over fewer values";
        at_most("frames at all capacities", count, COUNTS_MAX, remedy)
    }

    /// Checks the number of references of a run.
    pub(crate) fn check(&self, profile: &Profile) -> Result<(), Error> {
        let references = match self {
            Workload::Drawn => profile.value(Key::Frames) * profile.value(Key::ReferencesMean),
            Workload::Traced(_) => 0.0,
        };
        let remedy = "lower frames.count or frames.references_mean";
        at_most("references of a run", references as u64, REFERENCES_MAX, remedy)
    }

    /// Returns the size in pages of a cache of this capacity.
    fn capacity_pages(&self, profile: &Profile, capacity_percent: f64) -> u32 {
        let footprint = match self {
            Workload::Drawn => profile.value(Key::Footprint),
            Workload::Traced(traced) => f64::from(traced.footprint_pages()),
        };
        (footprint * capacity_percent / 100.0).round() as u32
    }

    /// Computes the demand of all frames, and the misses of caches of these capacities.
    /// Deterministic for a seed.
    pub(crate) fn demand(
        &self,
        profile: &Profile,
        seed: u64,
        capacities_percent: &[f64],
        counting: Counting,
    ) -> Demand {
        let of_percent = |&percent: &f64| self.capacity_pages(profile, percent);
        let mut capacities: Vec<u32> = capacities_percent.iter().map(of_percent).collect();
        capacities.sort_unstable();
        capacities.dedup();
        let decode_ms = decode_times(profile, seed, self.frames(profile));
        let mut demand = match self {
            Workload::Drawn => {
                let footprint = profile.value(Key::Footprint) as u32;
                let references = reference_counts(profile, seed);
                Demand { decode_ms, references, footprint, misses: Vec::new() }
            }
            Workload::Traced(traced) => {
                let references = traced.frames().iter().map(|pages| pages.len() as u32).collect();
                let footprint = traced.footprint_pages();
                Demand { decode_ms, references, footprint, misses: Vec::new() }
            }
        };
        for capacities in capacities.chunks(CAPACITIES_MAX) {
            let misses = match (self, counting) {
                (Workload::Drawn, Counting::Exact) => drawn_misses(&demand, seed, capacities),
                (Workload::Drawn, Counting::Expected) => expected_misses(&demand, capacities),
                (Workload::Traced(traced), _) => traced_misses(traced, capacities),
            };
            demand.misses.extend(capacities.iter().copied().zip(misses));
        }
        demand
    }

    /// Returns the misses of the profile's cache per frame. The demand must have been computed for
    /// its capacity.
    pub(crate) fn misses<'a>(&self, demand: &'a Demand, profile: &Profile) -> &'a [u32] {
        let pages = self.capacity_pages(profile, profile.value(Key::Capacity));
        let found = demand.misses.iter().find(|(capacity, _)| *capacity == pages);
        debug_assert!(found.is_some(), "{pages} pages were not counted");
        found.map_or(&[], |(_, misses)| misses)
    }
}

fn decode_times(profile: &Profile, seed: u64, count: usize) -> Vec<f64> {
    let mut random = Random::of(seed, Purpose::DecodeTimes);
    let sigma = sigma_of_cv(profile.value(Key::DecodeCv));
    let mean = profile.value(Key::DecodeMean);
    (0..count).map(|_| lognormal(mean, sigma, random.normal())).collect()
}

fn reference_counts(profile: &Profile, seed: u64) -> Vec<u32> {
    let mut random = Random::of(seed, Purpose::ReferenceCounts);
    let (mean, sigma) = (profile.value(Key::ReferencesMean), profile.value(Key::ReferencesSigma));
    let correlation = profile.value(Key::ReferencesCorrelation);
    let novelty = (1.0 - correlation * correlation).sqrt();
    let mut state = random.normal();
    let count = profile.value(Key::Frames) as usize;
    let mut counts = Vec::with_capacity(count);
    for _ in 0..count {
        counts.push(lognormal(mean, sigma, state).round().min(FRAME_REFERENCES_MAX) as u32);
        state = correlation * state + novelty * random.normal();
    }
    counts
}

/// Simulates caches that have seen all pages in random order, as after a long run.
fn drawn_misses(demand: &Demand, seed: u64, capacities: &[u32]) -> Vec<Vec<u32>> {
    let footprint = demand.footprint;
    let mut counter = Counter::new(footprint, capacities);
    for page in Random::of(seed, Purpose::WarmPages).order(footprint) {
        counter.caches.reference(page);
    }
    let mut random = Random::of(seed, Purpose::Pages);
    for &count in &demand.references {
        (0..count).for_each(|_| counter.reference(random.below(footprint)));
        counter.end_frame();
    }
    counter.misses
}

/// Simulates caches that begin empty: the first read of a page always misses.
fn traced_misses(traced: &Traced, capacities: &[u32]) -> Vec<Vec<u32>> {
    let mut counter = Counter::new(traced.footprint_pages(), capacities);
    for pages in traced.frames() {
        pages.iter().for_each(|&page| counter.reference(page));
        counter.end_frame();
    }
    counter.misses
}

fn expected_misses(demand: &Demand, capacities: &[u32]) -> Vec<Vec<u32>> {
    let missed = |capacity: u32| {
        let share = 1.0 - f64::from(capacity) / f64::from(demand.footprint);
        demand.references.iter().map(|&count| (f64::from(count) * share).round() as u32).collect()
    };
    capacities.iter().map(|&capacity| missed(capacity)).collect()
}

/// Counts misses per frame, for each capacity.
struct Counter {
    caches: Caches,
    /// 1 if the first capacity is 0 pages, which `Caches` does not support.
    empty: usize,
    /// References of the current frame, by the number of caches that missed them.
    by_level: Vec<u32>,
    misses: Vec<Vec<u32>>,
}

impl Counter {
    fn new(footprint: u32, capacities: &[u32]) -> Self {
        let empty = usize::from(capacities.first() == Some(&0));
        Self {
            caches: Caches::new(footprint, &capacities[empty..]),
            empty,
            by_level: vec![0; capacities.len() + 1 - empty],
            misses: vec![Vec::new(); capacities.len()],
        }
    }

    fn reference(&mut self, page: u32) {
        self.by_level[self.caches.reference(page)] += 1;
    }

    fn end_frame(&mut self) {
        let mut missed = 0;
        // The k-th cache missed the references that k + 1 or more caches missed.
        for level in (0..self.by_level.len()).rev() {
            if let Some(misses) = self.misses.get_mut(level + self.empty) {
                misses.push(missed);
            }
            missed += self.by_level[level];
        }
        if self.empty == 1 {
            self.misses[0].push(missed);
        }
        self.by_level.fill(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn profile(changes: &[(&str, f64)]) -> Profile {
        let mut profile = Profile::built_in("bahn2019").unwrap();
        changes.iter().for_each(|(key, value)| profile.set(key, *value).unwrap());
        profile
    }

    #[test]
    fn an_empty_cache_misses_everything_and_a_full_one_nothing() {
        let profile = profile(&[("references", 500.0), ("frames.footprint_pages", 1_000.0)]);
        let workload = Workload::Drawn;
        let capacities = [0.0, 50.0, 100.0];
        for counting in [Counting::Exact, Counting::Expected] {
            let demand = workload.demand(&profile, 1, &capacities, counting);
            let [none, half, all] = &demand.misses[..] else { panic!("{:?}", demand.misses) };
            assert_eq!((none.0, half.0, all.0), (0, 500, 1_000));
            assert_eq!(none.1, demand.references);
            assert!(all.1.iter().all(|&misses| misses == 0));
            assert!(half.1.iter().zip(&none.1).all(|(half, none)| half < none));
        }
    }

    #[test]
    fn the_misses_of_a_capacity_do_not_depend_on_other_capacities() {
        let profile = profile(&[("references", 300.0), ("frames", 20.0), ("capacity", 30.0)]);
        let misses = |capacities: &[f64]| {
            let demand = Workload::Drawn.demand(&profile, 3, capacities, Counting::Exact);
            Workload::Drawn.misses(&demand, &profile).to_vec()
        };
        let alone = misses(&[30.0]);
        let many: Vec<f64> = (0..=300).map(|step| f64::from(step) / 3.0).collect();
        assert_eq!(alone, misses(&many));
        assert_eq!(alone, misses(&[0.0, 30.0, 30.0, 100.0]));
    }

    #[test]
    fn references_have_the_given_mean_spread_and_correlation() {
        let changes = [("frames", 40_000.0), ("frames.references_sigma", 0.5)];
        let mut profile = profile(&changes);
        profile.set("frames.references_correlation", 0.6).unwrap();
        profile.set("references", 5_000.0).unwrap();
        let counts: Vec<f64> = reference_counts(&profile, 1).into_iter().map(f64::from).collect();
        let mean = counts.iter().sum::<f64>() / counts.len() as f64;
        assert!((mean / 5_000.0 - 1.0).abs() < 0.03, "{mean}");
        let logs: Vec<f64> = counts.iter().map(|count| count.ln()).collect();
        let middle = logs.iter().sum::<f64>() / logs.len() as f64;
        let square = logs.iter().map(|log| (log - middle).powi(2)).sum::<f64>();
        let lagged: f64 = logs.windows(2).map(|two| (two[0] - middle) * (two[1] - middle)).sum();
        assert!(((square / logs.len() as f64).sqrt() - 0.5).abs() < 0.015);
        assert!((lagged / square - 0.6).abs() < 0.03, "{}", lagged / square);
    }

    #[test]
    fn a_run_with_too_many_references_is_refused() {
        let profile = profile(&[("frames", 1e6), ("references", 1e7)]);
        let error = Workload::Drawn.check(&profile).unwrap_err().to_string();
        assert!(error.contains("frames.count"), "{error}");
        assert!(Workload::Drawn.check_counts(&profile, 200).is_ok());
        let error = Workload::Drawn.check_counts(&profile, 10_000).unwrap_err().to_string();
        assert!(error.contains("fewer values"), "{error}");
    }
}
