//! What the program asks for in each frame: processor time, references to pages, and which of them a cache misses.
//!
//! Either drawn (decode times lognormal; numbers of references lognormal, where a frame is like the one before; the pages themselves each as likely) or taken
//! from a trace. Misses are those of exact LRU caches, counted for all capacities in one pass.

use super::Error;
use super::cache::{CAPACITIES_MAX, Caches};
use super::error::at_most;
use super::parameters::Key;
use super::profile::Profile;
use super::random::{Purpose, Random, lognormal, sigma_of_cv};
use super::traced::Traced;

/// A run would take minutes with more.
const REFERENCES_MAX: u64 = 4_000_000_000;
/// Misses of each frame at each capacity: a gigabyte.
const COUNTS_MAX: u64 = 1 << 28;
/// What one frame asks for at most, so that a wide distribution has an end.
const FRAME_REFERENCES_MAX: f64 = 1e8;

/// Where a program's references come from.
#[derive(Clone, Debug, Default)]
pub enum Workload {
    /// Drawn as the profile says.
    #[default]
    Drawn,
    /// From a trace; decode times are drawn as the profile says.
    Traced(Traced),
}

/// How misses are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Counting {
    /// By caches that see each reference.
    Exact,
    /// As many as uniform references miss on average: for searching, thousands of times as quick.
    Expected,
}

/// What the frames ask for.
#[derive(Clone, Debug)]
pub(super) struct Demand {
    pub(super) decode_ms: Vec<f64>,
    pub(super) references: Vec<u32>,
    footprint: u32,
    /// For each capacity in pages: what each frame misses.
    misses: Vec<(u32, Vec<u32>)>,
}

/// What demand depends on, but for the capacity: profiles with the same have the same.
pub(super) fn key_of(profile: &Profile) -> [u64; 7] {
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
    /// How many frames a run of this profile has.
    pub(super) fn frames(&self, profile: &Profile) -> usize {
        match self {
            Workload::Drawn => profile.value(Key::Frames) as usize,
            Workload::Traced(traced) => traced.frames().len(),
        }
    }

    /// Whether this profile's frames can be counted for so many capacities at once.
    pub(super) fn check_counts(&self, profile: &Profile, capacities: usize) -> Result<(), Error> {
        let count = (self.frames(profile) as u64).saturating_mul(capacities as u64);
        let remedy = "lower frames.count, or go over fewer values";
        at_most("frames at all capacities", count, COUNTS_MAX, remedy)
    }

    /// Whether this profile's run ends in a sensible time.
    pub(super) fn check(&self, profile: &Profile) -> Result<(), Error> {
        let references = match self {
            Workload::Drawn => profile.value(Key::Frames) * profile.value(Key::ReferencesMean),
            Workload::Traced(_) => 0.0,
        };
        let remedy = "lower frames.count or frames.references_mean";
        at_most("references of a run", references as u64, REFERENCES_MAX, remedy)
    }

    /// How many pages a cache of this capacity has.
    fn capacity_pages(&self, profile: &Profile, capacity_percent: f64) -> u32 {
        let footprint = match self {
            Workload::Drawn => profile.value(Key::Footprint),
            Workload::Traced(traced) => f64::from(traced.footprint_pages()),
        };
        (footprint * capacity_percent / 100.0).round() as u32
    }

    /// What the frames of this profile ask for, and what caches of these capacities miss of it. Deterministic for a seed.
    pub(super) fn demand(
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

    /// Of the demand's frames, what this profile's cache misses. Its capacity is one that the demand was made for.
    pub(super) fn misses<'a>(&self, demand: &'a Demand, profile: &Profile) -> &'a [u32] {
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

/// Caches that have seen all pages before, in any order: a program that has run for long.
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

/// Caches that begin empty: what the trace reads first is nowhere yet.
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

/// Misses by frame, for each capacity.
struct Counter {
    caches: Caches,
    /// 1 if there is one of no pages, which the caches don't know.
    empty: usize,
    /// References of this frame by how many caches missed them.
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
        // What the k-th misses are those that k + 1 or more missed.
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
    fn without_a_cache_everything_misses_and_with_all_of_it_nothing() {
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
    fn a_capacity_misses_the_same_whatever_others_are_counted_with_it() {
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
    fn references_have_the_mean_the_spread_and_the_correlation_asked_for() {
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
        let beside: f64 = logs.windows(2).map(|two| (two[0] - middle) * (two[1] - middle)).sum();
        assert!(((square / logs.len() as f64).sqrt() - 0.5).abs() < 0.015);
        assert!((beside / square - 0.6).abs() < 0.03, "{}", beside / square);
    }

    #[test]
    fn a_run_without_an_end_is_refused() {
        let profile = profile(&[("frames", 1e6), ("references", 1e7)]);
        let error = Workload::Drawn.check(&profile).unwrap_err().to_string();
        assert!(error.contains("frames.count"), "{error}");
        assert!(Workload::Drawn.check_counts(&profile, 200).is_ok());
        let error = Workload::Drawn.check_counts(&profile, 10_000).unwrap_err().to_string();
        assert!(error.contains("fewer values"), "{error}");
    }
}
