//! Sections of the benchmark; each answers one question.

pub mod layers;
pub mod media;
pub mod peers;
pub mod pixels;
pub mod size;
pub mod warm_cold;

use crate::Bench;
use crate::command::{Evermap, PageStore};
use harness::Outcome;
use harness::files::Folder;

/// Returns the command, or prints that the section is skipped.
fn evermap(bench: &Bench) -> Option<&Evermap> {
    if bench.own.evermap.is_none() {
        println!("**Skipped**: this section needs the command, and EVERMAP_COMMAND is `none`.");
    }
    bench.own.evermap.as_ref()
}

/// Creates a store on the disk for a section, and the folder that removes it on drop.
fn page_store(bench: &Bench, evermap: &Evermap) -> Outcome<(PageStore, Folder)> {
    let folder = bench.temporary("pages")?;
    Ok((PageStore::new(evermap, folder.path())?, folder))
}
