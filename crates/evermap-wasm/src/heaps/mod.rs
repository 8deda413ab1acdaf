//! What one instance has mapped, and the five things that it can ask for.
//!
//! Nothing that comes from the guest is believed: numbers are checked, names are copied out and
//! checked then, objects are found by the access table and never by what a guest says of them.
//! `imports` turns calls into these; `linear` is the memory they are about; `stat` what is told of an
//! object.

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
use crate::application::{ApplicationId, SecretKey};
use crate::codes::{Code, Refusal};
use crate::error::{Error, Result};
use crate::layout;
use crate::names::{NAME_BYTES_MAX, ObjectName};
use crate::report::Counts;
pub(crate) use imports::add_to_linker;
use linear::CallerMemory;
pub(crate) use linear::{Linear, NO_MEMORY};

/// A hint for a new object is followed up to this.
const HINT_BYTES_MAX: u64 = 16 << 20;

/// Whom an instance maps objects for, and with which rights.
#[derive(Clone, Debug)]
pub(crate) struct Tenant {
    pub(crate) store: Store,
    /// What guests of the sandbox have read.
    pub(crate) readers: Arc<GuestReaders>,
    pub(crate) table: AccessTable,
    pub(crate) application: ApplicationId,
    pub(crate) key: ApplicationKey,
    /// What the access table knew the application's key by when the guest was started.
    pub(crate) verifier: String,
    /// Keys of other applications whose objects it may have rights to.
    pub(crate) other_keys: BTreeMap<ApplicationId, SecretKey>,
    /// Rights for this run alone; they stand above the table's.
    pub(crate) allowed: Vec<(ObjectName, Level)>,
    pub(crate) write: WriteOptions,
    /// Level *read* is given as such, with pages that fault when they are stored to.
    pub(crate) read_only_pages: bool,
}

enum Mapped {
    Session(Box<GuestSession>),
    Snapshot(GuestSnapshot),
}

struct Open {
    name: ObjectName,
    /// As it was asked for.
    level: Level,
    mapped: Mapped,
}

/// One instance's objects. Dropping it takes them out of the instance's memory.
pub(crate) struct Heaps {
    tenant: Tenant,
    /// By guest address of the superblock. Before the memory: they are unmapped first.
    open: BTreeMap<u32, Open>,
    /// Where they are mapped; none for a module without a memory for it.
    linear: Option<Linear>,
    /// Why there is none.
    no_linear: Refusal,
    /// The module was linked so that none can be mapped.
    objected: bool,
    last: Option<Refusal>,
    pub(crate) counts: Counts,
}

impl Heaps {
    /// The heaps of an instance that is about to be made; `objection` is why none can be mapped into it.
    pub(crate) fn new(tenant: Tenant, objection: Option<&str>) -> Heaps {
        let no_linear = match objection {
            Some(why) => layout::refusal(why),
            None => Refusal::new(
                Code::MemoryLayout,
                "objects cannot be mapped while the module is being started; call `map` from `_start` or later, and not from its start function",
            ),
        };
        let objected = objection.is_some();
        let counts = Counts::default();
        Heaps {
            tenant,
            open: BTreeMap::new(),
            linear: None,
            no_linear,
            objected,
            last: None,
            counts,
        }
    }

    /// Says where the instance's memory is, or why objects cannot be mapped there. What was wrong with
    /// the module already stays the reason.
    pub(crate) fn attach(&mut self, linear: Result<Linear, Refusal>) {
        match linear {
            _ if self.objected => {}
            Ok(linear) => self.linear = Some(linear),
            Err(why) => self.no_linear = why,
        }
    }

    pub(crate) fn linear(&self) -> Option<&Linear> {
        self.linear.as_ref()
    }

    /// Unmaps everything; what was not committed is forgotten.
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

    fn need_linear(&self) -> Result<&Linear, Refusal> {
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
        // First: such a module has to be linked anew, whatever else is wrong with the call.
        self.need_linear()?;
        let level = level_of(level)?;
        let name = copy_name(memory, name, name_bytes)?;
        let name = self.find_name(&name)?;
        let known = self.open.iter().find(|(_, open)| open.name == name);
        if let Some((&base, open)) = known {
            if open.level != level {
                let words = format!(
                    "`{}` is mapped at level {} already; unmap it first",
                    name.name(),
                    open.level
                );
                return Err(Refusal::new(Code::Busy, words));
            }
            // What it has it keeps; it gets no more when the right was taken back.
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
        // The object stays mapped even where it cannot grow so far.
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
                    "`{}` is mapped at level {}, which has no commits; unmap it and map it at level write (3), which the application needs the right to",
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

    /// Works also where no object can be mapped: that is what it is asked about most.
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

    /// What a call gives: the value, or the negative code, with the words kept.
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

    /// Whose object a name means: an own one, or, with its owner before a colon, somebody else's.
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
        // Whether it exists is nobody's business who may not even look.
        let words = match right {
            Level::None => format!("`{name}` is not this application's, and not shared with it"),
            right => format!("this application may have `{name}` at level {right}, not {level}"),
        };
        let words = format!(
            "{words}; its host can give the right: `evermap sandbox grant {} {name}:{level}`",
            tenant.application
        );
        Err(Refusal::new(Code::Denied, words))
    }

    fn map_for_writing(&self, name: &ObjectName, bytes: u32) -> Result<GuestSession, Refusal> {
        let tenant = &self.tenant;
        let linear = self.need_linear()?;
        let store = tenant.store.for_application(self.key_of(name.owner())?);
        let given = TableAddresses::of(tenant.table.file(), name);
        let addresses: Arc<dyn GuestAddresses> = given.clone();
        let in_store = name.in_store();
        let write = || store.write_guest(in_store, linear.memory(), &addresses, &tenant.write);
        let opened = match write() {
            Err(StoreError::NotFound { .. }) if *name.owner() == tenant.application => {
                self.check_not_removed()?;
                tenant.table.forget_missing(|known| {
                    // Better to keep one too many than to forget one.
                    store.contains(known).unwrap_or(true)
                })?;
                let hint = u64::from(bytes).min(HINT_BYTES_MAX);
                let window = linear.memory().window();
                store.create_guest(in_store, window, &addresses, hint).inspect_err(|error| {
                    // After any other error it may be there.
                    if matches!(
                        error,
                        StoreError::DiskFull { .. }
                            | StoreError::FileSizeLimit { .. }
                            | StoreError::OutOfAddresses { .. }
                    ) {
                        given.take_back();
                    }
                })?;
                write()
            }
            opened => opened,
        };
        let session = opened?;
        given.reuse_all_but(session.regions().iter().map(GuestRegion::lease));
        Ok(session)
    }

    /// Refuses to make objects for an application that was removed after the guest was started. Its key
    /// is gone from the key ring, so nobody could open them again.
    fn check_not_removed(&self) -> Result<(), Refusal> {
        let Tenant { table, application, verifier, .. } = &self.tenant;
        match table.knows_with(application, verifier) {
            Ok(true) => Ok(()),
            Ok(false) | Err(Error::WrongKey { .. }) => Err(Refusal::new(
                Code::Denied,
                format!(
                    "application `{application}` was removed while its guest ran; start the guest again"
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
        let memory = self.need_linear()?.memory();
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
                "the host has no key of application `{owner}`; it has to start this guest with that key (`Application::with_key_of`)"
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

/// The name that a guest passes, before it is known to be one.
fn copy_name(memory: &CallerMemory, name: u32, name_bytes: u32) -> Result<String, Refusal> {
    let invalid = || {
        let words = "a name has 1 to 64 ASCII letters, digits, `.`, `_` and `-`, and does not begin with `.`; use such a name";
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
            let words = format!("{level} is no level; pass 1 (snapshot), 2 (read) or 3 (write)");
            Err(Refusal::new(Code::InvalidArgument, words))
        }
    }
}

fn not_mapped(base: u32) -> Refusal {
    Refusal::new(
        Code::NotMapped,
        format!(
            "no object is mapped at {base:#x}; pass an address that `map` gave, before `unmap`"
        ),
    )
}
