//! Semantics of system calls: which bytes of which file they read, write, flush or discard, and how
//! they change descriptors.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use super::Strace;
use super::descriptor::{Target, descriptor, may_be_stored, string};
use super::line::{Call, leading_number};
use super::processes::{File, OpenFile};
use crate::collect::Collector;
use crate::event::{Event, LENGTH_BYTES_MAX, Operation};
use crate::numbers::unsigned;
use crate::warning::Problem;

/// Upper bound of a process's address space.
const MAPPING_BYTES_MAX: u64 = 1 << 56;

/// Origin of a call: process, time and line.
#[derive(Clone, Copy, Debug)]
pub(super) struct Origin {
    pub process: Option<u32>,
    pub at_ns: u64,
    /// Time from its first line to its second, if it has two.
    pub waited_ns: Option<u64>,
    pub line: u64,
}

impl Origin {
    fn process_or_zero(&self) -> u32 {
        self.process.unwrap_or(0)
    }
}

/// Offset at which a call reads or writes.
#[derive(Clone, Copy, Debug)]
enum Offset {
    /// At the current position of the file.
    Current,
    At(u64),
    Unknown,
}

impl Offset {
    /// Parses an argument that is a number, or -1 for the current position.
    fn of(text: &str) -> Offset {
        match text {
            "-1" => Offset::Current,
            text => unsigned(text).map_or(Offset::Unknown, Offset::At),
        }
    }

    /// Parses an argument that points to a number (`[4096]`, `[0] => [4096]`), or `NULL` for the
    /// current position.
    fn pointed_to(text: &str) -> Offset {
        match text.strip_prefix('[') {
            Some(number) => leading_number(number).map_or(Offset::Unknown, Offset::At),
            None => Offset::Current,
        }
    }
}

/// Range of a file, as far as it is known.
#[derive(Clone, Copy, Debug)]
struct Range {
    offset_bytes: Option<u64>,
    length_bytes: u64,
}

/// Mappings of files. strace shows their creation, but not the reads through them.
#[derive(Debug, Default)]
pub(super) struct Mapped {
    count: u64,
    bytes: u64,
    largest: Option<(u64, Arc<str>)>,
}

impl Mapped {
    fn add(&mut self, name: &Arc<str>, length_bytes: u64) {
        self.count += 1;
        self.bytes = self.bytes.saturating_add(length_bytes);
        if self.largest.as_ref().is_none_or(|(largest, _)| *largest < length_bytes) {
            self.largest = Some((length_bytes, Arc::clone(name)));
        }
    }

    /// Warns about mappings, once at the end.
    pub fn warn(&self, are_reads: bool, collector: &mut Collector) {
        let Some((_, name)) = &self.largest else { return };
        let what =
            format!("{} mappings of {} bytes, the largest of {name}", self.count, self.bytes);
        match are_reads {
            true => collector
                .warn(Problem::Assumed, &format!("each mapping is read completely: {what}")),
            false => collector.warn(Problem::Unseen, &format!("reads through mappings: {what}")),
        }
    }
}

impl Strace {
    /// Handles the start of a call whose end follows later.
    pub(super) fn begin_call(&mut self, process: u32, call: &Call<'_>) {
        if is_fork(call.name) {
            self.processes.begin_fork(process, shares_files(call));
        }
    }

    /// Handles a complete call, or one that never ended and has no result.
    pub(super) fn take_call(
        &mut self,
        origin: &Origin,
        call: &Call<'_>,
        collector: &mut Collector,
    ) {
        let argument = |index| call.argument(index);
        match call.name {
            "read" | "readv" => {
                self.transfer(origin, call, Operation::Read, Offset::Current, collector)
            }
            "write" | "writev" => {
                self.transfer(origin, call, Operation::Write, Offset::Current, collector);
            }
            "pread" | "pread64" | "preadv" | "preadv2" => {
                self.transfer(origin, call, Operation::Read, Offset::of(argument(3)), collector);
            }
            "pwrite" | "pwrite64" | "pwritev" | "pwritev2" => {
                self.transfer(origin, call, Operation::Write, Offset::of(argument(3)), collector);
            }
            "sendfile" | "sendfile64" => {
                let offset = Offset::pointed_to(argument(2));
                self.copy(
                    origin,
                    call,
                    (argument(1), offset),
                    (argument(0), Offset::Current),
                    collector,
                );
            }
            "copy_file_range" | "splice" => {
                let from = (argument(0), Offset::pointed_to(argument(1)));
                let to = (argument(2), Offset::pointed_to(argument(3)));
                self.copy(origin, call, from, to, collector);
            }
            "fsync" | "fdatasync" | "sync_file_range" | "syncfs" | "sync" | "msync" => {
                self.flush(origin, call, collector);
            }
            "fallocate" | "readahead" | "fadvise64" | "fadvise64_64" => {
                self.advise(origin, call, collector);
            }
            "mmap" | "mmap2" => self.map(origin, call, collector),
            "io_uring_enter" | "io_submit" if !self.is_ring_seen => {
                self.is_ring_seen = true;
                let text = format!("requests made by {}", call.name);
                collector.warn_at(origin.line, Problem::Unseen, &text);
            }
            _ => self.track(origin, call, collector),
        }
    }

    /// Handles calls that change descriptors and processes.
    fn track(&mut self, origin: &Origin, call: &Call<'_>, collector: &mut Collector) {
        let Some(value) = call.value() else {
            if is_fork(call.name) && call.result.is_some() {
                self.processes.end_fork(origin.process_or_zero());
            }
            return;
        };
        let number = |index| descriptor(call.argument(index)).map(|descriptor| descriptor.number);
        match call.name {
            "open" | "creat" => self.open(origin, call, 0, collector),
            "openat" | "openat2" => self.open(origin, call, 1, collector),
            "lseek" => self.seek(origin, call, Some(value), collector),
            "_llseek" => {
                let position = call.argument(2).strip_prefix('[').and_then(leading_number);
                self.seek(origin, call, position, collector);
            }
            "close" => {
                if let Some(number) = number(0) {
                    self.processes.close(origin.process_or_zero(), number);
                }
            }
            "close_range" if !call.argument(2).contains("CLOEXEC") => {
                let last = number(1).unwrap_or(i32::MAX);
                self.processes.close_range(
                    origin.process_or_zero(),
                    number(0).unwrap_or(i32::MAX),
                    last,
                );
            }
            "dup" | "dup2" | "dup3" => self.duplicate(origin, call, value, collector),
            "fcntl" | "fcntl64" if call.argument(1).starts_with("F_DUPFD") => {
                self.duplicate(origin, call, value, collector);
            }
            "execve" | "execveat" => self.processes.execute(origin.process_or_zero()),
            name if is_fork(name) => {
                self.processes.end_fork(origin.process_or_zero());
                let child = u32::try_from(value).ok().filter(|&child| child > 0);
                if let Some(child) = child.filter(|&child| !self.processes.is_known(child)) {
                    self.processes.fork(origin.process_or_zero(), child, shares_files(call));
                }
            }
            _ => {}
        }
    }

    /// Handles a call that opens a file. `path` is the index of the path argument; flags follow it.
    fn open(&mut self, origin: &Origin, call: &Call<'_>, path: usize, collector: &mut Collector) {
        let Some(opened) = call.result.and_then(descriptor) else { return };
        let name = match opened.target {
            Some(Target::File(path)) => Some(path),
            Some(Target::NotFile) => None,
            None => string(call.argument(path)).filter(|path| may_be_stored(path)),
        };
        let Some(name) = name.and_then(|name| collector.name(&name)) else {
            return self.processes.close(origin.process_or_zero(), opened.number);
        };
        let flags = &call.arguments[(path + 1).min(call.arguments.len())..];
        let is_appending = flags.iter().any(|flags| flags.contains("O_APPEND"));
        let file = OpenFile { name, position_bytes: Some(0), is_appending, is_warned: false };
        let name = Arc::clone(&file.name);
        self.set_file(origin, opened.number, Rc::new(RefCell::new(file)), collector);
        let range = Range { offset_bytes: None, length_bytes: 0 };
        self.emit(origin, call, Operation::Other, Some(name), range, collector);
    }

    fn set_file(&mut self, origin: &Origin, number: i32, file: File, collector: &mut Collector) {
        if !self.processes.set(origin.process_or_zero(), number, file) {
            let text =
                format!("process {} has too many open files to track", origin.process_or_zero());
            collector.warn_at(origin.line, Problem::UnknownOffset, &text);
        }
    }

    fn seek(
        &mut self,
        origin: &Origin,
        call: &Call<'_>,
        position: Option<u64>,
        collector: &mut Collector,
    ) {
        if let Some(file) = self.file(origin, call.argument(0), collector) {
            file.borrow_mut().position_bytes = position;
        }
    }

    fn duplicate(
        &mut self,
        origin: &Origin,
        call: &Call<'_>,
        value: u64,
        collector: &mut Collector,
    ) {
        let Ok(number) = i32::try_from(value) else { return };
        let is_decorated = call.argument(0).contains('<');
        let known = descriptor(call.argument(0))
            .and_then(|original| self.processes.file(origin.process_or_zero(), original.number));
        let file = match is_decorated {
            true => self.file(origin, call.argument(0), collector),
            // Duplicates of descriptors that are not files are ignored without a warning.
            false => known,
        };
        match file {
            Some(file) => self.set_file(origin, number, file, collector),
            None => self.processes.close(origin.process_or_zero(), number),
        }
    }

    /// Returns the open file of a descriptor, if it is a file.
    fn file(&mut self, origin: &Origin, text: &str, collector: &mut Collector) -> Option<File> {
        let descriptor = descriptor(text)?;
        let known = self.processes.file(origin.process_or_zero(), descriptor.number);
        match descriptor.target {
            Some(Target::NotFile) => {
                self.processes.close(origin.process_or_zero(), descriptor.number);
                None
            }
            Some(Target::File(path)) => {
                if let Some(known) = known.filter(|known| *known.borrow().name == *path) {
                    return Some(known);
                }
                // The file was opened before the recording, or by a call that was not recorded.
                let name = collector.name(&path)?;
                let file =
                    OpenFile { name, position_bytes: None, is_appending: false, is_warned: false };
                let file = Rc::new(RefCell::new(file));
                self.set_file(origin, descriptor.number, Rc::clone(&file), collector);
                Some(file)
            }
            None => {
                if known.is_none() {
                    let text = format!(
                        "descriptor {}: not a file, or opened before the recording; use `strace -y` to see its target",
                        descriptor.number
                    );
                    collector.warn_at(origin.line, Problem::Unstarted, &text);
                }
                known
            }
        }
    }

    /// Handles a read or write of the descriptor in the first argument.
    fn transfer(
        &mut self,
        origin: &Origin,
        call: &Call<'_>,
        operation: Operation,
        offset: Offset,
        collector: &mut Collector,
    ) {
        let length_bytes = match call.result {
            Some(_) => call.value(),
            None => {
                let text = format!("{}({}, ...", call.name, call.argument(0));
                collector.warn_at(origin.line, Problem::Unfinished, &text);
                // In vectored calls, the third argument is the number of buffers.
                let is_vectored = call.name.contains("readv") || call.name.contains("writev");
                unsigned(call.argument(2)).filter(|_| !is_vectored)
            }
        };
        if let Some(length_bytes) = length_bytes {
            let from = (call.argument(0), offset);
            self.move_bytes(origin, call, operation, from, length_bytes, collector);
        }
    }

    /// Handles a copy between two descriptors within the kernel.
    fn copy(
        &mut self,
        origin: &Origin,
        call: &Call<'_>,
        from: (&str, Offset),
        to: (&str, Offset),
        collector: &mut Collector,
    ) {
        if let Some(length_bytes) = call.value() {
            self.move_bytes(origin, call, Operation::Read, from, length_bytes, collector);
            self.move_bytes(origin, call, Operation::Write, to, length_bytes, collector);
        }
    }

    fn move_bytes(
        &mut self,
        origin: &Origin,
        call: &Call<'_>,
        operation: Operation,
        (text, offset): (&str, Offset),
        length_bytes: u64,
        collector: &mut Collector,
    ) {
        let Some(file) = self.file(origin, text, collector) else { return };
        let mut file = file.borrow_mut();
        let is_at_end = file.is_appending && operation == Operation::Write;
        let offset_bytes = match offset {
            Offset::At(offset_bytes) => Some(offset_bytes),
            Offset::Unknown => None,
            Offset::Current if is_at_end => None,
            Offset::Current => file.position_bytes,
        };
        if matches!(offset, Offset::Current) {
            file.position_bytes =
                offset_bytes.and_then(|offset_bytes| offset_bytes.checked_add(length_bytes));
        }
        if offset_bytes.is_none() && !file.is_warned {
            file.is_warned = true;
            let why = match is_at_end {
                true => "it is appended to",
                false => {
                    "it was opened before the recording began, or its opening was not recorded"
                }
            };
            let text = format!("{}: {why}", file.name);
            collector.warn_at(origin.line, Problem::UnknownOffset, &text);
        }
        let range = Range { offset_bytes, length_bytes };
        self.emit(origin, call, operation, Some(Arc::clone(&file.name)), range, collector);
    }

    fn flush(&mut self, origin: &Origin, call: &Call<'_>, collector: &mut Collector) {
        if call.value().is_none() {
            return;
        }
        let is_of_descriptor = !matches!(call.name, "sync" | "msync");
        let mut name = None;
        if is_of_descriptor {
            let Some(file) = self.file(origin, call.argument(0), collector) else { return };
            name = Some(Arc::clone(&file.borrow().name));
        }
        let range = match call.name {
            "sync_file_range" => Range {
                offset_bytes: unsigned(call.argument(1)),
                length_bytes: unsigned(call.argument(2)).unwrap_or(0),
            },
            _ => Range { offset_bytes: None, length_bytes: 0 },
        };
        self.emit(origin, call, Operation::Flush, name, range, collector);
    }

    /// Handles calls about a range that move no bytes.
    fn advise(&mut self, origin: &Origin, call: &Call<'_>, collector: &mut Collector) {
        if call.value().is_none() {
            return;
        }
        let (offset, operation) = match call.name {
            "fallocate" if call.argument(1).contains("PUNCH_HOLE") => (2, Operation::Discard),
            "fallocate" => (2, Operation::Other),
            _ => (1, Operation::Other),
        };
        let Some(file) = self.file(origin, call.argument(0), collector) else { return };
        let name = Arc::clone(&file.borrow().name);
        let range = Range {
            offset_bytes: unsigned(call.argument(offset)),
            length_bytes: unsigned(call.argument(offset + 1)).unwrap_or(0),
        };
        self.emit(origin, call, operation, Some(name), range, collector);
    }

    fn map(&mut self, origin: &Origin, call: &Call<'_>, collector: &mut Collector) {
        let is_anonymous = call.argument(3).contains("MAP_ANONYMOUS");
        if call.value().is_none() || is_anonymous {
            return;
        }
        let length_bytes = unsigned(call.argument(1)).filter(|&length| length <= MAPPING_BYTES_MAX);
        let Some(length_bytes) = length_bytes else { return };
        let Some(file) = self.file(origin, call.argument(4), collector) else { return };
        let name = Arc::clone(&file.borrow().name);
        let offset_bytes = unsigned(call.argument(5));
        // The loader maps programs and libraries with this flag, which the kernel ignores, and its
        // cache without it.
        let is_loader = call.argument(3).contains("MAP_DENYWRITE") || *name == *"/etc/ld.so.cache";
        if !is_loader {
            self.mapped.add(&name, length_bytes);
        }
        let is_read = self.mappings_are_reads && call.argument(2).contains("PROT_READ");
        if !is_read {
            let range = Range { offset_bytes, length_bytes };
            return self.emit(origin, call, Operation::Other, Some(name), range, collector);
        }
        let mut done = 0;
        while done < length_bytes && !collector.is_full() {
            let range = Range {
                offset_bytes: offset_bytes.and_then(|offset| offset.checked_add(done)),
                length_bytes: (length_bytes - done).min(LENGTH_BYTES_MAX),
            };
            self.emit(origin, call, Operation::Read, Some(Arc::clone(&name)), range, collector);
            done += range.length_bytes;
        }
    }

    fn emit(
        &self,
        origin: &Origin,
        call: &Call<'_>,
        operation: Operation,
        file: Option<Arc<str>>,
        range: Range,
        collector: &mut Collector,
    ) {
        collector.add(Event {
            at_ns: origin.at_ns,
            frame: None,
            operation,
            file,
            offset_bytes: range.offset_bytes,
            length_bytes: range.length_bytes,
            latency_ns: call.result.and(call.duration_ns.or(origin.waited_ns)),
            process: origin.process,
        });
    }
}

fn is_fork(name: &str) -> bool {
    matches!(name, "fork" | "vfork" | "clone" | "clone3")
}

fn shares_files(call: &Call<'_>) -> bool {
    call.arguments.iter().any(|argument| argument.contains("CLONE_FILES"))
}
