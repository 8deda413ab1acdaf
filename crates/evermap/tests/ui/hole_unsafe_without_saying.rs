//! What needs `unsafe` says so.

use evermap::{PString, PVec, Persist, Ptr, Releaser};
use std::ptr::NonNull;

fn follow(pointer: Ptr<PString>) -> Option<&'static PString> {
    pointer.as_ref()
}

fn release(mut text: PString, releaser: &mut Releaser<'_>) {
    PString::release(NonNull::from(&mut text), releaser);
}

struct Mine;

impl Persist for Mine {}

fn forge() -> PVec<u8> {
    PVec { elements: std::ptr::null_mut(), len: 10, capacity: 10 }
}

fn main() {}
