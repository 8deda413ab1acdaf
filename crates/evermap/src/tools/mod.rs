//! Tools for whole stores: check, repair, backup, restore, rebase, audit, export and import.
//!
//! [`check`] reads a store's files without mapping them and reports damage;
//! [`backup`](crate::Store::backup) copies a store in use; [`restore`] makes a store from a copy.
//! This layer is above all others. It reads files that may be damaged through an image, which looks
//! up each address before it reads. Only a repair, which begins with a check, and an import open
//! the store as a program does.

mod address_lock;
mod audit;
mod backup;
mod backup_mark;
mod check;
mod checksums;
mod error;
mod export;
mod heap;
mod host_tables;
mod image;
mod listing;
mod map;
mod one_store;
mod quarantine;
mod rebase;
mod report;
mod strings;

pub use crate::object::{
    Chunk, ChunkContent, ClassUse, MapTotals, ObjectMap, PAGES_PER_CHUNK, PageUse, RegionMap,
};
pub use audit::{
    AuditOptions, AuditReport, Confidence, Doubt, LeakSample, Leaks, MemoryMap, PointerFinding,
    PointerKind, PointerSample, SizeCount, TypeCount, Typing, audit,
};
pub use backup::{BackupOptions, BackupReport, backup, restore};
pub use backup_mark::original_of_backup;
pub use check::{CheckOptions, check};
pub use error::{Error, Result};
pub use export::{ExportOptions, ExportReport, ImportOptions, ImportReport, export, import};
pub use map::map;
pub use rebase::{
    Hit, HitKind, RebaseOptions, RebaseReport, Relocation, UndoReport, rebase, undo_rebase,
};
pub use report::{Finding, ObjectReport, Report, Severity, Unchecked};
