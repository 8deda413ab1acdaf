//! The sections: each answers one question.

pub mod layers;
pub mod media;
pub mod peers;
pub mod pixels;
pub mod size;
pub mod warm_cold;

use crate::command::{Evermap, Shelf};
use crate::{Bench, Outcome};

/// The command, or a word about its absence.
fn evermap(bench: &Bench) -> Option<&Evermap> {
    if bench.evermap.is_none() {
        println!("**Skipped**: it measures evermap itself, and EVERMAP_COMMAND is `none`.");
    }
    bench.evermap.as_ref()
}

/// A store for a section, on the disk, and the folder that goes away with it.
fn shelf(evermap: &Evermap) -> Outcome<(Shelf, tempfile::TempDir)> {
    let folder = tempfile::Builder::new()
        .prefix("evermap-view-bench-")
        .tempdir_in(crate::machine::disk_folder())?;
    Ok((Shelf::new(evermap, folder.path())?, folder))
}
