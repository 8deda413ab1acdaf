//! Operations that need `unsafe` must be marked so.

use std::ptr::NonNull;

use evermap::{Mut, PString, Persist, Ptr, Releaser};

fn follow(pointer: Ptr<PString>) -> Option<&'static PString> {
    pointer.as_ref()
}

fn follow_mut<'a>(pointer: Ptr<PString>, cursor: &'a mut Mut<'_, u64>) -> Option<Mut<'a, PString>> {
    pointer.follow_mut(cursor)
}

fn release(mut text: PString, releaser: &mut Releaser<'_>) {
    <PString as Persist>::release(NonNull::from(&mut text), releaser);
}

fn main() {}
