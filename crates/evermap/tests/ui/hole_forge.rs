//! Making a container that isn't one, or a cursor or slot out of nothing.

use evermap::{Mut, PBox, PMap, PString, PVec};

fn forge(mut other: PVec<u8>) -> PVec<u8> {
    other.len = 10;
    PVec { elements: std::ptr::null_mut(), len: 10, capacity: 10 }
}

fn wrap(bytes: PVec<u8>) -> PString {
    PString(bytes)
}

fn constructors(mut map: PMap<u64, u64>, mut number: u64) {
    let _ = PBox::new(1_u64);
    let _ = Mut::new(&mut number);
    map.insert(1, 1);
}

fn main() {}
