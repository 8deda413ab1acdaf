//! Which class a thread is in: a stack of guards, and the register that follows it.
//!
//! Invariant: after every call here, the compartments' bits of this thread's register are those of the
//! class on top of its stack, or none.

use std::cell::{Cell, RefCell};
use std::io;
use std::marker::PhantomData;
use std::thread::JoinHandle;

use super::class::{Class, Rights};
use super::rows;

thread_local! {
    static STACK: RefCell<Vec<(u64, Class)>> = const { RefCell::new(Vec::new()) };
    /// The top of the stack, for the report of a fault: read without a borrow or a destructor.
    static NOW: Cell<Option<Class>> = const { Cell::new(None) };
    static NEXT: Cell<u64> = const { Cell::new(0) };
}

/// A thread's stay in a class; from [`Class::enter`]. When it goes, the thread is in the class again
/// that it was in before. Guards may go in any order; the thread is in the class of the latest one
/// that is left.
#[must_use = "the thread leaves the class when this is dropped"]
#[derive(Debug)]
pub struct Inside {
    number: u64,
    /// Rights are the thread's own.
    of_this_thread: PhantomData<*const ()>,
}

impl Inside {
    pub(super) fn new(class: Class) -> Inside {
        let number = NEXT.with(|next| next.replace(next.get() + 1));
        // Gone only while the thread ends: then nobody is left to come back to this class.
        let _ = STACK.try_with(|stack| stack.borrow_mut().push((number, class)));
        follow(Some(class));
        Inside { number, of_this_thread: PhantomData }
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        let top = STACK.try_with(|stack| {
            let mut stack = stack.borrow_mut();
            stack.retain(|(number, _)| *number != self.number);
            stack.last().map(|(_, class)| *class)
        });
        follow(top.unwrap_or(None));
    }
}

fn follow(class: Option<Class>) {
    NOW.with(|now| now.set(class));
    rows::put_in_force(class.map_or_else(rows::no_rights, Class::rights));
}

/// The class this thread is in.
pub(super) fn class_here() -> Option<Class> {
    NOW.with(Cell::get)
}

/// The rights that this thread should have by its class.
pub(super) fn rights_due() -> Rights {
    class_here().map_or_else(rows::no_rights, Class::rights)
}

/// Takes away what this thread got by no guard of its own. A thread starts with the rights of the one that
/// started it; one that was started inside of a class calls this first, or is started by
/// [`spawn`]. After a jump out of a signal handler (`siglongjmp`), which leaves the rights of the
/// handler in force, it puts those of the thread's class back.
pub fn shed_inherited_rights() {
    rows::put_in_force(rights_due());
}

/// Starts a thread that is in no class.
///
/// # Errors
/// When the system gives no thread.
pub fn spawn<F, T>(work: F) -> io::Result<JoinHandle<T>>
where
    F: FnOnce() -> T + Send + 'static,
    T: Send + 'static,
{
    std::thread::Builder::new().spawn(move || {
        shed_inherited_rights();
        work()
    })
}
