//! Moving a container, with its pointers, into another object.

use evermap::{Mut, PVec};

fn swap(mut one: Mut<'_, PVec<u64>>, mut other: Mut<'_, PVec<u64>>) {
    std::mem::swap(&mut *one, &mut *other);
}

fn main() {}
