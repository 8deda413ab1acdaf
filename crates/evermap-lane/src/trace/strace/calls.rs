//! What calls mean: which bytes of which file they read, write, flush or drop, and what they do to descriptors.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use super::super::collect::Collector;
use super::super::numbers::unsigned;
use super::super::warning::Problem;
use super::super::{Event, LENGTH_BYTES_MAX, Operation};
use super::Strace;
use super::descriptor::{Target, descriptor, is_stored, string};
use super::line::{Call, leading_number};
use super::processes::{File, OpenFile};

/// No process has more addresses.
const MAPPING_BYTES_MAX: u64 = 1 << 56;

/// Who made a call, and when.
#[derive(Clone, Copy, Debug)]
pub(super) struct Made {
    pub process: Option<u32>,
    pub at_ns: u64,
    /// From its first line to its second, when it has two.
    pub waited_ns: Option<u64>,
    pub line: u64,
}

impl Made {
    fn by(&self) -> u32 {
        self.process.unwrap_or(0)
    }
}

/// Where in a file a call reads or writes.
#[derive(Clone, Copy, Debug)]
enum Place {
    /// Where the one before has ended.
    Position,
    At(u64),
    Unknown,
}

impl Place {
    /// Of an argument that is a number, or -1 for the position.
    fn of(text: &str) -> Place {
        match text {
            "-1" => Place::Position,
            text => unsigned(text).map_or(Place::Unknown, Place::At),
        }
    }

    /// Of an argument that points to a number (`[4096]`, `[0] => [4096]`), or `NULL` for the position.
    fn pointed_to(text: &str) -> Place {
        match text.strip_prefix('[') {
            Some(number) => leading_number(number).map_or(Place::Unknown, Place::At),
            None => Place::Position,
        }
    }
}

/// A range of a file, as far as it is known.
#[derive(Clone, Copy, Debug)]
struct Range {
    offset_bytes: Option<u64>,
    length_bytes: u64,
}

/// Mappings of files: strace shows that they were made, not what was read through them.
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

    /// Once, at the end.
    pub fn say(&self, are_reads: bool, collector: &mut Collector) {
        let Some((_, name)) = &self.largest else { return };
        let what =
            format!("{} mappings of {} bytes, the largest of {name}", self.count, self.bytes);
        match are_reads {
            true => {
                collector.warn(Problem::Assumed, &format!("read whole when it was mapped: {what}"))
            }
            false => {
                collector.warn(Problem::Unseen, &format!("what is read through a mapping: {what}"))
            }
        }
    }
}

impl Strace {
    /// A call was entered whose end comes later.
    pub(super) fn begin_call(&mut self, process: u32, call: &Call<'_>) {
        if is_fork(call.name) {
            self.processes.begins_fork(process, shares_files(call));
        }
    }

    /// A call that has ended, or that never will: then it has no result.
    pub(super) fn take_call(&mut self, made: &Made, call: &Call<'_>, collector: &mut Collector) {
        let argument = |index| call.argument(index);
        match call.name {
            "read" | "readv" => {
                self.transfer(made, call, Operation::Read, Place::Position, collector)
            }
            "write" | "writev" => {
                self.transfer(made, call, Operation::Write, Place::Position, collector);
            }
            "pread" | "pread64" | "preadv" | "preadv2" => {
                self.transfer(made, call, Operation::Read, Place::of(argument(3)), collector);
            }
            "pwrite" | "pwrite64" | "pwritev" | "pwritev2" => {
                self.transfer(made, call, Operation::Write, Place::of(argument(3)), collector);
            }
            "sendfile" | "sendfile64" => {
                let place = Place::pointed_to(argument(2));
                self.copy(
                    made,
                    call,
                    (argument(1), place),
                    (argument(0), Place::Position),
                    collector,
                );
            }
            "copy_file_range" | "splice" => {
                let from = (argument(0), Place::pointed_to(argument(1)));
                let to = (argument(2), Place::pointed_to(argument(3)));
                self.copy(made, call, from, to, collector);
            }
            "fsync" | "fdatasync" | "sync_file_range" | "syncfs" | "sync" | "msync" => {
                self.flush(made, call, collector);
            }
            "fallocate" | "readahead" | "fadvise64" | "fadvise64_64" => {
                self.advise(made, call, collector);
            }
            "mmap" | "mmap2" => self.map(made, call, collector),
            "io_uring_enter" | "io_submit" if !self.is_ring_seen => {
                self.is_ring_seen = true;
                let text = format!("requests that are made by {}", call.name);
                collector.warn_at(made.line, Problem::Unseen, &text);
            }
            _ => self.follow(made, call, collector),
        }
    }

    /// What changes descriptors and processes.
    fn follow(&mut self, made: &Made, call: &Call<'_>, collector: &mut Collector) {
        let Some(value) = call.value() else {
            if is_fork(call.name) && call.result.is_some() {
                self.processes.ends_fork(made.by());
            }
            return;
        };
        let number = |index| descriptor(call.argument(index)).map(|descriptor| descriptor.number);
        match call.name {
            "open" | "creat" => self.open(made, call, 0, collector),
            "openat" | "openat2" => self.open(made, call, 1, collector),
            "lseek" => self.seek(made, call, Some(value), collector),
            "_llseek" => {
                let position = call.argument(2).strip_prefix('[').and_then(leading_number);
                self.seek(made, call, position, collector);
            }
            "close" => {
                if let Some(number) = number(0) {
                    self.processes.close(made.by(), number);
                }
            }
            "close_range" if !call.argument(2).contains("CLOEXEC") => {
                let last = number(1).unwrap_or(i32::MAX);
                self.processes.close_range(made.by(), number(0).unwrap_or(i32::MAX), last);
            }
            "dup" | "dup2" | "dup3" => self.duplicate(made, call, value, collector),
            "fcntl" | "fcntl64" if call.argument(1).starts_with("F_DUPFD") => {
                self.duplicate(made, call, value, collector);
            }
            "execve" | "execveat" => self.processes.execute(made.by()),
            name if is_fork(name) => {
                self.processes.ends_fork(made.by());
                let child = u32::try_from(value).ok().filter(|&child| child > 0);
                if let Some(child) = child.filter(|&child| !self.processes.is_known(child)) {
                    self.processes.fork(made.by(), child, shares_files(call));
                }
            }
            _ => {}
        }
    }

    /// A call that opens `path`, the argument of this number; flags are in those behind it.
    fn open(&mut self, made: &Made, call: &Call<'_>, path: usize, collector: &mut Collector) {
        let Some(opened) = call.result.and_then(descriptor) else { return };
        let name = match opened.leads_to {
            Some(Target::File(path)) => Some(path),
            Some(Target::NoFile) => None,
            None => string(call.argument(path)).filter(|path| is_stored(path)),
        };
        let Some(name) = name.and_then(|name| collector.name(&name)) else {
            return self.processes.close(made.by(), opened.number);
        };
        let flags = &call.arguments[(path + 1).min(call.arguments.len())..];
        let is_appending = flags.iter().any(|flags| flags.contains("O_APPEND"));
        let file = OpenFile { name, position_bytes: Some(0), is_appending, is_warned: false };
        let name = Arc::clone(&file.name);
        self.keep(made, opened.number, Rc::new(RefCell::new(file)), collector);
        let range = Range { offset_bytes: None, length_bytes: 0 };
        self.tell(made, call, Operation::Other, Some(name), range, collector);
    }

    fn keep(&mut self, made: &Made, number: i32, file: File, collector: &mut Collector) {
        if !self.processes.set(made.by(), number, file) {
            let text = format!("process {} has too many open files to follow", made.by());
            collector.warn_at(made.line, Problem::UnknownOffset, &text);
        }
    }

    fn seek(
        &mut self,
        made: &Made,
        call: &Call<'_>,
        position: Option<u64>,
        collector: &mut Collector,
    ) {
        if let Some(file) = self.file(made, call.argument(0), collector) {
            file.borrow_mut().position_bytes = position;
        }
    }

    fn duplicate(&mut self, made: &Made, call: &Call<'_>, value: u64, collector: &mut Collector) {
        let Ok(number) = i32::try_from(value) else { return };
        let is_decorated = call.argument(0).contains('<');
        let known = descriptor(call.argument(0))
            .and_then(|original| self.processes.file(made.by(), original.number));
        let file = match is_decorated {
            true => self.file(made, call.argument(0), collector),
            // What is no file is duplicated too, and nobody needs to hear of it.
            false => known,
        };
        match file {
            Some(file) => self.keep(made, number, file, collector),
            None => self.processes.close(made.by(), number),
        }
    }

    /// The open file that a descriptor is, if it is one.
    fn file(&mut self, made: &Made, text: &str, collector: &mut Collector) -> Option<File> {
        let descriptor = descriptor(text)?;
        let known = self.processes.file(made.by(), descriptor.number);
        match descriptor.leads_to {
            Some(Target::NoFile) => {
                self.processes.close(made.by(), descriptor.number);
                None
            }
            Some(Target::File(path)) => {
                if let Some(known) = known.filter(|known| *known.borrow().name == *path) {
                    return Some(known);
                }
                // Opened before the recording began, or by a call that was not recorded.
                let name = collector.name(&path)?;
                let file =
                    OpenFile { name, position_bytes: None, is_appending: false, is_warned: false };
                let file = Rc::new(RefCell::new(file));
                self.keep(made, descriptor.number, Rc::clone(&file), collector);
                Some(file)
            }
            None => {
                if known.is_none() {
                    let text = format!(
                        "descriptor {}: no file, or opened before the recording; `strace -y` tells",
                        descriptor.number
                    );
                    collector.warn_at(made.line, Problem::Unstarted, &text);
                }
                known
            }
        }
    }

    /// A read or write of the descriptor that is the first argument.
    fn transfer(
        &mut self,
        made: &Made,
        call: &Call<'_>,
        operation: Operation,
        place: Place,
        collector: &mut Collector,
    ) {
        let length_bytes = match call.result {
            Some(_) => call.value(),
            None => {
                let text = format!("{}({}, ...", call.name, call.argument(0));
                collector.warn_at(made.line, Problem::Unfinished, &text);
                // Of calls with vectors, the third argument is how many there are.
                let is_vectored = call.name.contains("readv") || call.name.contains("writev");
                unsigned(call.argument(2)).filter(|_| !is_vectored)
            }
        };
        if let Some(length_bytes) = length_bytes {
            let from = (call.argument(0), place);
            self.move_bytes(made, call, operation, from, length_bytes, collector);
        }
    }

    /// Bytes that go from one descriptor to another within the kernel.
    fn copy(
        &mut self,
        made: &Made,
        call: &Call<'_>,
        from: (&str, Place),
        to: (&str, Place),
        collector: &mut Collector,
    ) {
        if let Some(length_bytes) = call.value() {
            self.move_bytes(made, call, Operation::Read, from, length_bytes, collector);
            self.move_bytes(made, call, Operation::Write, to, length_bytes, collector);
        }
    }

    fn move_bytes(
        &mut self,
        made: &Made,
        call: &Call<'_>,
        operation: Operation,
        (text, place): (&str, Place),
        length_bytes: u64,
        collector: &mut Collector,
    ) {
        let Some(file) = self.file(made, text, collector) else { return };
        let mut file = file.borrow_mut();
        let is_at_end = file.is_appending && operation == Operation::Write;
        let offset_bytes = match place {
            Place::At(offset_bytes) => Some(offset_bytes),
            Place::Unknown => None,
            Place::Position if is_at_end => None,
            Place::Position => file.position_bytes,
        };
        if matches!(place, Place::Position) {
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
            collector.warn_at(made.line, Problem::UnknownOffset, &text);
        }
        let range = Range { offset_bytes, length_bytes };
        self.tell(made, call, operation, Some(Arc::clone(&file.name)), range, collector);
    }

    fn flush(&mut self, made: &Made, call: &Call<'_>, collector: &mut Collector) {
        if call.value().is_none() {
            return;
        }
        let is_of_descriptor = !matches!(call.name, "sync" | "msync");
        let mut name = None;
        if is_of_descriptor {
            let Some(file) = self.file(made, call.argument(0), collector) else { return };
            name = Some(Arc::clone(&file.borrow().name));
        }
        let range = match call.name {
            "sync_file_range" => Range {
                offset_bytes: unsigned(call.argument(1)),
                length_bytes: unsigned(call.argument(2)).unwrap_or(0),
            },
            _ => Range { offset_bytes: None, length_bytes: 0 },
        };
        self.tell(made, call, Operation::Flush, name, range, collector);
    }

    /// Calls about a range that move no bytes.
    fn advise(&mut self, made: &Made, call: &Call<'_>, collector: &mut Collector) {
        if call.value().is_none() {
            return;
        }
        let (offset, operation) = match call.name {
            "fallocate" if call.argument(1).contains("PUNCH_HOLE") => (2, Operation::Discard),
            "fallocate" => (2, Operation::Other),
            _ => (1, Operation::Other),
        };
        let Some(file) = self.file(made, call.argument(0), collector) else { return };
        let name = Arc::clone(&file.borrow().name);
        let range = Range {
            offset_bytes: unsigned(call.argument(offset)),
            length_bytes: unsigned(call.argument(offset + 1)).unwrap_or(0),
        };
        self.tell(made, call, operation, Some(name), range, collector);
    }

    fn map(&mut self, made: &Made, call: &Call<'_>, collector: &mut Collector) {
        let is_anonymous = call.argument(3).contains("MAP_ANONYMOUS");
        if call.value().is_none() || is_anonymous {
            return;
        }
        let length_bytes = unsigned(call.argument(1)).filter(|&length| length <= MAPPING_BYTES_MAX);
        let Some(length_bytes) = length_bytes else { return };
        let Some(file) = self.file(made, call.argument(4), collector) else { return };
        let name = Arc::clone(&file.borrow().name);
        let offset_bytes = unsigned(call.argument(5));
        // With this flag, which means nothing to the kernel, the loader maps programs and libraries; and without it its list of them.
        let is_loader = call.argument(3).contains("MAP_DENYWRITE") || *name == *"/etc/ld.so.cache";
        if !is_loader {
            self.mapped.add(&name, length_bytes);
        }
        let is_read = self.mappings_are_reads && call.argument(2).contains("PROT_READ");
        if !is_read {
            let range = Range { offset_bytes, length_bytes };
            return self.tell(made, call, Operation::Other, Some(name), range, collector);
        }
        let mut done = 0;
        while done < length_bytes && !collector.is_full() {
            let range = Range {
                offset_bytes: offset_bytes.and_then(|offset| offset.checked_add(done)),
                length_bytes: (length_bytes - done).min(LENGTH_BYTES_MAX),
            };
            self.tell(made, call, Operation::Read, Some(Arc::clone(&name)), range, collector);
            done += range.length_bytes;
        }
    }

    fn tell(
        &self,
        made: &Made,
        call: &Call<'_>,
        operation: Operation,
        file: Option<Arc<str>>,
        range: Range,
        collector: &mut Collector,
    ) {
        collector.add(Event {
            at_ns: made.at_ns,
            frame: None,
            operation,
            file,
            offset_bytes: range.offset_bytes,
            length_bytes: range.length_bytes,
            latency_ns: call.result.and(call.duration_ns.or(made.waited_ns)),
            process: made.process,
        });
    }
}

fn is_fork(name: &str) -> bool {
    matches!(name, "fork" | "vfork" | "clone" | "clone3")
}

fn shares_files(call: &Call<'_>) -> bool {
    call.arguments.iter().any(|argument| argument.contains("CLONE_FILES"))
}
