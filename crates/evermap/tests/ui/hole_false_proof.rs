//! Claiming that a slot was filled when it wasn't.

use evermap::{Build, Built, HeapError, PString, Persist, Slot};

#[derive(Persist)]
#[repr(C)]
struct One(PString);

/// Carries the proof of another slot.
struct Carrier<'b>(Built<'b, One>);

impl<'b> Build<Carrier<'b>> for One {
    fn build<'a>(source: Carrier<'b>, _slot: Slot<'a, Self>) -> Result<Built<'a, Self>, HeapError> {
        Ok(source.0)
    }
}

/// Fills its slot twice, to keep a proof.
struct Twice;

impl Build<Twice> for One {
    fn build<'a>(_: Twice, slot: Slot<'a, Self>) -> Result<Built<'a, Self>, HeapError> {
        let _spare = slot.write(One(PString::new()));
        Ok(slot.write(One(PString::new())))
    }
}

/// Makes a proof out of nothing.
struct Nothing;

impl Build<Nothing> for One {
    fn build<'a>(_: Nothing, _slot: Slot<'a, Self>) -> Result<Built<'a, Self>, HeapError> {
        Ok(Built(Default::default()))
    }
}

fn main() {}
