//! Taking a container out of its object, by each way there might be.

use evermap::{Mut, PBox, PMap, PString, PVec, Persist};

#[derive(Persist)]
#[repr(C)]
struct Notes {
    lines: PVec<PString>,
    next: Option<PBox<Notes>>,
}

fn take(mut notes: Mut<'_, Notes>) -> PVec<PString> {
    std::mem::take(&mut notes.lines)
}

fn take_through_fields(mut notes: Mut<'_, Notes>) -> PVec<PString> {
    std::mem::take(&mut *notes.fields().lines)
}

fn take_option(mut notes: Mut<'_, Notes>) -> Option<PBox<Notes>> {
    notes.next.take()
}

fn replace(mut notes: Mut<'_, Notes>, other: Notes) -> Notes {
    std::mem::replace(&mut *notes, other)
}

fn move_out(notes: Mut<'_, Notes>) -> Notes {
    *notes
}

fn move_field_out(notes: &Notes) -> PVec<PString> {
    notes.lines
}

fn pop(mut lines: Mut<'_, PVec<PString>>) -> Option<PString> {
    lines.pop()
}

fn slice(mut lines: Mut<'_, PVec<PString>>) -> PString {
    std::mem::take(&mut lines.as_mut_slice()[0])
}

fn iterate(lines: Mut<'_, PVec<PString>>) -> Vec<PString> {
    lines.into_iter().map(|mut line| std::mem::take(&mut *line)).collect()
}

fn take_value(mut map: Mut<'_, PMap<u64, PString>>) -> Option<PString> {
    map.take(&1)
}

fn clone(lines: &PVec<PString>) -> PVec<PString> {
    lines.clone()
}

fn main() {}
