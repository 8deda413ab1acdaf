//! The mapped objects of one instance, and the five operations on them.
//!
//! Data from the guest is never trusted: numbers are checked, names are copied out before they are
//! checked, and objects are found through the access table. `imports` calls the operations,
//! `linear` accesses the guest's memory, `stat` encodes the description of an object.

mod imports;
mod linear;
mod stat;

use std::collections::BTreeMap;
use std::sync::Arc;

use evermap::guest::{
    GuestAddresses, GuestReaders, GuestReading, GuestRegion, GuestSession, GuestSnapshot,
};
use evermap::{ApplicationKey, Error as StoreError, Store, WriteOptions};

use crate::access::{AccessTable, Level, TableAddresses};
use crate::application::SecretKey;
use crate::codes::{Code, Refusal};
use crate::error::{Error, Result};
use crate::layout;
use crate::names::{ApplicationId, NAME_BYTES_MAX, ObjectName};
use crate::report::Counts;
pub(crate) use imports::add_to_linker;
use linear::CallerMemory;
pub(crate) use linear::{LinearMemory, NO_MEMORY};

/// Maximum initial size of a new object from the guest's hint.
const HINT_BYTES_MAX: u64 = 16 << 20;

/// The application for which an instance maps objects, and its rights.
#[derive(Clone, Debug)]
pub(crate) struct Tenant {
    pub(crate) store: Store,
    /// Objects that guests of the sandbox have read, kept open.
    pub(crate) readers: Arc<GuestReaders>,
    pub(crate) table: AccessTable,
    pub(crate) application: ApplicationId,
    pub(crate) key: ApplicationKey,
    /// Hash of the application's key in the access table when the guest was started.
    pub(crate) verifier: String,
    /// Keys of other applications that may share objects with it.
    pub(crate) other_keys: BTreeMap<ApplicationId, SecretKey>,
    /// Rights for this run; they override the table.
    pub(crate) allowed: Vec<(ObjectName, Level)>,
    pub(crate) write: WriteOptions,
    /// Maps level *read* as read-only pages. A store there faults.
    pub(crate) read_only_pages: bool,
}

enum Mapped {
    Session(Box<GuestSession>),
    Snapshot(GuestSnapshot),
}

struct Open {
    name: ObjectName,
    /// The level that the guest asked for.
    level: Level,
    mapped: Mapped,
}

/// The objects of one instance. Dropping it unmaps them.
pub(crate) struct Heaps {
    tenant: Tenant,
    /// Objects by guest address of the superblock. Dropped before the memory, so that they are
    /// unmapped first.
    open: BTreeMap<u32, Open>,
    /// The memory into which objects are mapped; `None` if the module has no suitable one.
    linear: Option<LinearMemory>,
    /// The reason if `linear` is `None`.
    no_linear: Refusal,
    /// The module was linked without room for objects.
    has_layout_error: bool,
    last: Option<Refusal>,
    pub(crate) counts: Counts,
}

impl Heaps {
    /// Returns the heaps of an instance before it is started. `layout_error` is the reason why it
    /// cannot map objects.
    pub(crate) fn new(tenant: Tenant, layout_error: Option<&str>) -> Heaps {
        let no_linear = match layout_error {
            Some(why) => layout::refusal(why),
            None => Refusal::new(
                Code::MemoryLayout,
                "objects cannot be mapped from the module's start function; call `map` from `_start` or later",
            ),
        };
        let has_layout_error = layout_error.is_some();
        let counts = Counts::default();
        Heaps {
            tenant,
            open: BTreeMap::new(),
            linear: None,
            no_linear,
            has_layout_error,
            last: None,
            counts,
        }
    }

    /// Sets the instance's memory, or the reason why objects cannot be mapped there. An earlier
    /// layout error of the module stays.
    pub(crate) fn attach(&mut self, linear: Result<LinearMemory, Refusal>) {
        match linear {
            _ if self.has_layout_error => {}
            Ok(linear) => self.linear = Some(linear),
            Err(why) => self.no_linear = why,
        }
    }

    pub(crate) fn linear(&self) -> Option<&LinearMemory> {
        self.linear.as_ref()
    }

    /// Unmaps everything and discards uncommitted changes.
    pub(crate) fn clear(&mut self) {
        let mut snapshots = Vec::new();
        for open in std::mem::take(&mut self.open).into_values() {
            match open.mapped {
                Mapped::Session(session) => drop(session),
                Mapped::Snapshot(snapshot) => snapshots.push(snapshot),
            }
        }
        if let Some(linear) = &self.linear {
            linear.memory().end_all(snapshots);
        }
    }

    fn linear_memory(&self) -> Result<&LinearMemory, Refusal> {
        self.linear
            .as_ref()
            .ok_or_else(|| Refusal::new(self.no_linear.code, self.no_linear.words.clone()))
    }

    fn map(
        &mut self,
        memory: &CallerMemory,
        name: u32,
        name_bytes: u32,
        bytes: u32,
        level: u32,
    ) -> Result<u32, Refusal> {
        // Checked first: such a module must be linked again, whatever else is wrong with the call.
        self.linear_memory()?;
        let level = level_of(level)?;
        let name = copy_name(memory, name, name_bytes)?;
        let name = self.find_name(&name)?;
        let known = self.open.iter().find(|(_, open)| open.name == name);
        if let Some((&base, open)) = known {
            if open.level != level {
                let words = format!(
                    "`{}` is already mapped at level {}; unmap it first",
                    name.name(),
                    open.level
                );
                return Err(Refusal::new(Code::Busy, words));
            }
            // The mapping stays after the right was revoked, but cannot grow.
            if bytes > 0 {
                self.check_right(&name, level)?;
            }
            return self.grow(base, bytes).map(|()| base);
        }
        self.check_right(&name, level)?;
        let mapped = match level {
            Level::Write => Mapped::Session(Box::new(self.map_for_writing(&name, bytes)?)),
            _ => Mapped::Snapshot(self.map_for_reading(&name, level)?),
        };
        let base = mapped.base() as u32;
        self.counts.mapped_bytes += mapped.bytes();
        self.open.insert(base, Open { name, level, mapped });
        // The object stays mapped even if it cannot grow so far.
        self.grow(base, bytes).map(|()| base)
    }

    fn unmap(&mut self, base: u32) -> Result<u32, Refusal> {
        let open = self.open.remove(&base).ok_or_else(|| not_mapped(base))?;
        match open.mapped {
            Mapped::Session(session) => session.close()?,
            Mapped::Snapshot(snapshot) => drop(snapshot),
        }
        Ok(0)
    }

    fn commit(&mut self, base: u32) -> Result<u32, Refusal> {
        let open = self.open.get_mut(&base).ok_or_else(|| not_mapped(base))?;
        match &mut open.mapped {
            Mapped::Session(session) => {
                let committed = session.commit()?;
                self.counts.commits += u64::from(committed);
                Ok(u32::from(committed))
            }
            Mapped::Snapshot(_) => Err(Refusal::new(
                Code::ReadOnly,
                format!(
                    "`{}` is mapped at level {}, which cannot be committed; unmap it and map it at level write (3), for which the application needs the right",
                    open.name.name(),
                    open.level
                ),
            )),
        }
    }

    fn stat(
        &mut self,
        memory: &CallerMemory,
        base: u32,
        out: u32,
        out_bytes: u32,
    ) -> Result<u32, Refusal> {
        let open = self.open.get(&base).ok_or_else(|| not_mapped(base))?;
        let owner = open.name.owner();
        let left_bytes = self.tenant.table.left_bytes(owner).map_err(Refusal::from)?;
        let stat = stat::encode(base, open.level, &open.mapped, left_bytes);
        let shown = &stat[..stat.len().min(out_bytes as usize)];
        memory.copy_out(shown, out)?;
        Ok(stat.len() as u32)
    }

    /// Returns the last error. Also works for a module that cannot map objects, which needs it
    /// most.
    fn last_fault(
        &mut self,
        memory: &CallerMemory,
        out: u32,
        out_bytes: u32,
    ) -> Result<u32, Refusal> {
        let (code, words) =
            self.last.as_ref().map_or((0, ""), |last| (last.code as u32, last.words.as_str()));
        let text = [&code.to_le_bytes()[..], words.as_bytes()].concat();
        let shown = &text[..text.len().min(out_bytes as usize)];
        memory.copy_out(shown, out)?;
        Ok(text.len() as u32)
    }

    pub(crate) fn last_refusal(&self) -> Option<(Code, &str)> {
        self.last.as_ref().map(|last| (last.code, last.words.as_str()))
    }

    /// Returns the value, or the negative code, and keeps the message.
    fn answer(&mut self, result: Result<u32, Refusal>) -> i32 {
        match result {
            Ok(value) => value as i32,
            Err(refusal) => {
                self.counts.refused += 1;
                let code = refusal.code as i32;
                self.last = Some(refusal);
                -code
            }
        }
    }

    /// Resolves a name: an own object, or another application's after its owner and a colon.
    fn find_name(&self, name: &str) -> Result<ObjectName, Refusal> {
        let found = match name.contains(':') {
            true => name.parse(),
            false => ObjectName::new(&self.tenant.application, name),
        };
        found.map_err(|e| Refusal::new(Code::InvalidName, e.to_string()))
    }

    fn check_right(&self, name: &ObjectName, level: Level) -> Result<(), Refusal> {
        let tenant = &self.tenant;
        let here = tenant.allowed.iter().find(|(allowed, _)| allowed == name);
        let right = match here {
            Some((_, level)) => *level,
            None => tenant.table.level(&tenant.application, name).map_err(Refusal::from)?,
        };
        if level <= right {
            return Ok(());
        }
        // An application without any right must not learn if the object exists.
        let words = match right {
            Level::None => {
                format!("`{name}` does not belong to this application and is not shared with it")
            }
            right => format!("this application may map `{name}` at level {right}, not {level}"),
        };
        let words = format!(
            "{words}; the host can grant the right: `evermap sandbox grant {} {name}:{level}`",
            tenant.application
        );
        Err(Refusal::new(Code::Denied, words))
    }

    fn map_for_writing(&self, name: &ObjectName, bytes: u32) -> Result<GuestSession, Refusal> {
        let tenant = &self.tenant;
        let linear = self.linear_memory()?;
        let store = tenant.store.for_application(self.key_of(name.owner())?);
        let given = TableAddresses::of(tenant.table.file(), name);
        let addresses: Arc<dyn GuestAddresses> = given.clone();
        let in_store = name.in_store();
        let write = || store.write_guest(in_store, linear.memory(), &addresses, &tenant.write);
        let opened = match write() {
            Err(StoreError::NotFound { .. }) if *name.owner() == tenant.application => {
                self.check_not_removed()?;
                tenant.table.forget_missing(|known| {
                    // If the check fails, keep the object: a wrongly removed row is worse.
                    store.contains(known).unwrap_or(true)
                })?;
                let hint = u64::from(bytes).min(HINT_BYTES_MAX);
                let window = linear.memory().window();
                store.create_guest(in_store, window, &addresses, hint).inspect_err(|error| {
                    // After any other error the object may exist.
                    if matches!(
                        error,
                        StoreError::DiskFull { .. }
                            | StoreError::FileSizeLimit { .. }
                            | StoreError::OutOfAddresses { .. }
                            | StoreError::AddressQuota { .. }
                    ) {
                        given.release_unused();
                    }
                })?;
                write()
            }
            opened => opened,
        };
        let session = opened?;
        given.set_in_use(session.regions().iter().map(GuestRegion::lease));
        Ok(session)
    }

    /// Refuses to create objects for an application that was removed after the guest was started.
    /// Its key is gone from the key ring, so the objects could never be opened again.
    fn check_not_removed(&self) -> Result<(), Refusal> {
        let Tenant { table, application, verifier, .. } = &self.tenant;
        match table.knows_with(application, verifier) {
            Ok(true) => Ok(()),
            Ok(false) | Err(Error::WrongKey { .. }) => Err(Refusal::new(
                Code::Denied,
                format!(
                    "application `{application}` was removed while this guest ran; start the guest again"
                ),
            )),
            Err(error) => Err(error.into()),
        }
    }

    fn map_for_reading(&self, name: &ObjectName, level: Level) -> Result<GuestSnapshot, Refusal> {
        let reading = match level == Level::Read && self.tenant.read_only_pages {
            true => GuestReading::ReadOnly,
            false => GuestReading::Private,
        };
        let memory = self.linear_memory()?.memory();
        let key = Some(self.key_of(name.owner())?);
        Ok(self.tenant.readers.read(name.in_store(), key, memory, reading)?)
    }

    fn key_of(&self, owner: &ApplicationId) -> Result<ApplicationKey, Refusal> {
        let tenant = &self.tenant;
        if *owner == tenant.application {
            return Ok(tenant.key);
        }
        let key = tenant.other_keys.get(owner).ok_or_else(|| {
            let words = format!(
                "the host did not pass the key of application `{owner}`; it must start this guest with that key (`Application::with_key_of`)"
            );
            Refusal::new(Code::Denied, words)
        })?;
        Ok(key.application_key()?)
    }

    fn grow(&mut self, base: u32, bytes: u32) -> Result<(), Refusal> {
        if bytes == 0 {
            return Ok(());
        }
        let Some(Open { mapped: Mapped::Session(session), .. }) = self.open.get(&base) else {
            return Ok(());
        };
        let before = total_bytes(&session.regions());
        session.grow_to(u64::from(bytes))?;
        self.counts.mapped_bytes += total_bytes(&session.regions()) - before;
        Ok(())
    }
}

impl Mapped {
    fn base(&self) -> u64 {
        match self {
            Mapped::Session(session) => session.base(),
            Mapped::Snapshot(snapshot) => snapshot.base(),
        }
    }

    fn regions(&self) -> Vec<GuestRegion> {
        match self {
            Mapped::Session(session) => session.regions(),
            Mapped::Snapshot(snapshot) => snapshot.regions(),
        }
    }

    fn sequence(&self) -> u64 {
        match self {
            Mapped::Session(session) => session.sequence(),
            Mapped::Snapshot(snapshot) => snapshot.sequence(),
        }
    }

    fn bytes(&self) -> u64 {
        total_bytes(&self.regions())
    }
}

/// Copies the name that a guest passes. It is checked later.
fn copy_name(memory: &CallerMemory, name: u32, name_bytes: u32) -> Result<String, Refusal> {
    let invalid = || {
        let words = "the name is not valid; use 1 to 64 ASCII letters, digits, `.`, `_` and `-`, not beginning with `.`";
        Refusal::new(Code::InvalidName, words)
    };
    if name_bytes as usize > 2 * NAME_BYTES_MAX + 1 {
        return Err(invalid());
    }
    let bytes = memory.copy_in(name, name_bytes)?;
    String::from_utf8(bytes).map_err(|_| invalid())
}

fn total_bytes(regions: &[GuestRegion]) -> u64 {
    regions.iter().map(GuestRegion::length_bytes).sum()
}

fn level_of(level: u32) -> Result<Level, Refusal> {
    match level {
        1 => Ok(Level::Snapshot),
        2 => Ok(Level::Read),
        3 => Ok(Level::Write),
        _ => {
            let words = format!("{level} is not a level; pass 1 (snapshot), 2 (read) or 3 (write)");
            Err(Refusal::new(Code::InvalidArgument, words))
        }
    }
}

fn not_mapped(base: u32) -> Refusal {
    Refusal::new(
        Code::NotMapped,
        format!(
            "no object is mapped at {base:#x}; pass an address that `map` returned and `unmap` has not ended"
        ),
    )
}
