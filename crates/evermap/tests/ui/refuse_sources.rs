//! Sources that don't fit.

use evermap::{Error, Mut, PMap, PString, PVec, Persist};

#[derive(Persist)]
#[repr(C)]
struct Key(u64);

fn number_for_text(mut lines: Mut<'_, PVec<PString>>) -> Result<(), Error> {
    lines.push(5)?;
    Ok(())
}

fn other_width(mut numbers: Mut<'_, PVec<u64>>) -> Result<(), Error> {
    numbers.push(5_u32)?;
    Ok(())
}

fn unhashed_key(mut map: Mut<'_, PMap<Key, u64>>) -> Result<(), Error> {
    map.remove(&Key(1));
    Ok(())
}

#[derive(Persist)]
#[repr(C)]
struct Note {
    text: PString,
    count: u64,
}

fn wrong_field(mut notes: Mut<'_, PVec<Note>>) -> Result<(), Error> {
    notes.push(NoteInit { text: 7, count: 7_u64 })?;
    Ok(())
}

fn main() {}
