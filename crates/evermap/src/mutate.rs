//! Mutants: safeguards that tests disable one at a time, to verify that some test then fails.
//!
//! The engine calls [`mutated`] at every ordering or check that crash safety depends on. Outside of
//! tests the answer is a constant, and no mutant is compiled in.

/// A disabled safeguard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mutant {
    /// A commit returns before its record is durable.
    RecordNotFlushed,
    /// The log is reset before the object file is durable.
    ObjectNotFlushedBeforeReset,
    /// A checkpoint treats pages that another process applied as written, though that process's
    /// flush may have failed.
    AppliedElsewhereTrusted,
    /// Recovery empties the log before the object file is durable.
    ObjectNotFlushedInRecovery,
    /// The new header of a log is not flushed before records follow it.
    ResetNotFlushed,
    /// A log is reset in the header slot that counts.
    OneHeaderSlot,
    /// A record's checksum is not verified.
    RecordChecksumIgnored,
    /// A header's checksum is not verified.
    HeaderChecksumIgnored,
    /// The first valid header counts, not the one with the higher generation.
    GenerationIgnored,
    /// A log counts even if it belongs to another object.
    LogIdentityIgnored,
    /// A record chains after any previous record.
    PreviousIgnored,
    /// A record of any generation chains.
    SaltIgnored,
    /// A record with any sequence number chains.
    SequenceIgnored,
    /// Records that may exist only in the page cache are trusted.
    LogTrustedUnflushed,
    /// Page 0 is written to its place before the other pages.
    PageZeroFirst,
    /// Pages are written to their place before their record is durable.
    ApplyBeforeRecord,
    /// Records follow before `log_required` is durable.
    LogRequiredNotFlushed,
    /// A commit reserves no space for the pages that its record changes.
    ChangesNotReserved,
    /// Reserved space is not flushed before a record relies on it.
    ReservedNotFlushed,
    /// Space that a dead session may have reserved is not flushed.
    DeadReservationTrusted,
    /// An object with deferred memory is not marked as one with holes.
    DeferredIsNoHole,
    /// The object records that it has a log only after the flush of its growth.
    LogAnnouncedLate,
    /// The log is removed before `log_required` is cleared durably.
    LogRequiredClearedLate,
    /// The cleared `log_required` is not durable when the log is removed.
    LogRequiredClearedUnflushed,
    /// A session that continues a log trusts a `log_required` that may exist only in the page
    /// cache.
    LogRequiredTrustedUnflushed,
    /// Recovery trusts a replacement of the object by a copy that may exist only in memory.
    NameTrustedUnflushed,
    /// The first record follows a header that may exist only in the page cache.
    HeaderTrustedUnflushed,
    /// A new log's header is not flushed before the object records that it has a log.
    NewLogNotFlushed,
    /// The directory is not flushed after the log was created.
    LogDirectoryNotFlushed,
    /// A stale log is removed though the file on disk may still require it.
    StaleLogRemovedEarly,
    /// A log that was created and never needed is continued, though it may exist only in the page
    /// cache.
    NewLogTrustedUnflushed,
    /// The file is truncated though the log has lines for the part that is cut off.
    TruncatedUnderTheLog,
    /// A record has pages past the end that its commit gives the file.
    RecordPastTheEnd,
    /// A log that was extended is not flushed before it is used.
    LogGrowthNotFlushed,
    /// Fresh memory is not flushed before the record that refers to it.
    FreshNotFlushed,
    /// Closing removes the log before the object file is durable.
    CloseBeforeFlush,
    /// Holes are not flushed before commits treat them as zeros.
    HolesNotFlushed,
    /// Holes are punched before the commit that frees their contents.
    HolesBeforeCommit,
    /// Growth of a dead writer after the last commit is kept.
    DeadGrowthKept,
    /// The file is truncated before the commit that makes the object shorter.
    TrimBeforeCommit,
    /// A copy replaces the object before it is durable.
    CopyNotFlushed,
    /// The directory is not flushed after a copy replaced the object.
    ReplacementNotFlushed,
    /// The file's pages change under readers of an older commit.
    ReadersNotWaitedFor,
    /// The file's pages change under readers that arrived during the previous apply.
    SecondByteIgnored,
    /// A session continues after a failed flush.
    PoisonForgotten,
    /// A batch names its objects before their files are durable.
    NamesBeforeFiles,
    /// A batch names its objects before the directory of their files is durable.
    BuildingNotFlushed,
    /// Files of a replaced or removed object are removed before the commit that drops the object.
    RemovalBeforeCommit,
    /// A new store's catalog gets its name before it is durable.
    CatalogNamedUnflushed,
    /// Not a safeguard: writes logs and page 0 as builds before log format 2 did, so that tests can
    /// cause power cuts around the conversion.
    EarlierFormat,
    /// A log's progress is not read.
    ProgressIgnored,
    /// A log's progress is not written.
    ProgressNotWritten,
    /// A log's progress counts in any boot, not only in the one that wrote it.
    ProgressOfAnotherBootTrusted,
    /// A record claims that earlier records are durable though they were not flushed.
    DurableClaimedEarly,
    /// Heads after an unreadable record are not consulted about it.
    LaterHeadsIgnored,
    /// A nearly intact head counts as the end of the log.
    DamagedHeadIsAnEnd,
    /// The header of a log of an earlier build is kept next to its successor.
    OldHeaderKept,
    /// For pages of a hole that is reused, only differences from the file are logged, and pages
    /// without differences get no checksum.
    UsedHolesUnknown,
    /// The root area of page 0 is not compared with its checksum.
    RootChecksumIgnored,
    /// Any `log_required` except the code for "required" counts as "not required".
    LogRequiredCodesIgnored,
    /// An object is trusted though its log ends before the commit that the file has.
    AgesIgnored,
    /// Records of the new format follow while `log_required` has the old code.
    OldCodeKept,
    /// An unchanged store is trusted though its creator may have been killed before its name was
    /// durable.
    NewStoreTrustedUnflushed,
}

#[cfg(test)]
thread_local! {
    static DISABLED: std::cell::Cell<&'static [Mutant]> = const { std::cell::Cell::new(&[]) };
}

/// Returns true if this safeguard is disabled in this thread.
#[cfg(test)]
pub(crate) fn mutated(mutant: Mutant) -> bool {
    DISABLED.get().contains(&mutant)
}

/// Always returns false outside of tests.
#[cfg(not(test))]
#[inline(always)]
pub(crate) const fn mutated(_mutant: Mutant) -> bool {
    false
}

/// Disables exactly these safeguards in this thread.
#[cfg(test)]
pub(crate) fn disable(mutants: &'static [Mutant]) {
    DISABLED.set(mutants);
}

/// Calls `run` with exactly these safeguards disabled.
#[cfg(test)]
pub(crate) fn without<R>(mutants: &'static [Mutant], run: impl FnOnce() -> R) -> R {
    let before = DISABLED.replace(mutants);
    let done = run();
    DISABLED.set(before);
    done
}
