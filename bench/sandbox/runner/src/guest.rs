//! `runner child guest MODULE DATA STORE ARGUMENTS...`: one run of a guest: the folder `DATA` as
//! its `.`, heaps in `STORE`, its output on the standard output.
//!
//! The module is compiled once: its code is kept in wasmtime's cache, in a folder of the
//! benchmark's. What a run cost is counted from the guest's first instruction to its last, without
//! the start of the process and of the engine.

use std::path::{Path, PathBuf};

use evermap_wasm::wasmtime::{Cache, CacheConfig};
use evermap_wasm::{End, GuestOptions, Report, Sandbox, SandboxOptions, SecretKey};
use serde::{Deserialize, Serialize};

use crate::Outcome;
use crate::cost::{Cost, Whose};

/// The folder for compiled modules; without, nothing is kept.
pub const CACHE: &str = "EVERMAP_BENCH_CACHE";
/// The file for the account of the run; without, none is written.
pub const ACCOUNT: &str = "EVERMAP_BENCH_ACCOUNT";
/// `1`: WASI's file operations are done in other threads, as they are by default.
pub const HOP: &str = "EVERMAP_BENCH_HOP";

/// All the guest addresses that there are.
const QUOTA_BYTES: u64 = 1 << 30;
/// So often a module would have to be used until wasmtime packs it anew, in a thread of its own,
/// beside what is measured.
const NEVER: u64 = u64::MAX;

/// What a run cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Account {
    pub host_calls: u64,
    pub crossings: u64,
    pub map_calls: u64,
    pub commits: u64,
    pub mapped_bytes: u64,
    pub elapsed_ns: u64,
    pub cost: Cost,
}

impl Account {
    fn new(report: Report, cost: Cost) -> Account {
        Account {
            host_calls: report.host_calls,
            crossings: report.crossings,
            map_calls: report.map_calls,
            commits: report.commits,
            mapped_bytes: report.mapped_bytes,
            elapsed_ns: report.elapsed_ns,
            cost,
        }
    }

    /// The numbers of the sandbox, with their units.
    pub fn all(&self) -> [(&'static str, u64, &'static str); 6] {
        [
            ("host_calls", self.host_calls, "calls"),
            ("crossings", self.crossings, "crossings"),
            ("map_calls", self.map_calls, "calls"),
            ("commits", self.commits, "commits"),
            ("mapped", self.mapped_bytes, "bytes"),
            ("elapsed", self.elapsed_ns, "ns"),
        ]
    }
}

/// Runs it.
pub fn run(module: &str, data: &str, store: &str, arguments: &[String]) -> Outcome {
    let sandbox = sandbox(Path::new(store))?;
    let id = "bench".parse()?;
    let application = sandbox.application(id, SecretKey::from_bytes([7; 32]))?;
    sandbox.access().set_quota(application.id(), QUOTA_BYTES)?;
    let bytes = std::fs::read(module).map_err(|error| format!("{module}: {error}"))?;
    let compiled = sandbox.compile(module, &bytes)?;

    let mut options = GuestOptions::new().inherit_stdio().preopen(data, ".", true);
    options = options.argument("workload");
    for argument in arguments {
        options = options.argument(argument);
    }
    if std::env::var(HOP).is_ok_and(|hop| hop == "1") {
        options = options.hop_threads();
    }
    let mut guest = sandbox.start(&compiled, &application, &options)?;
    let before = Cost::until_now(Whose::Own)?;
    let end = guest.run()?;
    let cost = Cost::until_now(Whose::Own)?.since(before);
    if let Some(path) = std::env::var_os(ACCOUNT).map(PathBuf::from) {
        let account = serde_json::to_string(&Account::new(guest.report(), cost))?;
        std::fs::write(path, account)?;
    }
    match end {
        End::Exited(0) => Ok(()),
        other => Err(format!("the guest ended otherwise than well: {other:?}").into()),
    }
}

/// A store as a sandbox, with the benchmark's cache of compiled modules.
pub fn sandbox(store: &Path) -> Outcome<Sandbox> {
    let mut options = SandboxOptions::new();
    if let Some(folder) = std::env::var_os(CACHE) {
        let mut cache = CacheConfig::new();
        cache.with_directory(folder).with_optimized_compression_usage_counter_threshold(NEVER);
        let cache = Cache::new(cache).map_err(|error| format!("{CACHE}: {error:#}"))?;
        options = options.config(|config| {
            config.cache(Some(cache));
        });
    }
    Ok(options.open(store)?)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn an_account_is_read_as_it_was_written() {
        let account = Account {
            host_calls: 3,
            cost: Cost { minor_faults: 4, ..Cost::default() },
            ..Account::default()
        };
        let text = serde_json::to_string(&account).unwrap();
        assert_eq!(serde_json::from_str::<Account>(&text).unwrap(), account);
    }
}
