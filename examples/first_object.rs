//! Keeps notes, and still has them in the next run:
//! `cargo run --example first_object -- "water the plants"`

use evermap::{PString, PVec, Persist, Store};

#[derive(Persist)]
#[repr(C)] // the layout is stored in the file
struct Note {
    run: u64,
    text: PString,
}

#[derive(Persist)]
#[repr(C)]
struct Notes {
    runs: u64,
    all: PVec<Note>,
}

fn main() -> evermap::Result<()> {
    let store = Store::open_or_create("notes.store")?;
    if !store.contains("notes")? {
        store.create::<Notes, _>("notes", Notes { runs: 0, all: PVec::new() })?;
    }

    let mut session = store.write::<Notes>("notes")?;
    let mut root = session.root_mut();
    let mut notes = root.fields();
    *notes.runs += 1;
    for text in std::env::args().skip(1) {
        notes.all.push(NoteInit { run: *notes.runs, text: &*text })?;
    }
    session.commit()?;

    for note in &session.all {
        println!("run {}: {}", note.run, &*note.text);
    }
    session.close()
}
