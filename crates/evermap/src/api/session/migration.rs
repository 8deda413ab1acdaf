//! Schema evolution: opens an object whose root has an older type, and builds a root of the new
//! type from it, in one commit.
//!
//! Each step builds a root in a new block of the same object and releases the old one. The
//! superblock's root, type id and description change in the same commit. An error before that
//! commit ends the session, which discards all changes.

use std::ptr::NonNull;
use std::sync::Arc;

use evermap_heap::HeapError;

use super::Session;
use super::open::OpenSession;
use crate::alloc::Heap;
use crate::api::home::Use;
use crate::api::snapshot::root::{check_root, root_as, schema_mismatch};
use crate::api::store::Store;
use crate::commit::WriteOptions;
use crate::error::{Error, Result};
use crate::format::Superblock;
use crate::layout::OBJECTS;
use crate::persist::{
    Built, Mut, Persist, Slot, TypeId128, build_block_with, release_value, type_description,
    type_id,
};

/// Steps from older types of a root to newer ones, for [`Store::write_migrating`].
///
/// Steps are found by the id of the stored type, and run one after the other until the requested
/// type is reached. Add a step from each old version to the newest, or one from each version to the
/// next, or both.
#[derive(Default)]
pub struct Migrations {
    steps: Vec<Step>,
}

struct Step {
    from: TypeId128,
    to: TypeId128,
    description: &'static str,
    bytes: usize,
    /// Checks size and alignment of a root of the older type.
    check: fn(&Superblock) -> bool,
    /// Builds the new root from the old one and releases the old one.
    run: Box<Run>,
}

type Run = dyn Fn(&Heap, NonNull<u8>) -> Result<NonNull<u8>> + Send + Sync;

impl Migrations {
    /// Creates an empty list of steps.
    ///
    /// ```
    /// let migrations = evermap::Migrations::new();
    /// # let _ = migrations;
    /// ```
    pub fn new() -> Migrations {
        Migrations::default()
    }

    /// Adds a step: `migrate` gets a cursor to the old root and fills the slot of the new one.
    ///
    /// Build parts from references to the old ones, which copies them, or move containers over with
    /// [`Mut::detach`], which doesn't. The old root is released afterwards. See
    /// [`Store::write_migrating`] for an example.
    #[must_use]
    pub fn step<Old: Persist, New: Persist>(
        mut self,
        migrate: impl for<'o, 's> Fn(Mut<'o, Old>, Slot<'s, New>) -> Result<Built<'s, New>, HeapError>
        + Send
        + Sync
        + 'static,
    ) -> Migrations {
        self.steps.push(Step {
            from: type_id::<Old>(),
            to: type_id::<New>(),
            description: type_description::<New>(),
            bytes: size_of::<New>(),
            check: fits::<Old>,
            run: Box::new(move |heap, old| {
                let old = old.cast::<Old>();
                // SAFETY: the session's root, whose type was compared. No other reference to it
                // exists.
                let cursor = unsafe { Mut::from_raw(heap, old) };
                let new = build_block_with(heap, |slot| migrate(cursor, slot))?;
                // SAFETY: the rest of the old root, which is no longer in use.
                unsafe { release_value(heap, old) };
                Ok(new.cast())
            }),
        });
        self
    }

    /// Returns the steps from the stored type to the requested one, if there are such steps. Uses
    /// each step at most once.
    fn path(&self, stored: TypeId128, wanted: TypeId128) -> Option<Vec<&Step>> {
        // Breadth first, so that the shortest path is found and a direct step is preferred.
        let mut ways: Vec<(TypeId128, Vec<&Step>)> = vec![(stored, Vec::new())];
        let mut next = 0;
        while let Some((at, way)) = ways.get(next).cloned() {
            if at == wanted {
                return Some(way);
            }
            next += 1;
            for step in self.steps.iter().filter(|step| step.from == at) {
                if ways.iter().all(|(seen, _)| *seen != step.to) {
                    ways.push((step.to, way.iter().copied().chain([step]).collect()));
                }
            }
        }
        None
    }
}

impl std::fmt::Debug for Migrations {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let steps = self.steps.iter().map(|step| (step.from, step.to));
        f.debug_list().entries(steps).finish()
    }
}

fn fits<T: Persist>(superblock: &Superblock) -> bool {
    superblock.root_address != 0
        && superblock.root_bytes >= size_of::<T>() as u64
        && superblock.root_address.is_multiple_of(align_of::<T>() as u64)
}

impl Store {
    /// Opens an object for writing. If its root has an older type, first builds a new root of type
    /// `T` from it, in one commit. The commit is durable according to the session's level, by
    /// default when this returns. If the root already is a `T`, this is like
    /// [`write`](Store::write).
    ///
    /// Costs the steps and one commit of what they wrote. The object grows, because the new root is
    /// built before the old one is released. Readers of older commits keep the old type. Programs
    /// that know only the old type cannot open the object afterwards.
    ///
    /// ```
    /// use evermap::{Migrations, PBTree, PString, PVec, Persist, Store};
    ///
    /// #[derive(Persist)]
    /// #[repr(C)]
    /// #[persist(name = "Diary")]
    /// struct Diary1 { lines: PVec<PString>, owner: PString }
    ///
    /// #[derive(Persist)]
    /// #[repr(C)]
    /// struct Diary { days: PBTree<u32, PString>, owner: PString }
    ///
    /// # let directory = tempfile::tempdir()?;
    /// # let store = Store::create_new(directory.path().join("store"))?;
    /// store.create::<Diary1, _>("diary", Diary1Init { lines: ["rain", "sun"], owner: "me" })?;
    ///
    /// let migrations = Migrations::new().step::<Diary1, Diary>(|old, slot| {
    ///     let old = old.into_fields();
    ///     let lines = old.lines.into_ref();
    ///     slot.build(DiaryInit {
    ///         days: evermap::from_iter((1..).zip(lines.iter().map(|line| line.as_str()))),
    ///         owner: old.owner.detach(), // moved, not copied
    ///     })
    /// });
    /// let diary = store.write_migrating::<Diary>("diary", &migrations)?;
    /// assert_eq!(diary.days[&2], "sun");
    /// assert_eq!(diary.owner, "me");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// Same errors as [`write`](Store::write). `SchemaMismatch` if no steps lead from the stored
    /// type to `T`. Errors that a step returns. The object is unchanged after an error, except
    /// perhaps after `DurabilityUnknown`.
    pub fn write_migrating<T: Persist>(
        &self,
        name: &str,
        migrations: &Migrations,
    ) -> Result<Session<T>> {
        self.write_migrating_with(name, migrations, &self.home.options.write)
    }

    /// Like [`write_migrating`](Store::write_migrating), with write options for this session.
    ///
    /// # Errors
    /// Same errors as [`write_migrating`](Store::write_migrating).
    pub fn write_migrating_with<T: Persist>(
        &self,
        name: &str,
        migrations: &Migrations,
        options: &WriteOptions,
    ) -> Result<Session<T>> {
        let (inner, (mut open, way)) = self.home.run(Use::Open, |inner| {
            let opened = inner.write_object(name, options, self.application, |superblock| {
                let stored = TypeId128(superblock.root_type_id);
                match migrations.path(stored, type_id::<T>()) {
                    Some(way) if way.first().is_none_or(|step| (step.check)(superblock)) => Ok(way),
                    _ => Err(schema_mismatch::<T>(inner, name, superblock)),
                }
            })?;
            Ok((Arc::clone(inner), opened))
        })?;
        if !way.is_empty() {
            // An error in a step drops the session, which discards the changes.
            migrate(&mut open, &way)?;
            open.commit()?;
        }
        let root = root_as::<T>(&inner, name, open.superblock())?;
        // SAFETY: the session maps the object as of its superblock.
        unsafe {
            check_root(
                root,
                open.superblock(),
                &inner.path_in(OBJECTS, open.superblock().object_uuid),
            )?
        };
        Ok(Session::of(open, root))
    }
}

fn migrate(open: &mut OpenSession, way: &[&Step]) -> Result<()> {
    for step in way {
        let old = std::ptr::with_exposed_provenance_mut(open.superblock().root_address as usize);
        let old = NonNull::new(old).ok_or(Error::BadRoot {
            object: open.name().to_string(),
            address: 0,
            bytes: open.superblock().root_bytes,
        })?;
        let new = (step.run)(open.heap(), old)?;
        // A small root created with the object lies in its first page and is not an allocated
        // block.
        if open.heap().usable_size(old) != 0 {
            // SAFETY: the old root's own block. The blocks that it owned are released.
            unsafe { open.heap().free(old) };
        }
        let superblock = open.superblock_mut();
        superblock.root_address = new.as_ptr().expose_provenance() as u64;
        superblock.root_bytes = step.bytes as u64;
        superblock.root_type_id = step.to.0;
        superblock.set_schema(step.description);
    }
    Ok(())
}
