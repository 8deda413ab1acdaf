//! `Plain` means: no pointers.

use evermap::{PString, Persist, Plain, Ptr};

#[derive(Clone, Copy, Persist, Plain)]
#[repr(C)]
struct Linked {
    value: u64,
    next: Ptr<Linked>,
}

#[derive(Persist, Plain)]
#[repr(C)]
struct Owning {
    text: PString,
}

fn main() {}
