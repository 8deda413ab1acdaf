//! Layouts that aren't fixed.

use evermap::{PString, Persist};

#[derive(Persist)]
struct NoRepr {
    text: PString,
}

#[derive(Persist)]
enum NoInteger {
    One,
    Two,
}

#[derive(Persist)]
#[repr(C)]
enum SizeOfC {
    One,
    Two,
}

#[derive(Persist)]
#[repr(u8)]
enum WithData {
    One,
    Two(u64),
}

#[derive(Persist)]
#[repr(C, packed)]
struct Packed {
    one: u8,
    other: u64,
}

#[derive(Persist)]
#[repr(C)]
union Either {
    one: u8,
    other: u64,
}

#[derive(Persist)]
#[repr(C)]
struct Borrowing<'a> {
    text: &'a str,
}

fn main() {}
