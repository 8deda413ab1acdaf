//! Safeguards that tests take away one at a time, to see that a test fails then.
//!
//! The engine asks [`mutated`] wherever the order or the check stands that a crash depends on.
//! Outside of tests the answer is a constant, and nothing of it is compiled in.

/// A safeguard that is missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mutant {
    /// A commit returns before its record is durable.
    RecordNotFlushed,
    /// The log begins anew before the object file is durable.
    ObjectNotFlushedBeforeReset,
    /// A checkpoint takes what another process applied for written, though its flush may have
    /// failed.
    AppliedElsewhereTrusted,
    /// Recovery empties the log before the object file is durable.
    ObjectNotFlushedInRecovery,
    /// The new header of a log is not flushed before records follow it.
    ResetNotFlushed,
    /// A log begins anew in the header slot that counts.
    OneHeaderSlot,
    /// A record's checksum is not looked at.
    RecordChecksumIgnored,
    /// A header's checksum is not looked at.
    HeaderChecksumIgnored,
    /// The first valid header counts, not the one of the higher generation.
    GenerationIgnored,
    /// A log counts whatever object it belongs to.
    LogIdentityIgnored,
    /// A record chains whatever record came before it.
    PreviousIgnored,
    /// A record chains whatever generation it is of.
    SaltIgnored,
    /// A record chains whatever its sequence number.
    SequenceIgnored,
    /// Records that only the page cache may have are believed.
    LogTrustedUnflushed,
    /// Page 0 is written to its place before the other pages.
    PageZeroFirst,
    /// Pages are written to their place before their record is durable.
    ApplyBeforeRecord,
    /// Records follow before `log_required` is durable.
    LogRequiredNotFlushed,
    /// A commit reserves no space for the pages that its record changes.
    ChangesNotReserved,
    /// Space that was reserved is not flushed before a record relies on it.
    ReservedNotFlushed,
    /// Space that a dead session may have reserved is not flushed.
    DeadReservationTrusted,
    /// An object with deferred memory is not marked as one with holes.
    DeferredIsNoHole,
    /// That the object has a log is said behind the flush of what it gained.
    LogAnnouncedLate,
    /// The log is removed before `log_required` is cleared durably.
    LogRequiredClearedLate,
    /// The cleared `log_required` is not durable when the log goes.
    LogRequiredClearedUnflushed,
    /// A session that goes on with a log believes a `log_required` that only the page cache may
    /// have.
    LogRequiredTrustedUnflushed,
    /// Recovery believes that a copy took the object's place though only memory may know.
    NameTrustedUnflushed,
    /// The first record follows a header that only the page cache may have.
    HeaderTrustedUnflushed,
    /// A new log's header is not flushed before the object says that it has one.
    NewLogNotFlushed,
    /// The directory is not flushed after the log was made.
    LogDirectoryNotFlushed,
    /// A stale log is removed though the disk may still say that it is needed.
    StaleLogNotDisowned,
    /// A log that was made and never needed is gone on with, though only the page cache may have it.
    NewLogTrustedUnflushed,
    /// The file is cut though the log has lines for what is cut off.
    CutUnderTheLog,
    /// A record has pages behind the end that its commit gives the file.
    RecordBehindTheEnd,
    /// A log that was made longer is not flushed before it is used.
    LogGrowthNotFlushed,
    /// Fresh memory is not flushed before the record that speaks of it.
    FreshNotFlushed,
    /// Closing removes the log before the object file is durable.
    CloseBeforeFlush,
    /// Holes are not flushed before commits take them for zeros.
    HolesNotFlushed,
    /// Holes are made before the commit after which nothing there means anything.
    HolesBeforeCommit,
    /// What a dead writer's growth left behind the last commit stays.
    DeadGrowthKept,
    /// The file is cut before the commit that makes the object shorter.
    TrimBeforeCommit,
    /// An object's copy takes its place before it is durable.
    CopyNotFlushed,
    /// The directory is not flushed after a copy took the object's place.
    ReplacementNotFlushed,
    /// The file's pages change under readers of an older commit.
    ReadersNotWaitedFor,
    /// The file's pages change under readers that came during the apply before.
    SecondByteIgnored,
    /// A session goes on after a flush that failed.
    PoisonForgotten,
    /// A batch names its objects before their files are durable.
    NamesBeforeFiles,
    /// A batch names its objects before the directory of their files is durable.
    BuildingNotFlushed,
    /// The files of a replaced or removed object go before the commit that forgets it.
    RemovalBeforeCommit,
    /// A new store's catalog gets its name before it is durable.
    CatalogNamedUnflushed,
    /// No safeguard: logs and page 0 are written as builds before log format 2 did, so that tests can
    /// cut what comes after them.
    EarlierFormat,
    /// A log's progress is not looked at.
    ProgressIgnored,
    /// A log's progress is not written.
    ProgressNotWritten,
    /// A log's progress counts for the run of the machine that wrote it and for any other.
    ProgressOfAnotherBootTrusted,
    /// A record says that the ones before it are durable though nobody flushed them.
    DurableClaimedEarly,
    /// What the heads behind a record that cannot be read say of it is not looked at.
    LaterHeadsIgnored,
    /// A head that is nearly whole is taken for the end of the log.
    DamagedHeadIsAnEnd,
    /// The header of a log of an earlier build stays beside the one that follows it.
    OldHeaderKept,
    /// Of pages of a hole that is used again only what differs from the file is logged, and pages that
    /// do not differ get no checksum.
    UsedHolesUnknown,
    /// The root area of page 0 is not compared with its checksum.
    RootChecksumIgnored,
    /// Any `log_required` but the code for "required" says that the log is not.
    LogRequiredCodesIgnored,
    /// An object is believed whose log ends before the commit that the file has.
    AgesIgnored,
    /// Records of the new format follow while `log_required` has the old code.
    OldCodeKept,
    /// A store that nobody has changed yet is believed though its maker may have been killed before
    /// its name was durable.
    NewStoreTrustedUnflushed,
}

#[cfg(test)]
thread_local! {
    static MISSING: std::cell::Cell<&'static [Mutant]> = const { std::cell::Cell::new(&[]) };
}

/// Is this safeguard missing, in this thread?
#[cfg(test)]
pub(crate) fn mutated(mutant: Mutant) -> bool {
    MISSING.get().contains(&mutant)
}

/// Is this safeguard missing? It never is.
#[cfg(not(test))]
#[inline(always)]
pub(crate) const fn mutated(_mutant: Mutant) -> bool {
    false
}

/// Takes these safeguards, and no others, away from what this thread does.
#[cfg(test)]
pub(crate) fn take_away(mutants: &'static [Mutant]) {
    MISSING.set(mutants);
}

/// Does something with these safeguards, and no others, taken away.
#[cfg(test)]
pub(crate) fn without<R>(mutants: &'static [Mutant], run: impl FnOnce() -> R) -> R {
    let before = MISSING.replace(mutants);
    let done = run();
    MISSING.set(before);
    done
}
