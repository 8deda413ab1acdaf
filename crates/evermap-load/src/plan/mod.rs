//! Plan of a load: which methods to try, in which order, and why. A pure function of facts and
//! options.

mod facts;
mod method;
mod options;

pub use facts::Facts;
pub use method::Method;
pub(crate) use options::Options;
pub use options::{Cache, ForkPolicy, Latency, Order};

use evermap_observe::FileSystem;

/// Smaller parts are read by one call, because any setup takes longer.
pub(crate) const SHORT_BYTES_MAX: u64 = 256 << 10;
/// Minimum size for on-demand loading. In smaller files, the first window is half or more of the
/// file, so all of it is loaded as soon. (Cold, 4 MiB on demand: first use after 1.5 ms, complete
/// after 2.8; by eager takeover 2.1 and 2.4. 1 MiB complete after 1.0 and 0.9 ms.)
const ON_DEMAND_BYTES_MIN: u64 = 4 << 20;
/// Minimum cached share for a file to count as cached.
const WARM_SHARE_MIN: f64 = 0.8;
/// Share of written pages from which filling private memory at once is cheaper than a copy and a
/// fault for each. (Warm, two processors, 64 MiB: 1.5 + 49 x ms by a mapping, 12 to 14 ms by reads
/// into huge pages; they meet at 0.22.)
const WRITTEN_SHARE_MAX: f64 = 0.22;
/// Share of touched pages below which most huge pages hold none, so that reading them is wasted.
/// (Cold, 1 GiB, 0.1 % written at random: 312 ms by a mapping, 445 to 650 by takeover.)
const HARDLY_TOUCHED_SHARE: f64 = 1.0 / 512.0;
/// Reading threads on a file system that decompresses in the reader.
const THREADS_DECOMPRESSING: usize = 8;
/// Maximum number of reading threads for all other files. Copying is bound by memory, and more
/// threads contend.
const THREADS_MAX: usize = 4;

/// Method with its reason, as an entry of a plan.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Choice {
    /// Method to try.
    pub method: Method,
    /// Number of threads, for methods that read.
    pub threads: usize,
    /// Reason.
    pub why: String,
}

/// Methods to try, best first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Plan {
    pub(crate) choices: Vec<Choice>,
}

/// Private memory does not suffice, and no method needs less.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NoMemory {
    pub(crate) needed_bytes: u64,
    pub(crate) available_bytes: u64,
}

/// Returns true if the file is mapped regardless of memory and device. `facts` need not contain
/// either.
pub(crate) fn maps_anyway(facts: &Facts, options: &Options) -> bool {
    let planner = Planner { facts, options, choices: Vec::new() };
    // Writes may exceed memory, and then a clone is better.
    let may_be_cloned = facts.shares_blocks && planner.written() > 0.0;
    match options.method {
        Some(method) => method.maps_the_file(),
        None => planner.may_map() && planner.maps_first().is_some() && !may_be_cloned,
    }
}

/// Plans a load.
pub(crate) fn plan(facts: &Facts, options: &Options) -> Result<Plan, NoMemory> {
    if let Some(method) = options.method {
        let threads = options.threads.unwrap_or(threads_for(method, facts));
        return Ok(Plan {
            choices: vec![Choice { method, threads, why: "requested by name".into() }],
        });
    }
    let mut planner = Planner { facts, options, choices: Vec::new() };
    planner.plan()?;
    Ok(Plan { choices: planner.choices })
}

/// Returns the additional memory that a load of `bytes` needs: page tables (a 512th), stacks,
/// rings. A process in a control group with just the file's bytes, and up to 0.3 % more, was
/// killed.
fn overhead_bytes(bytes: u64) -> u64 {
    bytes / 256 + (2 << 20)
}

/// Returns the number of threads if the user set none.
fn threads_for(method: Method, facts: &Facts) -> usize {
    let is_cold = facts.resident_share() < WARM_SHARE_MIN;
    match method {
        Method::Read if facts.bytes < SHORT_BYTES_MAX => 1,
        _ if facts.is_compressed && is_cold => THREADS_DECOMPRESSING,
        _ => facts.processors.clamp(1, THREADS_MAX),
    }
}

struct Planner<'p> {
    facts: &'p Facts,
    options: &'p Options,
    choices: Vec<Choice>,
}

impl Planner<'_> {
    fn add(&mut self, method: Method, why: impl Into<String>) {
        let is_allowed = self.may_map() || !method.maps_the_file();
        if is_allowed && !self.choices.iter().any(|choice| choice.method == method) {
            let threads = self.options.threads.unwrap_or(threads_for(method, self.facts));
            self.choices.push(Choice { method, threads, why: why.into() });
        }
    }

    fn may_map(&self) -> bool {
        self.options.may_map || self.facts.is_unchangeable
    }

    fn is_warm(&self) -> bool {
        self.facts.resident_share() >= WARM_SHARE_MIN
    }

    fn touched(&self) -> f64 {
        self.options.touched.unwrap_or(1.0)
    }

    fn written(&self) -> f64 {
        self.options.written.unwrap_or(1.0).min(self.touched())
    }

    /// Describes the cached share for messages.
    fn cached(&self) -> String {
        format!("{:.0} % are cached", self.facts.resident_share() * 100.0)
    }

    fn plan(&mut self) -> Result<(), NoMemory> {
        let (facts, options) = (self.facts, self.options);
        if facts.bytes < SHORT_BYTES_MAX {
            self.add(Method::Read, "the file is short");
            return Ok(());
        }
        if let Some(why) = self.shortage() {
            return self.without_memory(why, self.written());
        }
        if let Some(why) = self.maps_first() {
            self.add(Method::MmapHuge, why);
        }
        if facts.is_compressed && !self.is_warm() {
            self.add(
                Method::ReadHuge,
                format!(
                    "{} decompresses in the reading thread, so several threads read",
                    facts.file_system
                ),
            );
        } else if facts.is_in_memory {
            self.add(Method::ReadHuge, "the file is in memory; copied once into huge pages");
        } else if self.is_warm() {
            self.add(Method::ReadHuge, format!("{}; copied once into huge pages", self.cached()));
        } else if options.cache == Cache::Keep {
            self.add(Method::ReadHuge, "the file shall stay cached");
        } else {
            self.plan_cold();
        }
        self.add(Method::Read, "the fallback that always works");
        Ok(())
    }

    /// Returns the reason to map the file, if mapping is best.
    fn maps_first(&self) -> Option<String> {
        let (facts, options) = (self.facts, self.options);
        let written = self.written();
        let cached = match facts.is_in_memory {
            true => "the file is in memory".into(),
            false => self.cached(),
        };
        if self.touched() < HARDLY_TOUCHED_SHARE && options.cache != Cache::Drop {
            return Some("hardly any page is touched".into());
        }
        if facts.is_compressed && !self.is_warm() {
            // 64 MiB in order: 22 ms by a mapping, 38 with eight reading threads. At random 77 and
            // 94, but 256 MiB at random 365 and 264.
            let is_ahead = facts.file_system == FileSystem::EROFS.name()
                && written == 0.0
                && options.order != Order::Random;
            return is_ahead.then(|| "erofs decompresses its read-ahead in other threads".into());
        }
        if facts.is_in_memory && !self.is_warm() {
            // A hole read through a mapping of such a file allocates a page for good.
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
        if options.cache == Cache::Keep {
            return (written < WRITTEN_SHARE_MAX)
                .then(|| "the file shall stay cached, and little is written".into());
        }
        // Applies to any order of access (64 MiB and 1 GiB, in order and at random: 0.79 to 1.09 of
        // the time of eager takeover, with the first page after 3 to 4 ms). The next load finds the
        // file in the cache.
        (written == 0.0 && options.cache != Cache::Drop)
            .then(|| format!("{cached}, nothing is written; read ahead in units of 2 MiB"))
    }

    fn plan_cold(&mut self) {
        let cached = self.cached();
        if self.facts.direct_block_bytes.is_some() {
            let first = self.options.latency == Latency::FirstUse;
            if first && self.facts.bytes >= ON_DEMAND_BYTES_MIN {
                self.add(Method::TakeoverOnDemand, format!("{cached}, first use matters"));
            }
            let why = format!("{cached}, and the device writes directly into private memory");
            self.add(Method::Takeover, why);
        }
        self.add(Method::ReadUncached, cached);
        self.add(Method::ReadHuge, "the file may stay cached");
    }

    /// Returns the shortage if private memory does not suffice.
    fn shortage(&self) -> Option<NoMemory> {
        let needed_bytes = self.facts.bytes;
        let there = self
            .facts
            .available_bytes
            .map(|there| there.saturating_sub(overhead_bytes(needed_bytes)));
        let available_bytes = match (there, self.options.memory_bytes_max) {
            (Some(there), Some(allowed)) => there.min(allowed),
            (there, allowed) => there.or(allowed)?,
        };
        (needed_bytes > available_bytes).then_some(NoMemory { needed_bytes, available_bytes })
    }

    /// Plans without private memory: the kernel can evict and reread file pages, but private pages
    /// need swap.
    fn without_memory(&mut self, why: NoMemory, written: f64) -> Result<(), NoMemory> {
        let (needed, available) = (why.needed_bytes.div_ceil(1 << 20), why.available_bytes >> 20);
        let short = format!("the load needs {needed} MiB, and {available} MiB are available");
        let written_bytes = (self.facts.bytes as f64 * written) as u64;
        if self.facts.shares_blocks && written_bytes > why.available_bytes {
            self.add(Method::Clone, format!("{short}; writes go to the page cache of a clone"));
        }
        self.add(Method::MmapHuge, format!("{short}; the kernel can evict pages of the file"));
        if self.facts.shares_blocks {
            self.add(Method::Clone, format!("{short}; writes go to the page cache of a clone"));
        }
        if self.choices.is_empty() { Err(why) } else { Ok(()) }
    }
}

#[cfg(test)]
pub(crate) mod tests;
