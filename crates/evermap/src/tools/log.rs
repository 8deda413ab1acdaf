//! The log beside an object, as far as opening it says nothing about it.
//!
//! Opening a log stops where the chain of its records stops, as it must: what is behind a torn
//! record never happened. That a whole record of the same generation lies *behind* the end is what
//! only damage inside the log, or a power cut at a level below `Commit`, leaves; it is looked for
//! here. So are logs that no object asks for.

use bytemuck::bytes_of;

use crate::checksum::crc32c;
use crate::error::Result;
use crate::format::{
    LOG_ALIGN, LOG_MAGIC, LOG_RECORD_MAGIC, LOG_RECORDS_OFFSET, LOG_SLOT_BYTES, LogHeader,
    LogRecord,
};
use crate::storage::File;

use super::report::{Findings, Severity};

/// Bytes read at a time.
const READ_BYTES: usize = 256 * 1024;
/// Records longer than this are not verified when they are looked for behind the end.
const BODY_BYTES_MAX: u64 = 64 << 20;

/// Looks for commits behind the end of a log whose last readable commit is `last`.
pub(super) fn check(
    file: &dyn File,
    object_uuid: [u8; 16],
    last: u64,
    findings: &mut Findings,
) -> Result<()> {
    let Some(header) = newest_header(file, object_uuid)? else { return Ok(()) };
    let length = file.length()?;
    let mut buffer = vec![0; READ_BYTES];
    let mut at = LOG_RECORDS_OFFSET;
    while at < length {
        let got = file.read_at(&mut buffer, at)?;
        for (index, sector) in buffer[..got].chunks_exact(LOG_ALIGN as usize).enumerate() {
            let head: LogRecord = bytemuck::pod_read_unaligned(&sector[..size_of::<LogRecord>()]);
            let behind = head.magic == LOG_RECORD_MAGIC
                && head.salt == header.salt
                && head.sequence > last
                && head.sequence > header.base_sequence;
            let offset = at + index as u64 * LOG_ALIGN;
            if behind && is_whole(file, &head, offset, length)? {
                findings.add(
                    Severity::Suspect,
                    "the log",
                    format!("commit {} behind the end of its chain", head.sequence),
                    format!("commits up to {last}, and nothing behind them"),
                    (
                        "a record between them was damaged, or lost in a power cut: compare the \
                      object with its last backup",
                        None,
                    ),
                );
                return Ok(());
            }
        }
        at += READ_BYTES as u64;
    }
    Ok(())
}

/// The header slot that counts.
fn newest_header(file: &dyn File, object_uuid: [u8; 16]) -> Result<Option<LogHeader>> {
    let mut newest: Option<LogHeader> = None;
    for slot in 0..2 {
        let mut bytes = [0; size_of::<LogHeader>()];
        file.read_at(&mut bytes, slot * LOG_SLOT_BYTES)?;
        let header: LogHeader = bytemuck::pod_read_unaligned(&bytes);
        let unsigned = LogHeader { checksum: 0, ..header };
        let valid = header.magic == LOG_MAGIC
            && header.object_uuid == object_uuid
            && crc32c(&[bytes_of(&unsigned)]) == header.checksum;
        if valid && newest.is_none_or(|n| header.generation > n.generation) {
            newest = Some(header);
        }
    }
    Ok(newest)
}

fn is_whole(file: &dyn File, head: &LogRecord, offset: u64, length: u64) -> Result<bool> {
    let body_at = offset + size_of::<LogRecord>() as u64;
    if head.body_length > BODY_BYTES_MAX || head.body_length > length.saturating_sub(body_at) {
        return Ok(false);
    }
    let mut body = vec![0; head.body_length as usize];
    let got = file.read_at(&mut body, body_at)?;
    let unsigned = LogRecord { checksum: 0, ..*head };
    Ok(got == body.len() && crc32c(&[bytes_of(&unsigned), &body]) == head.checksum)
}
