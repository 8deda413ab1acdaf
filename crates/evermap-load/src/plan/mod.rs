//! Which methods are tried, in which order, and why: a pure function of facts and wishes.

mod facts;
mod method;
mod wishes;

pub use facts::Facts;
pub use method::Method;
pub(crate) use wishes::Wishes;
pub use wishes::{Cache, ForkPolicy, Latency, Order};

use evermap_observe::FileSystem;

/// Less than this is read by one call: setting anything up takes longer.
pub(crate) const BRIEF_BYTES_MAX: u64 = 256 << 10;
/// Of less than this the first window is half or more: all of it is there as soon (cold, 4 MiB on demand: first use after 1.5 ms, finished after 2.8; by eager takeover 2.1 and 2.4; of 1 MiB finished after 1.0 and
/// 0.9 ms).
const ON_DEMAND_BYTES_MIN: u64 = 4 << 20;
/// From this share on a file counts as cached.
const WARM_SHARE_MIN: f64 = 0.8;
/// From this share of written pages on, private memory that is filled at once costs less than a copy and a fault for each (warm, two processors; 64 MiB took 1.5 + 49 x ms
/// by a mapping, 12 to 14 ms by reads into huge pages: they meet at 0.22).
const WRITTEN_SHARE_MAX: f64 = 0.22;
/// Of a smaller share of pages there is none in most huge pages, and whatever is read of those is for nothing (cold, 1 GiB, 0.1 % written at random: 312 ms by a mapping, 445 to 650 by takeover).
const HARDLY_TOUCHED_SHARE: f64 = 1.0 / 512.0;
/// Readers of a file system that decompresses: it does so in whoever reads.
const THREADS_DECOMPRESSING: usize = 8;
/// Readers of what is cached: copying, they wait for memory, and more of them wait for each other.
const THREADS_MAX: usize = 4;

/// A method, and why it has its place in a plan.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Choice {
    /// What is tried.
    pub method: Method,
    /// Threads, for those that read.
    pub threads: usize,
    /// Why.
    pub why: String,
}

/// What will be tried, the best first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Plan {
    pub(crate) choices: Vec<Choice>,
}

/// There is not enough memory, and nothing that does with less.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NoMemory {
    pub(crate) needed_bytes: u64,
    pub(crate) available_bytes: u64,
}

/// Whether the file is mapped, however much memory and whatever device there is: then nobody has to ask. `facts` need to tell neither.
pub(crate) fn maps_anyway(facts: &Facts, wishes: &Wishes) -> bool {
    let planner = Planner { facts, wishes, choices: Vec::new() };
    // What is written may be more than there is, and a clone better.
    let may_be_cloned = facts.shares_blocks && planner.written() > 0.0;
    match wishes.method {
        Some(method) => method.maps_the_file(),
        None => planner.may_map() && planner.maps_first().is_some() && !may_be_cloned,
    }
}

/// Plans a load.
pub(crate) fn plan(facts: &Facts, wishes: &Wishes) -> Result<Plan, NoMemory> {
    if let Some(method) = wishes.method {
        let threads = wishes.threads.unwrap_or(threads_for(method, facts));
        return Ok(Plan {
            choices: vec![Choice { method, threads, why: "asked for by name".into() }],
        });
    }
    let mut planner = Planner { facts, wishes, choices: Vec::new() };
    planner.plan()?;
    Ok(Plan { choices: planner.choices })
}

/// Memory that so many private bytes take besides: page tables (a 512th), stacks, rings. A process in a control group that had just the bytes of a
/// file, and up to 0.3 % more, was killed.
fn kept_for(bytes: u64) -> u64 {
    bytes / 256 + (2 << 20)
}

/// Threads, if nobody says how many.
fn threads_for(method: Method, facts: &Facts) -> usize {
    let is_cold = facts.resident_share() < WARM_SHARE_MIN;
    match method {
        Method::Read if facts.bytes < BRIEF_BYTES_MAX => 1,
        _ if facts.is_compressed && is_cold => THREADS_DECOMPRESSING,
        _ => facts.processors.clamp(1, THREADS_MAX),
    }
}

struct Planner<'p> {
    facts: &'p Facts,
    wishes: &'p Wishes,
    choices: Vec<Choice>,
}

impl Planner<'_> {
    fn add(&mut self, method: Method, why: impl Into<String>) {
        let is_allowed = self.may_map() || !method.maps_the_file();
        if is_allowed && !self.choices.iter().any(|choice| choice.method == method) {
            let threads = self.wishes.threads.unwrap_or(threads_for(method, self.facts));
            self.choices.push(Choice { method, threads, why: why.into() });
        }
    }

    fn may_map(&self) -> bool {
        self.wishes.may_map || self.facts.is_unchangeable
    }

    fn is_warm(&self) -> bool {
        self.facts.resident_share() >= WARM_SHARE_MIN
    }

    fn touched(&self) -> f64 {
        self.wishes.touched.unwrap_or(1.0)
    }

    fn written(&self) -> f64 {
        self.wishes.written.unwrap_or(1.0).min(self.touched())
    }

    /// How much is cached, for people.
    fn cached(&self) -> String {
        format!("{:.0} % are cached", self.facts.resident_share() * 100.0)
    }

    fn plan(&mut self) -> Result<(), NoMemory> {
        let (facts, wishes) = (self.facts, self.wishes);
        if facts.bytes < BRIEF_BYTES_MAX {
            self.add(Method::Read, "it is short");
            return Ok(());
        }
        if let Some(why) = self.fits_not() {
            return self.without_memory(why, self.written());
        }
        if let Some(why) = self.maps_first() {
            self.add(Method::MmapHuge, why);
        }
        if facts.is_compressed && !self.is_warm() {
            self.add(
                Method::ReadHuge,
                format!("{} decompresses in whoever reads: several do", facts.file_system),
            );
        } else if facts.is_in_memory {
            self.add(Method::ReadHuge, "it is in memory: copied once, into huge pages");
        } else if self.is_warm() {
            self.add(Method::ReadHuge, format!("{}: copied once, into huge pages", self.cached()));
        } else if wishes.cache == Cache::Keep {
            self.add(Method::ReadHuge, "the cache is to have it");
        } else {
            self.plan_cold();
        }
        self.add(Method::Read, "what is left");
        Ok(())
    }

    /// Why the file's own pages are best, if they are.
    fn maps_first(&self) -> Option<String> {
        let (facts, wishes) = (self.facts, self.wishes);
        let written = self.written();
        let cached = match facts.is_in_memory {
            true => "it is in memory".into(),
            false => self.cached(),
        };
        if self.touched() < HARDLY_TOUCHED_SHARE && wishes.cache != Cache::Drop {
            return Some("hardly any of it is touched".into());
        }
        if facts.is_compressed && !self.is_warm() {
            // 64 MiB in order: 22 ms by a mapping, 38 by eight that read; at random 77 and 94, but 256 MiB at random 365 and 264.
            let is_ahead = facts.file_system == FileSystem::EROFS.name()
                && written == 0.0
                && wishes.order != Order::Random;
            return is_ahead.then(|| "erofs decompresses what it reads ahead elsewhere".into());
        }
        if facts.is_in_memory && !self.is_warm() {
            // A hole that is looked at through a mapping takes memory for good.
            return None;
        }
        if self.is_warm() {
            return match written {
                0.0 => Some(format!("{cached}, and nothing is written")),
                _ if written < WRITTEN_SHARE_MAX => {
                    Some(format!("{cached}, and {:.0} % are written", written * 100.0))
                }
                _ => None,
            };
        }
        if wishes.cache == Cache::Keep {
            return (written < WRITTEN_SHARE_MAX)
                .then(|| "the cache is to have it, and little is written".into());
        }
        // In whatever order it is touched (64 MiB and 1 GiB, in order and at random: 0.79 to 1.09 of what eager takeover takes, with its first page after 3 to 4 ms), and
        // the next one finds it in the cache.
        (written == 0.0 && wishes.cache != Cache::Drop)
            .then(|| format!("{cached}, nothing is written: read ahead in units of 2 MiB"))
    }

    fn plan_cold(&mut self) {
        let cached = self.cached();
        if self.facts.direct_block_bytes.is_some() {
            let first = self.wishes.latency == Latency::FirstUse;
            if first && self.facts.bytes >= ON_DEMAND_BYTES_MIN {
                self.add(Method::TakeoverOnDemand, format!("{cached}, first use matters"));
            }
            let why = format!("{cached}, and the device writes into private memory itself");
            self.add(Method::Takeover, why);
        }
        self.add(Method::ReadUncached, cached);
        self.add(Method::ReadHuge, "the cache may have it");
    }

    /// Why its private memory is not to be had, if it is not.
    fn fits_not(&self) -> Option<NoMemory> {
        let needed_bytes = self.facts.bytes;
        let there =
            self.facts.available_bytes.map(|there| there.saturating_sub(kept_for(needed_bytes)));
        let available_bytes = match (there, self.wishes.memory_bytes_max) {
            (Some(there), Some(allowed)) => there.min(allowed),
            (there, allowed) => there.or(allowed)?,
        };
        (needed_bytes > available_bytes).then_some(NoMemory { needed_bytes, available_bytes })
    }

    /// Pages of a file can be given back and had again; private ones only with swap.
    fn without_memory(&mut self, why: NoMemory, written: f64) -> Result<(), NoMemory> {
        let (needed, available) = (why.needed_bytes.div_ceil(1 << 20), why.available_bytes >> 20);
        let short = format!("it takes {needed} MiB, and {available} MiB can be had");
        let written_bytes = (self.facts.bytes as f64 * written) as u64;
        if self.facts.shares_blocks && written_bytes > why.available_bytes {
            self.add(Method::Clone, format!("{short}: what is written goes to a clone's cache"));
        }
        self.add(Method::MmapHuge, format!("{short}: pages of the file can be given back"));
        if self.facts.shares_blocks {
            self.add(Method::Clone, format!("{short}: what is written goes to a clone's cache"));
        }
        if self.choices.is_empty() { Err(why) } else { Ok(()) }
    }
}

#[cfg(test)]
pub(crate) mod tests;
