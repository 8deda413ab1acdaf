//! Report of the process: reads are counted here, and what remains is written when it ends.

use std::path::Path;
use std::time::Duration;

use crate::line::{Line, is_wanted};
use crate::loading::state;

/// Counts a read of a file, reported when the program ends.
pub(crate) fn count_read(call: &'static str, path: &Path, bytes: u64, took: Duration) {
    if !is_wanted() {
        return;
    }
    let read = Line::of_read(call, path, bytes, took);
    let mut state = state();
    if !state.reads.iter_mut().any(|line| line.add_read(&read)) {
        state.reads.push(read);
    }
}

/// Reports what remains at the end: reads, and unfinished loads.
pub(crate) fn write_rest() {
    let mut state = state();
    for image in state.loading.iter().filter_map(|loading| loading.image.as_ref()) {
        if image.recording().is_some_and(|recording| recording.touched_share() > 0.0) {
            let _ = image.save_recording();
        }
    }
    if !is_wanted() {
        return;
    }
    let mut lines = std::mem::take(&mut state.reads);
    let images = state.loading.iter().filter_map(|loading| {
        loading.image.as_ref().map(|image| loading.line.clone().of_image(image))
    });
    lines.extend(images);
    drop(state);
    lines.iter().for_each(Line::write);
}
