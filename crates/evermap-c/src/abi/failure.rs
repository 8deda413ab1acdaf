//! Failures of calls: a status for the caller, details for its thread, and never a panic.

use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char};
use std::panic::{AssertUnwindSafe, catch_unwind};

use evermap_core::{Error, HeapError, tools};
use libc::c_int;

use crate::abi::status;
use crate::abi::types::em_status;

/// Reason for a failed call. Boxed, so that a result fits two registers.
#[derive(Debug)]
pub struct Failure(Box<Details>);

#[derive(Debug)]
pub struct Details {
    pub status: em_status,
    errno: c_int,
    pub message: String,
}

pub type Result<T> = std::result::Result<T, Failure>;

impl std::ops::Deref for Failure {
    type Target = Details;

    fn deref(&self) -> &Details {
        &self.0
    }
}

impl Failure {
    #[cold]
    pub fn new(status: em_status, message: impl Into<String>) -> Failure {
        let (errno, message) = (status::errno_of(status), message.into());
        Failure(Box::new(Details { status, errno, message }))
    }

    /// Sets the errno that the kernel returned.
    pub fn with_errno(mut self, errno: c_int) -> Failure {
        self.0.errno = errno;
        self
    }

    /// An invalid argument.
    pub fn argument(message: impl Into<String>) -> Failure {
        Failure::new(status::INVALID_ARGUMENT, message)
    }

    /// A session or write section cannot end because it has uncommitted changes.
    pub fn uncommitted(name: &str) -> Failure {
        let message = format!(
            "object `{name}` has changes that are not committed; commit them, or roll back to drop \
             them, and then end it again"
        );
        Failure::new(status::UNCOMMITTED, message)
    }

    /// The function requires an object that is open for sharing.
    pub fn not_shared(name: &str) -> Failure {
        let message = format!("object `{name}` is not open for sharing; open it with EM_SHARE");
        Failure::new(status::INVALID_ARGUMENT, message)
    }

    /// The function requires an object that is open for writing.
    pub fn read_only(name: &str) -> Failure {
        let message = format!("object `{name}` is open for reading; open it for writing");
        Failure::new(status::READ_ONLY, message)
    }
}

/// Remedies of the Rust library that name its items, and their replacements for C and C++.
const REMEDIES: [(&str, &str); 5] = [
    ("create one with `Store::create_new` or", "create one there or"),
    ("Store::share lets", "EM_SHARE, in C++ evermap::shared, lets"),
    (", migrate it with Store::write_migrating, or", " or"),
    ("open the store with `Options::other_builds`", "open the store with EM_OTHER_BUILDS_OPEN"),
    ("open it with Store::read or Store::write, outside", "open it outside"),
];

/// Converts a message of the Rust library for C and C++ callers.
fn for_c(message: String) -> String {
    REMEDIES.iter().fold(message, |message, (rust, c)| match message.contains(rust) {
        true => message.replace(rust, c),
        false => message,
    })
}

impl From<HeapError> for Failure {
    #[cold]
    fn from(error: HeapError) -> Failure {
        Error::from(error).into()
    }
}

impl From<Error> for Failure {
    #[cold]
    fn from(error: Error) -> Failure {
        let status = status::status_of(&error);
        let errno = match &error {
            Error::Io { source, .. } => source.raw_os_error().unwrap_or(libc::EIO),
            _ => status::errno_of(status),
        };
        Failure(Box::new(Details { status, errno, message: for_c(error.to_string()) }))
    }
}

impl From<tools::Error> for Failure {
    #[cold]
    fn from(error: tools::Error) -> Failure {
        match error {
            tools::Error::Store(error) => error.into(),
            other => Failure::new(status::status_of_tools(&other), other.to_string()),
        }
    }
}

thread_local! {
    /// Last failure of the thread.
    static LAST: RefCell<Option<(em_status, CString)>> = const { RefCell::new(None) };
}

/// Stores a failure for the thread and sets errno.
#[cold]
pub fn remember(failure: Failure) -> em_status {
    let Details { status, errno, message } = *failure.0;
    let text = CString::new(message.replace('\0', "\\0")).unwrap_or_default();
    // A thread that is ending cannot store it any more; its caller has the status.
    let _ = LAST.try_with(|last| *last.borrow_mut() = Some((status, text)));
    // SAFETY: the pointer leads to the thread's own errno.
    unsafe { *libc::__errno_location() = errno };
    status
}

pub fn last_status() -> em_status {
    LAST.try_with(|last| last.borrow().as_ref().map_or(status::OK, |(status, _)| *status))
        .unwrap_or(status::OK)
}

/// Returns the last message. The text stays valid until the thread's next failure, or until the
/// failure is cleared.
pub fn last_message() -> *const c_char {
    const NOTHING: &CStr = c"";
    LAST.try_with(|last| last.borrow().as_ref().map_or(NOTHING.as_ptr(), |(_, text)| text.as_ptr()))
        .unwrap_or(NOTHING.as_ptr())
}

pub fn forget_last() {
    let _ = LAST.try_with(|last| *last.borrow_mut() = None);
}

/// Runs a call and returns its result. A panic becomes a failure.
#[inline]
pub fn attempt<T>(call: impl FnOnce() -> Result<T>) -> Result<T> {
    // State that a panic leaves incomplete is protected by locks and guards that handle it.
    match catch_unwind(AssertUnwindSafe(call)) {
        Ok(result) => result,
        Err(panic) => Err(panicked(&*panic)),
    }
}

#[cold]
fn panicked(panic: &(dyn std::any::Any + Send)) -> Failure {
    let text = panic
        .downcast_ref::<String>()
        .map(String::as_str)
        .or_else(|| panic.downcast_ref::<&str>().copied())
        .unwrap_or("no message");
    let message = format!("the library panicked ({text}); this is a bug, please report it");
    Failure::new(status::INTERNAL, message)
}

/// Runs a call that returns a status.
pub fn status(call: impl FnOnce() -> Result<()>) -> em_status {
    attempt(call).map_or_else(remember, |()| status::OK)
}

/// Runs a call that returns 0, or -1 when it fails.
pub fn outcome(call: impl FnOnce() -> Result<()>) -> c_int {
    match self::status(call) {
        status::OK => 0,
        _ => -1,
    }
}

/// Runs a call that returns a value. Returns `otherwise` when it fails.
#[inline]
pub fn value<T>(otherwise: T, call: impl FnOnce() -> Result<T>) -> T {
    match attempt(call) {
        Ok(value) => value,
        Err(failure) => {
            remember(failure);
            otherwise
        }
    }
}

/// Ends the program, because continuing would damage the heap.
#[cold]
pub fn abort(what: &str, failure: &Failure) -> ! {
    eprintln!("evermap: {what}: {}", failure.message);
    std::process::abort();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_becomes_a_status_with_its_message() {
        assert_eq!(status(|| panic!("number {}", 7)), status::INTERNAL);
        assert_eq!(last_status(), status::INTERNAL);
        // SAFETY: the text lives until the next failure.
        let text = unsafe { CStr::from_ptr(last_message()) };
        assert!(text.to_str().unwrap().contains("number 7"), "{text:?}");
    }

    /// Calls `look` with each line of source in a directory that is neither a comment nor a test.
    fn each_line(directory: &std::path::Path, look: &mut dyn FnMut(&str)) {
        for entry in std::fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_str().unwrap();
            if path.is_dir() && name != "simulation" && name != "tests" {
                each_line(&path, look);
            } else if name.ends_with(".rs") {
                let text = std::fs::read_to_string(&path).unwrap();
                let code = text.split("#[cfg(test)]\nmod ").next().unwrap().lines().map(str::trim);
                code.filter(|line| !line.starts_with("//")).for_each(&mut *look);
            }
        }
    }

    /// Returns true if a text names an item of a Rust library.
    fn names_rust(text: &str) -> bool {
        text.replace("evermap::shared", "").match_indices("::").any(|(at, _)| {
            let is_letter = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric());
            is_letter(text[..at].chars().last()) && is_letter(text[at + 2..].chars().next())
        })
    }

    #[test]
    fn no_message_that_c_can_read_names_an_item_of_the_rust_library() {
        // Attributes for rustc, and panics of typed values, which C does not have.
        let elsewhere =
            ["#[must_use", "serialize_with =", "label =", "note =", "message =", "\"PVec::"];
        let sources = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
        let (mut rust, mut met) = (Vec::new(), [false; REMEDIES.len()]);
        for library in ["evermap", "evermap-transfer", "evermap-load", "evermap-c"] {
            each_line(&sources.join("..").join(library).join("src"), &mut |line| {
                if elsewhere.iter().any(|start| line.contains(start)) {
                    return;
                }
                for text in line.split('"').skip(1).step_by(2) {
                    for (met, (known, _)) in met.iter_mut().zip(REMEDIES) {
                        *met |= library != "evermap-c" && text.contains(known);
                    }
                    if names_rust(&for_c(text.to_string())) {
                        rust.push(format!("{library}: {text}"));
                    }
                }
            });
        }
        assert_eq!(rust, [""; 0], "add them to `REMEDIES`");
        assert_eq!(met, [true; REMEDIES.len()], "remedies that no message has any more");
        assert!(names_rust("with `Store::create_new`") && !names_rust(&for_c(String::new())));
    }

    #[test]
    fn an_error_of_the_kernel_keeps_its_errno() {
        let source = std::io::Error::from_raw_os_error(libc::EMFILE);
        let error = Error::Io { path: "x".into(), doing: "open", source };
        assert_eq!(status(|| Err(error.into())), status::IO);
        // SAFETY: the pointer leads to the thread's own errno.
        assert_eq!(unsafe { *libc::__errno_location() }, libc::EMFILE);
    }
}
