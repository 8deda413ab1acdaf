//! Records the builds of programs and libraries that an object's pointers lead into, and checks
//! whether this process has them.
//!
//! An address of code is valid only in the same build of a program at the same base address. A
//! commit that finds such addresses records the build. Opening the object in a process with a
//! different build is an error. The record occupies the root area of raw objects, see
//! [`CodeRecord`], so it must never overwrite a root that is stored there.

use std::ffi::{CStr, c_int, c_void};
use std::path::Path;

use bytemuck::{Zeroable, bytes_of};

use super::superblock::hex;
use crate::checksum::crc32c;
use crate::error::{Error, Result};
use crate::format::{
    CODE_FIXED, CODE_MAGIC, CODE_MODULES_MAX, CODE_MORE, CODE_REGISTERED, CODE_VERSION,
    CODE_WITHOUT_BUILD_ID, CodeModule, CodeRecord, ROOT_AREA_BYTES, ROOT_AREA_OFFSET, Superblock,
};

/// Returns true if the root area of this object can hold a record, because its root is elsewhere.
fn has_room(s: &Superblock) -> bool {
    let regions = s.regions();
    let area = regions.first().map_or(0, |region| region.base + ROOT_AREA_OFFSET as u64);
    !s.is_guest() && s.root_address.wrapping_sub(area) >= ROOT_AREA_BYTES as u64
}

/// Reads the record in an object's root area, if there is one.
///
/// # Errors
/// `Damaged`, and `NewerFormat` for a record of a later version.
fn read(path: &Path, s: &Superblock) -> Result<Option<CodeRecord>> {
    let area = &s.root_area;
    if !has_room(s) || area[..CODE_MAGIC.len()] != CODE_MAGIC {
        return Ok(None);
    }
    let record: CodeRecord = bytemuck::pod_read_unaligned(area);
    let damaged = |found: String, expected: &str| Error::Damaged {
        path: path.to_path_buf(),
        what: "the record of code",
        found,
        expected: expected.to_string(),
    };
    let computed = checksum(&record);
    if record.checksum != computed {
        return Err(damaged(format!("{:#010x}", record.checksum), &format!("{computed:#010x}")));
    }
    if record.version != CODE_VERSION {
        return Err(Error::NewerFormat {
            path: path.to_path_buf(),
            found: format!("version {} of the record of code", record.version),
            known: format!("version {CODE_VERSION}"),
        });
    }
    let sound = |m: &CodeModule| {
        usize::from(m.build_length) <= m.build.len()
            && usize::from(m.name_length) <= m.name.len()
            && m.base.checked_add(m.bytes).is_some()
    };
    let count = record.count as usize;
    if count > CODE_MODULES_MAX || !record.modules[..count].iter().all(sound) {
        return Err(damaged(format!("{count} modules"), "at most 10 valid modules"));
    }
    Ok(Some(record))
}

fn checksum(record: &CodeRecord) -> u32 {
    crc32c(&[bytes_of(&CodeRecord { checksum: 0, ..*record })])
}

/// Programs and libraries that an object's pointers lead into.
#[derive(Debug)]
pub(crate) struct Code {
    record: CodeRecord,
}

impl Code {
    /// Reads the record in page 0 of an object.
    ///
    /// # Errors
    /// `Damaged`, `NewerFormat`.
    pub(crate) fn of(path: &Path, s: &Superblock) -> Result<Option<Code>> {
        Ok(read(path, s)?.map(|record| Code { record }))
    }

    /// Creates an empty record for an object, if there is room for it.
    pub(crate) fn new(s: &Superblock) -> Option<Code> {
        let record =
            CodeRecord { magic: CODE_MAGIC, version: CODE_VERSION, ..CodeRecord::zeroed() };
        has_room(s).then_some(Code { record })
    }

    fn modules(&self) -> &[CodeModule] {
        &self.record.modules[..self.record.count as usize]
    }

    /// Checks that this process has all recorded builds at the recorded addresses.
    ///
    /// # Errors
    /// `OtherBuild`, which names both builds.
    pub(crate) fn check(&self, object: &str) -> Result<()> {
        if self.modules().is_empty() {
            return Ok(());
        }
        let loaded = Loaded::now();
        for recorded in self.modules() {
            let is_same = |m: &&CodeModule| is_same_build(m, recorded);
            let same = loaded.modules.iter().filter(is_same);
            if same.clone().any(|m| m.base == recorded.base) {
                continue;
            }
            let of_name = |m: &&CodeModule| name_of(m) == name_of(recorded);
            let overlaps = |m: &&CodeModule| {
                m.base < recorded.base + recorded.bytes && recorded.base < m.base + m.bytes
            };
            let instead = same.clone().next();
            let instead = instead.or_else(|| loaded.modules.iter().find(of_name));
            let instead = instead.or_else(|| loaded.modules.iter().find(overlaps));
            return Err(Error::OtherBuild {
                object: object.to_string(),
                recorded: describe(recorded),
                found: instead.map_or("no module of that name".to_string(), describe),
            });
        }
        Ok(())
    }

    /// Address ranges that the program registered: first and end.
    pub(crate) fn registered(&self) -> impl Iterator<Item = (u64, u64)> {
        let registered = self.modules().iter().filter(|m| m.flags & CODE_REGISTERED != 0);
        registered.map(|m| (m.base, m.base + m.bytes))
    }

    /// Records the module that contains an address; returns true if the record changed. A number
    /// can look like a low address, so such a word must lead to a function or to a table of
    /// functions.
    pub(crate) fn record(&mut self, loaded: &Loaded, at: u64, word: u64) -> bool {
        let Some(module) =
            loaded.at(word).filter(|_| word >= LOW_END || loaded.leads_to_code(word))
        else {
            return false;
        };
        self.add(*module, (at, word))
    }

    /// Registers a module: pointers into it are legal from now on. Returns true if the record
    /// changed.
    pub(crate) fn register(&mut self, module: CodeModule) -> bool {
        self.add(CodeModule { flags: module.flags | CODE_REGISTERED, ..module }, (0, 0))
    }

    fn add(&mut self, module: CodeModule, first: (u64, u64)) -> bool {
        let count = self.record.count as usize;
        let known = self.record.modules[..count]
            .iter_mut()
            .find(|known| is_same_build(known, &module) && known.base == module.base);
        match known {
            Some(known) if known.flags | module.flags == known.flags => return false,
            Some(known) => known.flags |= module.flags,
            None if count == CODE_MODULES_MAX => {
                let known = self.record.flags & CODE_MORE != 0;
                self.record.flags |= CODE_MORE;
                return !known;
            }
            None => {
                self.record.modules[count] = module;
                self.record.count += 1;
            }
        }
        if self.record.first_at == 0 {
            (self.record.first_at, self.record.first_word) = first;
        }
        true
    }

    /// Writes the record into the root area of an object's superblock.
    pub(crate) fn put(&mut self, s: &mut Superblock) {
        self.record.checksum = checksum(&self.record);
        s.root_area.copy_from_slice(bytes_of(&self.record));
    }

    /// Removes the record.
    pub(crate) fn forget(s: &mut Superblock) {
        s.root_area.fill(0);
    }
}

fn is_same_build(a: &CodeModule, b: &CodeModule) -> bool {
    (a.build_length, a.build, a.bytes) == (b.build_length, b.build, b.bytes)
}

fn name_of(m: &CodeModule) -> String {
    String::from_utf8_lossy(&m.name[..usize::from(m.name_length).min(m.name.len())]).into_owned()
}

/// Formats name, build and address for an error message.
fn describe(m: &CodeModule) -> String {
    let build = hex(&m.build[..usize::from(m.build_length).min(m.build.len())]);
    let how = if m.flags & CODE_FIXED != 0 { "fixed at" } else { "at" };
    format!("{} (build {build}, {how} {:#x})", name_of(m), m.base)
}

/// Below this address are programs with fixed addresses and their heap, and most numbers that
/// programs use.
pub(crate) const LOW_END: u64 = 1 << 32;

/// The programs and libraries of this process.
pub(crate) struct Loaded {
    modules: Vec<CodeModule>,
    /// Tables of their functions, in the same order; empty if a module has none.
    functions: Vec<&'static [u8]>,
}

impl Loaded {
    pub(crate) fn now() -> Loaded {
        let mut loaded = Loaded { modules: Vec::new(), functions: Vec::new() };
        // SAFETY: the callback gets the C library's data, and `context` points to the list.
        unsafe {
            libc::dl_iterate_phdr(Some(add_module), (&raw mut loaded).cast());
        }
        loaded
    }

    /// Returns the module that contains an address.
    pub(crate) fn at(&self, address: u64) -> Option<&CodeModule> {
        self.modules.iter().find(|m| address.wrapping_sub(m.base) < m.bytes)
    }

    /// Returns true if a function begins at this address.
    pub(crate) fn is_function(&self, address: u64) -> bool {
        let at = self.modules.iter().position(|m| address.wrapping_sub(m.base) < m.bytes);
        at.is_some_and(|at| begins_function(self.functions[at], address))
    }

    /// Returns true for a function, and for the entry of a virtual table that objects point to.
    fn leads_to_code(&self, address: u64) -> bool {
        let word = |m: &CodeModule| {
            let inside = address - m.base <= m.bytes - 8 && address.is_multiple_of(8);
            // There may be unmapped gaps between a module's segments.
            inside.then(|| read_own_word(address)).flatten()
        };
        self.is_function(address)
            || self.at(address).and_then(word).is_some_and(|word| self.is_function(word))
    }

    /// Returns the program itself, which comes first.
    pub(crate) fn program(&self) -> Option<&CodeModule> {
        self.modules.first()
    }
}

/// # Safety
/// `info` comes from the C library, and `context` is a [`Loaded`].
unsafe extern "C" fn add_module(
    info: *mut libc::dl_phdr_info,
    _size: usize,
    context: *mut c_void,
) -> c_int {
    // SAFETY: as the caller promises.
    let (info, loaded) = unsafe { (&*info, &mut *context.cast::<Loaded>()) };
    // SAFETY: the C library describes the headers of a loaded module.
    let headers = unsafe { std::slice::from_raw_parts(info.dlpi_phdr, info.dlpi_phnum.into()) };
    let segments = headers.iter().filter(|h| h.p_type == libc::PT_LOAD);
    let first = segments.clone().map(|h| h.p_vaddr).min().unwrap_or(0);
    let end = segments.clone().map(|h| h.p_vaddr + h.p_memsz).max().unwrap_or(0);
    let mut module = CodeModule {
        base: info.dlpi_addr.wrapping_add(first),
        bytes: end - first,
        bias: info.dlpi_addr,
        flags: if info.dlpi_addr == 0 { CODE_FIXED } else { 0 },
        ..CodeModule::zeroed()
    };
    // SAFETY: the name comes from the C library, or is null.
    let name = (!info.dlpi_name.is_null()).then(|| unsafe { CStr::from_ptr(info.dlpi_name) });
    set_name(&mut module, name.map_or(&[], CStr::to_bytes));
    let notes = headers.iter().filter(|h| h.p_type == libc::PT_NOTE);
    let build = notes.clone().find_map(|h| {
        // SAFETY: a segment of a loaded module, mapped for as long as it is loaded.
        build_id(unsafe { segment(info.dlpi_addr, h) })
    });
    match build {
        Some(build) => set_build(&mut module, build),
        None => {
            let is_code = |h: &&libc::Elf64_Phdr| h.p_flags & (libc::PF_X | libc::PF_R) == 5;
            let code = segments.clone().find(is_code);
            // SAFETY: as above; code is readable.
            let code = code.map_or(&[][..], |h| unsafe { segment(info.dlpi_addr, h) });
            let mut build = [0; 12];
            build[..4].copy_from_slice(&crc32c(&[code]).to_le_bytes());
            build[4..].copy_from_slice(&(code.len() as u64).to_le_bytes());
            set_build(&mut module, &build);
            module.flags |= CODE_WITHOUT_BUILD_ID;
        }
    }
    if module.bytes > 0 {
        let table = headers.iter().find(|h| h.p_type == libc::PT_GNU_EH_FRAME);
        // SAFETY: as above.
        let table = table.map_or(&[][..], |h| unsafe { segment(info.dlpi_addr, h) });
        loaded.modules.push(module);
        loaded.functions.push(table);
    }
    0
}

/// Returns true if a function begins at an address. Searches the table for unwinding
/// (`.eh_frame_hdr` of the Linux Standard Base), in the encoding that linkers use: sorted pairs of
/// offsets relative to its own start.
fn begins_function(table: &[u8], address: u64) -> bool {
    const HEAD: [u8; 4] = [1, 0x1b, 0x03, 0x3b];
    let Some((head, rest)) = table.split_at_checked(12) else { return false };
    if head[..4] != HEAD {
        return false;
    }
    let offset = (address as i64).wrapping_sub(table.as_ptr().addr() as i64);
    let Ok(offset) = i32::try_from(offset) else { return false };
    let count = u32::from_le_bytes([head[8], head[9], head[10], head[11]]) as usize;
    let pairs = rest.as_chunks::<8>().0;
    let begins = |pair: &[u8; 8]| i32::from_le_bytes([pair[0], pair[1], pair[2], pair[3]]);
    pairs[..count.min(pairs.len())].binary_search_by_key(&offset, begins).is_ok()
}

/// Reads a word of this process's memory through the kernel: `None` if nothing is mapped there.
fn read_own_word(address: u64) -> Option<u64> {
    use std::os::unix::fs::FileExt;
    let mut word = [0; 8];
    let memory = std::fs::File::open("/proc/self/mem").ok()?;
    memory.read_exact_at(&mut word, address).ok()?;
    Some(u64::from_le_bytes(word))
}

/// # Safety
/// The header belongs to a loaded module with this bias, and the segment is readable.
unsafe fn segment(bias: u64, h: &libc::Elf64_Phdr) -> &'static [u8] {
    let address = bias.wrapping_add(h.p_vaddr) as *const u8;
    // SAFETY: as the caller promises.
    unsafe { std::slice::from_raw_parts(address, h.p_filesz as usize) }
}

fn set_build(module: &mut CodeModule, build: &[u8]) {
    let length = build.len().min(module.build.len());
    module.build[..length].copy_from_slice(&build[..length]);
    module.build_length = length as u8;
}

/// The C library reports an empty name for the program itself.
fn set_name(module: &mut CodeModule, name: &[u8]) {
    let program = if name.is_empty() { std::env::current_exe().ok() } else { None };
    let name = program.as_ref().map_or(name, |program| program.as_os_str().as_encoded_bytes());
    let file = name.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
    let kept = &file[file.len().saturating_sub(module.name.len())..];
    module.name[..kept.len()].copy_from_slice(kept);
    module.name_length = kept.len() as u8;
}

/// Finds the build-id in a segment of notes: `NT_GNU_BUILD_ID` of the owner `GNU`.
fn build_id(notes: &[u8]) -> Option<&[u8]> {
    const TYPE: u32 = 3;
    let mut rest = notes;
    while rest.len() >= 12 {
        let word =
            |at: usize| u32::from_le_bytes([rest[at], rest[at + 1], rest[at + 2], rest[at + 3]]);
        let (owner, length, kind) = (word(0) as usize, word(4) as usize, word(8));
        let owner_end = 12usize.checked_add(owner)?;
        let from = owner_end.checked_next_multiple_of(4)?;
        let build = rest.get(from..from.checked_add(length)?)?;
        if kind == TYPE && rest.get(12..owner_end)? == b"GNU\0" {
            return Some(build);
        }
        rest = rest.get(from.checked_add(length)?.checked_next_multiple_of(4)?..)?;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_running_program_has_a_build_id_and_is_found_by_an_address_in_it() {
        let loaded = Loaded::now();
        let here = the_running_program_has_a_build_id_and_is_found_by_an_address_in_it as fn();
        let module = loaded.at(here as usize as u64).unwrap();
        assert_eq!(Some(module), loaded.program());
        assert!(module.build_length >= 12 && module.name_length > 0, "{}", describe(module));
        assert!(loaded.at(12).is_none());
        assert!(loaded.is_function(here as usize as u64));
        assert!(!loaded.is_function(here as usize as u64 + 1));
    }

    #[test]
    fn a_build_id_is_found_after_other_notes_and_bad_notes_are_rejected() {
        let mut notes = Vec::new();
        for (owner, kind, text) in
            [("GNU\0", 1u32, &b"abc"[..]), ("x\0", 3, b"no"), ("GNU\0", 3, b"0123")]
        {
            notes.extend((owner.len() as u32).to_le_bytes());
            notes.extend((text.len() as u32).to_le_bytes());
            notes.extend(kind.to_le_bytes());
            notes.extend(owner.as_bytes());
            notes.resize(notes.len().next_multiple_of(4), 0);
            notes.extend(text);
            notes.resize(notes.len().next_multiple_of(4), 0);
        }
        assert_eq!(build_id(&notes), Some(&b"0123"[..]));
        for end in 0..notes.len() - 4 {
            assert_eq!(build_id(&notes[..end]), None, "{end}");
        }
        for at in 0..notes.len() {
            let mut bad = notes.clone();
            bad[at] = 0xff;
            let _ = build_id(&bad);
        }
    }

    fn superblock() -> Superblock {
        let mut s = super::super::superblock::blank();
        s.region_count = 1;
        s.regions[0].base = 0x2000_0000_0000;
        s
    }

    #[test]
    fn a_record_changed_in_any_bit_is_refused() {
        let (mut s, path) = (superblock(), Path::new("x"));
        let mut code = Code::new(&s).unwrap();
        let loaded = Loaded::now();
        let here = a_record_changed_in_any_bit_is_refused as fn() as usize as u64;
        assert!(code.record(&loaded, 0x2000_0001_0000, here));
        assert!(!code.record(&loaded, 0x2000_0001_0000, here + 8), "it is recorded already");
        code.put(&mut s);
        let read = Code::of(path, &s).unwrap().unwrap();
        assert_eq!(read.modules(), code.modules());
        read.check("x").unwrap();
        for bit in CODE_MAGIC.len() * 8..ROOT_AREA_BYTES * 8 {
            s.root_area[bit / 8] ^= 1 << (bit % 8);
            assert!(matches!(Code::of(path, &s), Err(Error::Damaged { .. })), "bit {bit}");
            s.root_area[bit / 8] ^= 1 << (bit % 8);
        }
    }

    #[test]
    fn a_different_build_or_address_is_refused_and_the_error_names_both() {
        let s = superblock();
        let program = *Loaded::now().program().unwrap();
        let mut other = CodeModule { build_length: 20, ..program };
        other.build[0] ^= 1;
        let moved = CodeModule { base: program.base + 4096, ..program };
        for recorded in [other, moved] {
            let mut code = Code::new(&s).unwrap();
            assert!(code.register(recorded));
            let text = code.check("thing").unwrap_err().to_string();
            for part in ["thing", &describe(&recorded), &describe(&program)] {
                assert!(text.contains(part), "{text} lacks {part}");
            }
        }
    }

    #[test]
    fn a_root_in_the_root_area_leaves_no_room_for_a_record() {
        let mut s = superblock();
        s.root_address = 0x2000_0000_0000 + ROOT_AREA_OFFSET as u64;
        assert!(Code::new(&s).is_none());
    }
}
