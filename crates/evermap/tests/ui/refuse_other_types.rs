//! A type that only the missing bound stops.

use evermap::{PVec, Persist};

struct Mine(u8);

#[derive(Persist)]
#[repr(C)]
struct Notes {
    started: std::time::Instant,
    mine: PVec<Mine>,
}

fn main() {}
