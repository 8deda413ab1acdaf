//! Signal handlers start with the kernel's default rights, independent of the thread's class.

use std::sync::atomic::{AtomicUsize, Ordering};

use evermap::Access;
use evermap_compartment::compartments::{Class, assign, reset_rights};

use super::{BOTH, may, may_read, object, store};

/// Address that handlers probe, and their result. Bit 0: readable at once. Bit 1: readable after
/// the handler took the rights of its thread's class.
static ADDRESS: AtomicUsize = AtomicUsize::new(0);
static FOUND: AtomicUsize = AtomicUsize::new(usize::MAX);

extern "C" fn probe(_: libc::c_int) {
    let address = ADDRESS.load(Ordering::Relaxed) as *const u8;
    let at_once = usize::from(may_read(address));
    reset_rights();
    FOUND.store(at_once | usize::from(may_read(address)) << 1, Ordering::Relaxed);
}

fn handle(signal: libc::c_int, handler: extern "C" fn(libc::c_int)) {
    // SAFETY: nothing else is interrupted in this test, so the handler is safe.
    unsafe { libc::signal(signal, handler as *const () as usize) };
}

fn raise(signal: libc::c_int) {
    // SAFETY: the signal is handled.
    assert_eq!(unsafe { libc::raise(signal) }, 0);
}

pub fn handlers() {
    let (_directory, store) = store();
    let mut words = object(&store, "words");
    let class = Class::define("writer").unwrap();
    assign(&mut words, &[(class, Access::Write)]).unwrap();
    ADDRESS.store(words.root().address as usize, Ordering::Relaxed);
    handle(libc::SIGUSR1, probe);
    raise(libc::SIGUSR1);
    assert_eq!(FOUND.load(Ordering::Relaxed), 0b00, "no rights outside a class");
    let _inside = class.enter();
    raise(libc::SIGUSR1);
    assert_eq!(FOUND.load(Ordering::Relaxed), 0b10);
    assert_eq!(may(&words), BOTH, "returning restores the thread's rights");
}

/// `sigjmp_buf` of the C library, with spare room.
#[repr(C, align(16))]
struct Place([u64; 64]);

unsafe extern "C" {
    #[link_name = "__sigsetjmp"]
    fn sigsetjmp(place: *mut Place, save: libc::c_int) -> libc::c_int;
    fn siglongjmp(place: *mut Place, value: libc::c_int) -> !;
}

static PLACE: AtomicUsize = AtomicUsize::new(0);

extern "C" fn jump(_: libc::c_int) {
    // SAFETY: the function that raised the signal set the jump buffer and has not returned.
    unsafe { siglongjmp(PLACE.load(Ordering::Relaxed) as *mut Place, 1) };
}

pub fn jumps() {
    let (_directory, store) = store();
    let mut words = object(&store, "words");
    let class = Class::define("writer").unwrap();
    assign(&mut words, &[(class, Access::Write)]).unwrap();
    let _inside = class.enter();
    handle(libc::SIGUSR1, jump);
    let place = Box::leak(Box::new(Place([0; 64])));
    PLACE.store(std::ptr::from_mut(place) as usize, Ordering::Relaxed);
    // SAFETY: no destructor lies between this frame and the handler, and no variable changes in
    // between.
    if unsafe { sigsetjmp(place, 1) } == 0 {
        raise(libc::SIGUSR1);
        unreachable!("the handler jumps");
    }
    assert!(!may_read(words.root().address), "the handler's rights remain");
    reset_rights();
    assert_eq!(may(&words), BOTH);
}
