//! Copy and move functions of `evermap_transfer.h`.

use std::ffi::c_char;
use std::num::NonZeroUsize;
use std::os::fd::BorrowedFd;

use evermap_transfer::{Copy, Move, Span};
use libc::c_int;

use crate::abi::arguments::path;
use crate::abi::failure::{self, Failure, Result};
use crate::abi::types::em_status;
use crate::runtime::fork;
use crate::transfer::choices::Choices;
use crate::transfer::report::{Reported, Told};
use crate::transfer::types::{em_transfer_options, em_transfer_report};

#[unsafe(no_mangle)]
pub unsafe extern "C" fn evermap_copy(
    source: *const c_char,
    target: *const c_char,
    given: *const em_transfer_options,
    report: *mut em_transfer_report,
) -> em_status {
    failure::status(|| {
        fork::check()?;
        // SAFETY: the caller passes texts and structs as the header requires.
        let (source, target, choices, reported) = unsafe {
            (path(source)?, path(target)?, Choices::new(given)?, Reported::new(report, given)?)
        };
        choices.refuse_others(
            "evermap_copy",
            &[
                "durability",
                "reflink",
                "verify",
                "resume",
                "keep_going",
                "one_file_system",
                "threads",
                "without",
            ],
        )?;
        let watch = choices.watch();
        let mut copy = Copy::new(source, target)
            .durability(choices.durability()?)
            .reflink(choices.reflink()?)
            .preserve(choices.preserve()?)
            .verify(choices.is(|given| given.verify))
            .resume(choices.is(|given| given.resume))
            .keep_going(choices.is(|given| given.keep_going))
            .one_file_system(choices.is(|given| given.one_file_system))
            .cancelled_by(watch.flag());
        if let Some(engine) = choices.engine {
            copy = copy.engine(engine);
        }
        if let Some(threads) = NonZeroUsize::new(choices.of(|given| given.threads.into()) as usize)
        {
            copy = copy.threads(threads);
        }
        let progress = copy.progress();
        // The size of a directory is unknown before all of it was read.
        let file = std::fs::metadata(source).ok().filter(std::fs::Metadata::is_file);
        let total_bytes = file.map_or(0, |metadata| metadata.len());
        let copied = watch.during(|| (progress.arrived_bytes(), total_bytes), || copy.run())?;
        reported.give(&Told::copied(&copied));
        Ok(())
    })
}

/// Returns a descriptor of the caller's, which stays open.
fn lent(descriptor: c_int) -> Result<BorrowedFd<'static>> {
    // SAFETY: querying the flags is harmless for any number.
    if descriptor < 0 || unsafe { libc::fcntl(descriptor, libc::F_GETFD) } == -1 {
        let message = format!("{descriptor} is not an open file descriptor");
        return Err(Failure::argument(message));
    }
    // SAFETY: the descriptor is open, and the caller keeps it open during the call.
    Ok(unsafe { BorrowedFd::borrow_raw(descriptor) })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn evermap_move(
    source: c_int,
    target: c_int,
    given: *const em_transfer_options,
    report: *mut em_transfer_report,
) -> em_status {
    failure::status(|| {
        fork::check()?;
        // SAFETY: the caller passes structs as the header requires.
        let (choices, reported) = unsafe { (Choices::new(given)?, Reported::new(report, given)?) };
        choices.refuse_others(
            "evermap_move",
            &["durability", "reflink", "sparse", "begin_bytes", "length_bytes"],
        )?;
        let (source, target) = (lent(source)?, lent(target)?);
        let begin = choices.of(|given| given.begin_bytes);
        let end = match choices.of(|given| given.length_bytes) {
            0 => Span::OPEN,
            length_bytes => begin.saturating_add(length_bytes),
        };
        let watch = choices.watch();
        let mut moved = Move::new(&source, &target)
            .spans([Span::new(begin, end)])
            .sparse(choices.is(|given| given.sparse))
            .durability(choices.durability()?)
            .reflink(choices.reflink()?)
            .cancelled_by(watch.flag());
        if let Some(engine) = choices.engine {
            moved = moved.engine(engine);
        }
        let meter = moved.meter();
        let total_bytes = match end {
            // The file's size; 0 for a source without a size.
            Span::OPEN => size_of_file(source).saturating_sub(begin),
            end => end - begin,
        };
        let done = watch.during(|| (meter.arrived_bytes(), total_bytes), || moved.run())?;
        reported.give(&Told::copied(&done));
        Ok(())
    })
}

fn size_of_file(file: BorrowedFd<'_>) -> u64 {
    let file = file.try_clone_to_owned().map(std::fs::File::from);
    file.and_then(|file| file.metadata()).map_or(0, |metadata| metadata.len())
}
