//! `bench-sandbox child guest MODULE DATA STORE ARGUMENTS...`: runs a guest once, with the folder
//! `DATA` as its `.`, heaps in `STORE`, and its output on the standard output.
//!
//! The module is compiled once; wasmtime's cache keeps its code in a folder of the benchmark. The
//! cost is counted from the guest's first instruction to its last, without the start of the process
//! and the engine.

use std::path::{Path, PathBuf};

use evermap_wasm::wasmtime::{Cache, CacheConfig};
use evermap_wasm::{End, GuestOptions, Report, Sandbox, SandboxOptions, SecretKey};
use serde::{Deserialize, Serialize};

use crate::cost::{Cost, Whose};
use harness::Outcome;

/// Folder for compiled modules; without it, nothing is cached.
pub const CACHE: &str = "EVERMAP_BENCH_CACHE";
/// File for the account of the run; without it, none is written.
pub const ACCOUNT: &str = "EVERMAP_BENCH_ACCOUNT";
/// `1`: other threads perform WASI's file operations, as they do by default.
pub const HOP: &str = "EVERMAP_BENCH_HOP";

/// Quota of all guest addresses.
const QUOTA_BYTES: u64 = 1 << 30;
/// Uses of a module before wasmtime recompresses it. The high number avoids that work, which
/// another thread does during the measurement.
const NEVER: u64 = u64::MAX;

/// Cost of a run.
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

    /// Returns the sandbox's counts by name.
    pub fn all(&self) -> [(&'static str, u64); 6] {
        [
            ("host_calls", self.host_calls),
            ("crossings", self.crossings),
            ("map_calls", self.map_calls),
            ("commits", self.commits),
            ("mapped_bytes", self.mapped_bytes),
            ("elapsed_ns", self.elapsed_ns),
        ]
    }
}

/// Runs the guest.
pub fn run(module: &str, data: &str, store: &str, arguments: &[&str]) -> Outcome {
    let sandbox = sandbox(Path::new(store))?;
    let id = "bench".parse()?;
    let application = sandbox.application(id, SecretKey::from_bytes([7; 32]))?;
    sandbox.access().set_quota(application.id(), QUOTA_BYTES)?;
    let bytes = std::fs::read(module).map_err(|error| format!("{module}: {error}"))?;
    let compiled = sandbox.compile(module, &bytes)?;

    let mut options = GuestOptions::new().inherit_stdio().preopen(data, ".", true);
    options = options.argument("workload");
    for argument in arguments {
        options = options.argument(*argument);
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
        other => Err(format!("the guest did not exit normally: {other:?}").into()),
    }
}

/// Opens a store as a sandbox, with the benchmark's cache of compiled modules.
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
    fn an_account_survives_writing_and_reading() {
        let account = Account {
            host_calls: 3,
            cost: Cost { minor_faults: 4, ..Cost::default() },
            ..Account::default()
        };
        let text = serde_json::to_string(&account).unwrap();
        assert_eq!(serde_json::from_str::<Account>(&text).unwrap(), account);
    }
}
