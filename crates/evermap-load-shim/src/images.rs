//! Mappings of matching files. `evermap-load` creates them unless its policy prefers an ordinary
//! mapping. Later calls treat them as mappings of the file.

use std::ffi::{c_int, c_void};
use std::os::fd::AsRawFd;
use std::sync::{Arc, OnceLock};

use evermap_load::{Choice, Image, Latency, Loader, Method};

use crate::line::Line;
use crate::loading::{self, state};
use crate::maps::protections;
use crate::settings::{Match, file_of};
use crate::table::{Origin, Part};
use crate::{inside, real};

/// Minimum size of a mapping. Shorter ones have no huge page, and setting up a load takes half a
/// millisecond.
const BYTES_MIN: usize = 2 << 20;
/// Flags that are compatible with an image.
const COMPATIBLE_FLAGS: c_int = libc::MAP_NORESERVE
    | libc::MAP_POPULATE
    | libc::MAP_NONBLOCK
    | libc::MAP_DENYWRITE
    | libc::MAP_EXECUTABLE
    | libc::MAP_FILE;

/// Returns true if faults in system calls are served. Otherwise nothing is loaded on demand,
/// because programs pass mappings to calls such as `write`.
fn serves_system_call_faults() -> bool {
    static ARE_SERVED: OnceLock<bool> = OnceLock::new();
    *ARE_SERVED.get_or_init(|| {
        let device = std::fs::File::options().read(true).write(true).open("/dev/userfaultfd");
        // SAFETY: creates a descriptor, which is closed at once.
        device.is_ok()
            || unsafe {
                let fd = libc::syscall(libc::SYS_userfaultfd, libc::O_CLOEXEC);
                fd >= 0 && real::close(fd as c_int) == 0
            }
    })
}

/// Arguments of `mmap`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct MapCall {
    pub(crate) address: *mut c_void,
    pub(crate) bytes: usize,
    pub(crate) protection: c_int,
    pub(crate) flags: c_int,
    pub(crate) fd: c_int,
    pub(crate) offset: i64,
}

impl MapCall {
    /// Returns true if the arguments allow an image.
    pub(crate) fn is_candidate(&self) -> bool {
        let kind = self.flags & libc::MAP_TYPE;
        let is_kind = kind == libc::MAP_PRIVATE
            || (kind == libc::MAP_SHARED && self.protection == libc::PROT_READ);
        let allowed = libc::PROT_READ | libc::PROT_WRITE;
        is_kind
            && self.bytes >= BYTES_MIN
            && self.address.is_null()
            && self.fd >= 0
            && self.offset >= 0
            && self.flags & !(libc::MAP_TYPE | COMPATIBLE_FLAGS) == 0
            && self.protection & libc::PROT_READ != 0
            && self.protection & !allowed == 0
    }

    fn is_shared(&self) -> bool {
        self.flags & libc::MAP_TYPE == libc::MAP_SHARED
    }

    fn is_written(&self) -> bool {
        self.protection & libc::PROT_WRITE != 0
    }

    fn map(&self) -> Result<usize, i32> {
        let MapCall { address, bytes, protection, flags, fd, offset } = *self;
        // SAFETY: the arguments are those of the program's own call.
        let mapped = unsafe { real::mmap(address, bytes, protection, flags, fd, offset) };
        if mapped == libc::MAP_FAILED { Err(inside::errno()) } else { Ok(mapped as usize) }
    }
}

/// Serves an `mmap` call if the file matches a rule. Returns the address or an error number.
pub(crate) fn map(asked: &MapCall) -> Option<Result<usize, i32>> {
    let file = file_of(asked.fd)?;
    let page_bytes = rustix::param::page_size();
    let offset = u64::try_from(asked.offset).ok()?;
    let rest = file.version.bytes.checked_sub(offset)?;
    let bytes = asked.bytes.checked_next_multiple_of(page_bytes)?;
    let is_beyond = bytes as u64 > rest.checked_next_multiple_of(page_bytes as u64)?;
    if is_beyond || !offset.is_multiple_of(page_bytes as u64) {
        return None;
    }
    if asked.is_shared() && !file.is_read_only {
        return None;
    }
    // Load the whole last page, because its rest also shows the file.
    let image_bytes = rest.min(bytes as u64);
    let line = Line::new("mmap", &file.path, offset, image_bytes);
    let loader = loader(asked, &file, offset, image_bytes);
    let choice = match loader.choices() {
        Ok(choices) => choices.into_iter().next()?,
        Err(error) => {
            line.failed(&error).write();
            return None;
        }
    };
    // A clone is shared with children, unlike a private mapping.
    if choice.method.maps_the_file() || choice.method == Method::Clone {
        return Some(map_as_chosen(asked, &choice, line));
    }
    match load(&loader, &file) {
        Ok(image) => Some(Ok(pass_image(asked, file, offset, bytes, image, line))),
        Err(why) => {
            line.failed(&why).write();
            None
        }
    }
}

fn loader(asked: &MapCall, file: &Match, offset: u64, bytes: u64) -> Loader {
    let mut loader = file.rule.loader(&file.path).range(offset..offset + bytes);
    if !asked.is_written() {
        loader = loader.written(0.0);
    }
    // Pages can be moved only between writable mappings.
    let is_eager = asked.flags & libc::MAP_POPULATE != 0 || !asked.is_written();
    if is_eager || !serves_system_call_faults() {
        loader = loader.latency(Latency::Finish);
    }
    // SAFETY: the user who named the file in a rule promised that it does not change while the
    // program runs.
    unsafe { loader.may_map() }
}

/// Maps the file as requested, with the advice that implements the chosen method.
fn map_as_chosen(asked: &MapCall, choice: &Choice, line: Line) -> Result<usize, i32> {
    let mapped = asked.map();
    if let Ok(address) = mapped {
        let advice = match choice.method {
            Method::MmapHuge | Method::Clone => Some(libc::MADV_HUGEPAGE),
            Method::MmapWillneed => Some(libc::MADV_WILLNEED),
            Method::MmapPopulateRead => Some(libc::MADV_POPULATE_READ),
            Method::MmapPopulateWrite if asked.is_written() => Some(libc::MADV_POPULATE_WRITE),
            _ => None,
        };
        if let Some(advice) = advice {
            // SAFETY: none of this advice changes contents.
            unsafe { real::madvise(address as *mut c_void, asked.bytes, advice) };
        }
        line.mapped(choice).write();
    }
    mapped
}

/// Loads the file by name, if the name still refers to the file that the program has open.
fn load(loader: &Loader, file: &Match) -> Result<Image, String> {
    let not_it = || "its name refers to another file than the open one".to_string();
    if !file.is_present() {
        return Err(not_it());
    }
    let image = loader.load().map_err(|error| error.to_string())?;
    // The checks before and after ensure that the load opened the same file.
    if !file.is_present() {
        return Err(not_it());
    }
    image.check().map_err(|error| error.to_string())?;
    if !image.serves_system_calls() {
        image.wait().map_err(|error| error.to_string())?;
    }
    Ok(image)
}

/// Passes an image to the program, complete or still loading.
fn pass_image(
    asked: &MapCall,
    file: Match,
    offset: u64,
    bytes: usize,
    image: Image,
    line: Line,
) -> usize {
    let mapping = image.mapping();
    let start = mapping.address as usize + mapping.image_at;
    let origin = Origin { path: file.path, version: file.version, is_shared: asked.is_shared() };
    let part = Part { start, end: start + bytes, offset, origin: Arc::new(origin) };
    let progress = image.progress();
    let is_complete = progress.loaded_bytes >= progress.total_bytes;
    let is_on_demand = image.method() == Method::TakeoverOnDemand && !is_complete;
    let protect = || {
        if !asked.is_written() {
            // SAFETY: the program has no access to these pages yet.
            unsafe { real::mprotect(start as *mut c_void, bytes, asked.protection) };
        }
    };
    let is_recorded = image.recording().is_some();
    // A recorded image is filled by copies, which also work in read-only memory.
    if is_on_demand && (asked.is_written() || is_recorded) {
        protect();
        loading::begin(part, asked.fd, image, line);
        return start;
    }
    if is_recorded {
        // Everything was loaded at once, so nothing could be recorded. Dropping the image would
        // save that.
        std::mem::forget(image);
        protect();
        loading::add(part);
        return start;
    }
    let is_file = image.method().maps_the_file();
    loading::complete(image, &part, line);
    protect();
    if !is_file {
        loading::add(part);
    }
    start
}

/// Serves `munmap` where an image may be.
pub(crate) fn unmap(start: usize, bytes: usize) -> Result<(), i32> {
    let end = end_of(start, bytes)?;
    if loading::has_loads() && loading::abandon(start, end) {
        return Ok(());
    }
    forget(start, end);
    // SAFETY: the arguments are those of the program's own call.
    match unsafe { real::munmap(start as *mut c_void, bytes) } {
        0 => Ok(()),
        _ => Err(inside::errno()),
    }
}

/// Removes a range of addresses that is about to be reused.
pub(crate) fn forget(start: usize, end: usize) {
    loading::finish_between(start, end);
    state().table.cut(start, end);
}

/// Returns the end of a page-aligned range.
fn end_of(start: usize, bytes: usize) -> Result<usize, i32> {
    let page_bytes = rustix::param::page_size();
    let end = bytes.checked_next_multiple_of(page_bytes).and_then(|bytes| start.checked_add(bytes));
    end.filter(|_| bytes > 0 && start.is_multiple_of(page_bytes)).ok_or(libc::EINVAL)
}

/// Serves `madvise` calls that discard pages, where an image may be. A file mapping shows the
/// file's bytes afterwards, so replace the image by such a mapping.
pub(crate) fn discard(start: usize, bytes: usize, advice: c_int) -> Result<(), i32> {
    let end = end_of(start, bytes)?;
    loading::finish_between(start, end);
    if advice == libc::MADV_FREE || advice == libc::MADV_WIPEONFORK {
        // Valid for anonymous memory only, and the program expects a file mapping.
        return match state().table.has_any(start, end) {
            true => Err(libc::EINVAL),
            false => advise(start, end, advice),
        };
    }
    let parts = state().table.cut(start, end);
    let mut at = start;
    for part in parts {
        if at < part.start {
            advise(at, part.start, advice)?;
        }
        at = part.end;
        if !show_file(&part) {
            // The file is gone. Keep the image: the call is only advice.
            loading::add(part);
        }
    }
    if at < end { advise(at, end, advice) } else { Ok(()) }
}

fn advise(start: usize, end: usize, advice: c_int) -> Result<(), i32> {
    // SAFETY: the arguments are a part of the program's own call.
    match unsafe { real::madvise(start as *mut c_void, end - start, advice) } {
        0 => Ok(()),
        _ => Err(inside::errno()),
    }
}

/// Maps the file in place of an image. Returns false on failure.
fn show_file(part: &Part) -> bool {
    let Some(file) = loading::open(&part.origin) else { return false };
    protections(part.start, part.end).into_iter().all(|(from, to, protection)| {
        let offset = part.offset + (from - part.start) as u64;
        map_over(from, to, protection, &part.origin, file.as_raw_fd(), offset)
    })
}

fn map_over(
    from: usize,
    to: usize,
    protection: c_int,
    origin: &Origin,
    fd: c_int,
    offset: u64,
) -> bool {
    let kind = if origin.is_shared { libc::MAP_SHARED } else { libc::MAP_PRIVATE };
    let flags = kind | libc::MAP_FIXED;
    // SAFETY: the addresses are the program's image of these bytes, which it has discarded.
    let mapped =
        unsafe { real::mmap(from as *mut c_void, to - from, protection, flags, fd, offset as i64) };
    mapped != libc::MAP_FAILED
}

/// Arguments of `mremap`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RemapCall {
    pub(crate) address: *mut c_void,
    pub(crate) bytes: usize,
    pub(crate) new_bytes: usize,
    pub(crate) flags: c_int,
    pub(crate) new_address: *mut c_void,
}

impl RemapCall {
    fn call(&self) -> Result<usize, i32> {
        // SAFETY: the arguments are those of the program's own call.
        let moved = unsafe {
            real::mremap(self.address, self.bytes, self.new_bytes, self.flags, self.new_address)
        };
        if moved == libc::MAP_FAILED { Err(inside::errno()) } else { Ok(moved as usize) }
    }
}

/// Serves `mremap` where an image may be. Added memory shows the file too.
pub(crate) fn remap(moved: &RemapCall) -> Result<usize, i32> {
    if moved.flags & libc::MREMAP_FIXED != 0 {
        let to = moved.new_address as usize;
        forget(to, end_of(to, moved.new_bytes)?);
    }
    let start = moved.address as usize;
    let Ok(end) = end_of(start, moved.bytes) else { return moved.call() };
    loading::finish_between(start, end);
    let parts = state().table.cut(start, end);
    let Some(last) = parts.last().cloned() else { return moved.call() };
    let keep = |parts: Vec<Part>| parts.into_iter().for_each(loading::add);
    if moved.flags & libc::MREMAP_DONTUNMAP != 0 {
        // The old range would show zeros instead of the file.
        keep(parts);
        return Err(libc::EINVAL);
    }
    let grows = moved.new_bytes > moved.bytes;
    let file = if grows { loading::open(&last.origin) } else { None };
    if grows && file.is_none() {
        keep(parts);
        return Err(libc::ENOMEM);
    }
    let to = match moved.call() {
        Ok(to) => to,
        Err(errno) => {
            keep(parts);
            return Err(errno);
        }
    };
    let new_end = end_of(to, moved.new_bytes)?;
    for mut part in parts {
        (part.start, part.end) = (part.start - start + to, (part.end - start + to).min(new_end));
        if part.start < part.end {
            loading::add(part);
        }
    }
    if let Some(file) = file {
        let from = end - start + to;
        let offset = last.offset + (end - last.start) as u64;
        for (from, upto, protection) in protections(from, new_end) {
            map_over(from, upto, protection, &last.origin, file.as_raw_fd(), offset);
        }
    }
    Ok(to)
}
