//! Sections of the benchmark; each answers one question.

pub mod layers;
pub mod media;
pub mod peers;
pub mod pixels;
pub mod size;
pub mod warm_cold;

use crate::command::{Evermap, PageStore};
use crate::{Bench, Outcome};

/// Returns the command, or prints that the section is skipped.
fn evermap(bench: &Bench) -> Option<&Evermap> {
    if bench.evermap.is_none() {
        println!("**Skipped**: this section needs the command, and EVERMAP_COMMAND is `none`.");
    }
    bench.evermap.as_ref()
}

/// Creates a store on the disk for a section, and the folder that removes it on drop.
fn page_store(evermap: &Evermap) -> Outcome<(PageStore, tempfile::TempDir)> {
    let folder = tempfile::Builder::new()
        .prefix("evermap-view-bench-")
        .tempdir_in(crate::machine::disk_folder())?;
    Ok((PageStore::new(evermap, folder.path())?, folder))
}
