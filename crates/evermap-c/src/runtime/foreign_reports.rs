//! Reports of foreign pointers: to the program's callback, or on stderr.

use std::ffi::c_void;
use std::sync::{Mutex, PoisonError};

use evermap_core::ForeignPointer;

use crate::abi::arguments::owned;
use crate::abi::types::{em_foreign_callback, em_foreign_pointer};

/// Maximum lines written per object if the program sets no callback.
const LINES_MAX: usize = 8;

/// Callback of the program and its context.
struct Reports {
    callback: em_foreign_callback,
    context: usize,
}

static REPORTS: Mutex<Reports> = Mutex::new(Reports { callback: None, context: 0 });

/// Sets the program's callback; `None` writes the reports on stderr.
pub fn set_callback(callback: em_foreign_callback, context: *mut c_void) {
    let mut reports = REPORTS.lock().unwrap_or_else(PoisonError::into_inner);
    *reports = Reports { callback, context: context as usize };
}

/// Reports foreign pointers found by a commit to the program's callback, or else on stderr.
/// `before` is the number already reported for this object.
pub fn report(object: &str, before: usize, pointers: &[ForeignPointer]) {
    let reports = REPORTS.lock().unwrap_or_else(PoisonError::into_inner);
    let (callback, context) = (reports.callback, reports.context as *mut c_void);
    // Release the lock: the callback may call the library.
    drop(reports);
    for (number, pointer) in (before..).zip(pointers) {
        let message = format!("object `{object}`: {pointer}");
        match callback {
            Some(call) => tell(call, context, object, pointer, &message),
            None if number < LINES_MAX => eprintln!("evermap: {message}"),
            None if number == LINES_MAX => {
                eprintln!("evermap: object `{object}`: more such pointers; no further reports");
            }
            None => {}
        }
    }
}

fn tell(
    call: unsafe extern "C" fn(*const em_foreign_pointer, *mut c_void),
    context: *mut c_void,
    object: &str,
    pointer: &ForeignPointer,
    message: &str,
) {
    let (object, into, message) = (owned(object), owned(&pointer.into), owned(message));
    let told = em_foreign_pointer {
        size: size_of::<em_foreign_pointer>(),
        object: object.as_ptr(),
        address: pointer.at,
        value: pointer.word,
        into: into.as_ptr(),
        message: message.as_ptr(),
    };
    // SAFETY: the program's function and the context it gave; the texts live until it returns.
    unsafe { call(&raw const told, context) };
}
