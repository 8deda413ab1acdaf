//! Overwriting a container would leak what it owns, and could bring in a foreign one.

use evermap::{Mut, PString, PVec, Persist};

#[derive(Persist)]
#[repr(C)]
struct Notes {
    lines: PVec<PString>,
    count: u64,
}

fn assign(mut notes: Mut<'_, Notes>) {
    notes.lines = PVec::new();
    notes.count = 1;
}

fn main() {}
