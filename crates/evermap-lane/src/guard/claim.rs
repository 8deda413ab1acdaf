//! Claim of a core by one lane: a lock on a file, which ends with the processes that hold it.

use std::fs::{self, File};
use std::io::{self, Read, Seek, Write};
use std::os::fd::OwnedFd;

use super::StateDirectory;
use crate::machine::Machine;
use crate::policy::Core;
use crate::{Error, Result, sys::lock};

/// Bytes read from a claim file, which holds a process number and a name.
const HOLDER_BYTES_MAX: u64 = 256;

/// Exclusive claim of a core among the lanes of a state directory. It lasts until it and all shares
/// of it ([`Claim::share`]) are dropped; a guardian keeps its share until the lane's changes are
/// undone.
#[derive(Debug)]
pub struct Claim {
    core: u32,
    file: File,
}

impl Claim {
    /// Claims the core.
    ///
    /// # Errors
    /// [`Error::CoreTaken`] names the holder.
    pub fn take(state: &StateDirectory, core: u32) -> Result<Self> {
        let path = state.core(core);
        let failed = |operation| {
            let path = path.clone();
            move |source| Error::Io { operation, path, source }
        };
        let mut file = File::options()
            .create(true)
            .truncate(false)
            .read(true)
            .write(true)
            .open(&path)
            .map_err(failed("open the core's claim"))?;
        if !lock::try_lock(&file).map_err(failed("claim the core"))? {
            return Err(Error::CoreTaken { core, holder: holder(&mut file), path });
        }
        let mut claim = Self { core, file };
        claim.write_holder(std::process::id()).map_err(failed("write the claim of the core"))?;
        Ok(claim)
    }

    /// Claims the wanted core, or chooses one, and returns the reasons for it. Lanes that choose
    /// concurrently get different cores, while there are some.
    ///
    /// # Errors
    /// Same errors as [`Claim::take`] and [`Machine::choose_core`]. If a core was named and is
    /// taken, the error names its holder.
    pub(crate) fn choose(
        machine: &Machine,
        wish: Core,
        state: &StateDirectory,
    ) -> Result<(Self, Vec<String>)> {
        let mut taken = if wish == Core::Auto { claimed(state) } else { Vec::new() };
        loop {
            let chosen = machine.choose_core(wish, &taken)?;
            match Self::take(state, chosen.core) {
                Err(Error::CoreTaken { core, .. }) if wish == Core::Auto => taken.push(core),
                Err(error) => return Err(error),
                Ok(claim) => return Ok((claim, chosen.why)),
            }
        }
    }

    /// Opens a claim that [`Claim::share`] handed over, in the process that received it.
    pub(crate) fn from_shared(core: u32, descriptor: OwnedFd) -> Self {
        Self { core, file: File::from(descriptor) }
    }

    /// Number of the core.
    pub fn core(&self) -> u32 {
        self.core
    }

    /// Returns a descriptor for another process, which has the claim while it keeps that open.
    pub fn share(&self) -> io::Result<OwnedFd> {
        Ok(self.file.try_clone()?.into())
    }

    /// Releases the core at once, for all processes that share the claim.
    pub fn release(self) -> io::Result<()> {
        lock::unlock(&self.file)
    }

    /// Writes the holder into the file, for error messages of others.
    fn write_holder(&mut self, process: u32) -> io::Result<()> {
        let name = fs::read_to_string("/proc/self/comm").unwrap_or_default();
        self.file.set_len(0)?;
        self.file.rewind()?;
        write!(self.file, "{process} {}", name.trim())
    }
}

/// Returns the holder as it wrote itself into the file.
fn holder(file: &mut File) -> String {
    let mut text = String::new();
    let read = file.rewind().and_then(|()| file.take(HOLDER_BYTES_MAX).read_to_string(&mut text));
    let words = read.ok().and_then(|_| text.trim().split_once(' '));
    match words {
        Some((process, name)) => format!("process {process} ({name})"),
        // The holder has the lock but has not written yet.
        None => "another lane".into(),
    }
}

/// Returns the cores that lanes of this state directory have claimed. Cost: a call for each core
/// that ever had a lane. Takes no lock.
pub fn claimed(state: &StateDirectory) -> Vec<u32> {
    let cores = fs::read_dir(state.path().join("cores")).into_iter().flatten().flatten();
    let mut claimed: Vec<u32> = cores
        .filter_map(|entry| {
            let core = entry.file_name().to_str()?.parse().ok()?;
            let file = File::open(entry.path()).ok()?;
            lock::is_locked(&file).unwrap_or(false).then_some(core)
        })
        .collect();
    claimed.sort_unstable();
    claimed
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state() -> (tempfile::TempDir, StateDirectory) {
        let place = tempfile::tempdir().unwrap();
        let state = StateDirectory::at(place.path().join("state")).unwrap();
        (place, state)
    }

    #[test]
    fn a_second_claim_of_a_core_is_refused_and_names_the_holder() {
        let (_place, state) = state();
        let first = Claim::take(&state, 3).unwrap();
        assert_eq!(first.core(), 3);
        let error = Claim::take(&state, 3).unwrap_err();
        assert!(matches!(error, Error::CoreTaken { core: 3, .. }), "{error}");
        let me = format!("process {}", std::process::id());
        assert!(error.to_string().contains(&me), "{error}");
        Claim::take(&state, 4).unwrap();
        drop(first);
        Claim::take(&state, 3).unwrap();
    }

    #[test]
    fn a_claim_lasts_until_all_shares_are_dropped() {
        let (_place, state) = state();
        let claim = Claim::take(&state, 0).unwrap();
        let kept = claim.share().unwrap();
        drop(claim);
        assert_eq!(claimed(&state), [0]);
        drop(kept);
        assert!(claimed(&state).is_empty());
        let claim = Claim::take(&state, 0).unwrap();
        let kept = claim.share().unwrap();
        claim.release().unwrap();
        assert!(claimed(&state).is_empty(), "released for all shares");
        drop(kept);
    }

    #[test]
    fn listing_claims_takes_no_lock() {
        let (_place, state) = state();
        std::fs::write(state.core(9), "").unwrap();
        std::fs::write(state.path().join("cores/strange"), "").unwrap();
        assert!(claimed(&state).is_empty());
        let _claim = Claim::take(&state, 9).unwrap();
        assert_eq!(claimed(&state), [9]);
    }
}
