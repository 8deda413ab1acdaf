//! PMDK's libpmemobj: a pool with one root of a GiB, changed under its undo log.
//!
//! PMDK is made for persistent memory. On a file system without DAX it flushes with `msync`, range
//! by range, which is slow and correct, and which this benchmark measures. The library is loaded at
//! run time (Debian: `libpmemobj1`), so the build does not need it.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::mem::transmute;
use std::path::Path;

use crate::work::{Change, Engine, PAGE_BYTES, Scale, Times, Work};
use harness::{Outcome, files};

/// `TX_PARAM_NONE`.
const NO_PARAMETERS: c_int = 0;
const LIBRARY: &CStr = c"libpmemobj.so.1";

#[repr(C)]
struct Oid {
    pool: u64,
    offset: u64,
}

// Function types of `libpmemobj.h` 1.12.
type Create = unsafe extern "C" fn(*const c_char, *const c_char, usize, u32) -> *mut c_void;
type Close = unsafe extern "C" fn(*mut c_void);
type Root = unsafe extern "C" fn(*mut c_void, usize) -> Oid;
type Direct = unsafe extern "C" fn(Oid) -> *mut c_void;
type Begin = unsafe extern "C" fn(*mut c_void, *mut c_void, ...) -> c_int;
type AddRange = unsafe extern "C" fn(*const c_void, usize) -> c_int;
type Commit = unsafe extern "C" fn();
type End = unsafe extern "C" fn() -> c_int;
type ErrorMessage = unsafe extern "C" fn() -> *const c_char;

/// Functions of the library that the benchmark calls.
struct Functions {
    create: Create,
    close: Close,
    root: Root,
    direct: Direct,
    begin: Begin,
    add_range: AddRange,
    commit: Commit,
    end: End,
    error: ErrorMessage,
}

impl Functions {
    /// Loads the library. Returns `None` if it is not installed.
    fn load() -> Outcome<Option<Functions>> {
        // SAFETY: the library's constructors only read the environment.
        let library = unsafe { libc::dlopen(LIBRARY.as_ptr(), libc::RTLD_NOW) };
        if library.is_null() {
            return Ok(None);
        }
        let find = |name| symbol(library, name);
        // SAFETY: the library's header declares each symbol as a function of the type of the field
        // that it is assigned to.
        unsafe {
            Ok(Some(Functions {
                create: transmute::<Found, Create>(find(c"pmemobj_create")?),
                close: transmute::<Found, Close>(find(c"pmemobj_close")?),
                root: transmute::<Found, Root>(find(c"pmemobj_root")?),
                direct: transmute::<Found, Direct>(find(c"pmemobj_direct")?),
                begin: transmute::<Found, Begin>(find(c"pmemobj_tx_begin")?),
                add_range: transmute::<Found, AddRange>(find(c"pmemobj_tx_add_range_direct")?),
                commit: transmute::<Found, Commit>(find(c"pmemobj_tx_commit")?),
                end: transmute::<Found, End>(find(c"pmemobj_tx_end")?),
                error: transmute::<Found, ErrorMessage>(find(c"pmemobj_errormsg")?),
            }))
        }
    }

    fn failed(&self, what: &str) -> Box<dyn std::error::Error> {
        // SAFETY: the library returns a string that lives until its next error on this thread.
        let message = unsafe { CStr::from_ptr((self.error)()) };
        format!("libpmemobj: {what}: {}", message.to_string_lossy()).into()
    }
}

type Found = *mut c_void;

fn symbol(library: *mut c_void, name: &CStr) -> Outcome<Found> {
    // SAFETY: the library is loaded and is never unloaded.
    let found = unsafe { libc::dlsym(library, name.as_ptr()) };
    match found.is_null() {
        true => Err(format!("libpmemobj has no {}", name.to_string_lossy()).into()),
        false => Ok(found),
    }
}

pub struct Pmdk {
    functions: Functions,
    pool: *mut c_void,
    root: *mut u64,
}

impl Pmdk {
    pub fn new(path: &Path, scale: Scale) -> Outcome<Option<Pmdk>> {
        let Some(functions) = Functions::load()? else { return Ok(None) };
        let name = CString::new(files::text(path)?)?;
        let bytes = scale.bytes();
        // Half as much again for the undo log.
        // SAFETY: both names are zero-terminated strings.
        let pool =
            unsafe { (functions.create)(name.as_ptr(), c"words".as_ptr(), bytes * 3 / 2, 0o600) };
        if pool.is_null() {
            return Err(functions.failed("cannot create a pool"));
        }
        // SAFETY: the pool is open, and the library makes a root of the requested size.
        let root = unsafe { (functions.direct)((functions.root)(pool, bytes)) }.cast::<u64>();
        let pmdk = Pmdk { functions, pool, root };
        match pmdk.root.is_null() {
            true => Err(pmdk.functions.failed("cannot create the root")),
            false => Ok(Some(pmdk)),
        }
    }

    /// Adds the words to the transaction's undo log, then stores to them.
    fn store(&self, page: u64, word: usize, words: usize, value: u64) -> Outcome {
        let first = page as usize * (PAGE_BYTES / 8) + word;
        // SAFETY: the words are in a page of the root, and a transaction is open.
        unsafe {
            let place = self.root.add(first);
            if (self.functions.add_range)(place.cast(), words * 8) != 0 {
                return Err(self.functions.failed("cannot add a range to the transaction"));
            }
            std::slice::from_raw_parts_mut(place, words).fill(value);
        }
        Ok(())
    }

    fn change(&self, work: &Work) -> Outcome {
        // SAFETY: the pool is open, and this thread has no open transaction.
        let failed =
            unsafe { (self.functions.begin)(self.pool, std::ptr::null_mut(), NO_PARAMETERS) };
        if failed != 0 {
            return Err(self.functions.failed("cannot begin a transaction"));
        }
        for &page in &work.pages {
            match work.change {
                Change::EightBytes => self.store(page, work.word(), 1, work.new_word())?,
                Change::WholePage => self.store(page, 0, PAGE_BYTES / 8, work.filling(page))?,
            }
        }
        Ok(())
    }

    fn end(&self) -> Outcome {
        // SAFETY: `change` began a transaction on this thread.
        let failed = unsafe {
            (self.functions.commit)();
            (self.functions.end)()
        };
        match failed {
            0 => Ok(()),
            _ => Err(self.functions.failed("cannot commit the transaction")),
        }
    }
}

impl Engine for Pmdk {
    fn name(&self) -> String {
        "PMDK libpmemobj, without DAX".to_string()
    }

    fn open(&mut self) -> Outcome {
        Ok(())
    }

    fn commit(&mut self, work: &Work) -> Outcome<Times> {
        Times::of(|| self.change(work), |()| self.end())
    }

    /// Does nothing: commits defer no work.
    fn close(&mut self) -> Outcome {
        Ok(())
    }
}

impl Drop for Pmdk {
    fn drop(&mut self) {
        // SAFETY: the pool is open, and no pointer into it is used after this.
        unsafe { (self.functions.close)(self.pool) };
    }
}
