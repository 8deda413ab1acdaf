//! Keeps the size of the stored pages within a bound.
//!
//! When pages with their documents, fonts and images exceed the bound, the pages that were laid out
//! longest ago are removed, and all objects that no remaining page needs. A visit that misses a
//! font or an image lays its page out again.

use std::collections::HashSet;
use std::time::SystemTime;

use evermap::Store;

use crate::Result;
use crate::page_store::{StoredPage, is_companion, part_name, without_ending};

/// Percentage of the bound to shrink to, so that not every visit has to prune.
const LEFT_PERCENT: u64 = 80;
/// Each round removes the oldest pages, one in this many. Which parts no other page needs is known
/// only after a round.
const ROUND_DIVISOR: usize = 4;

/// An object that counts towards the bound.
struct Object {
    name: String,
    bytes: u64,
    made: SystemTime,
    kind: Kind,
}

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Page,
    /// Document of a page, or a note about it.
    Companion,
    Part,
}

/// Removes the oldest pages if all objects together exceed `bytes_max`. Returns the number of
/// removed objects.
///
/// Costs opening each object.
///
/// # Errors
/// Fails if the store can't be read or written. Objects that were removed before the failure stay
/// removed.
pub fn prune(store: &Store, bytes_max: u64) -> Result<usize> {
    let mut objects = objects(store)?;
    if total(&objects) <= bytes_max {
        return Ok(0);
    }
    let before = objects.len();
    let goal = bytes_max / 100 * LEFT_PERCENT;
    objects.sort_by_key(|object| std::cmp::Reverse(object.made));
    loop {
        remove_orphans(store, &mut objects)?;
        let pages = objects.iter().filter(|object| object.kind == Kind::Page).count();
        if total(&objects) <= goal || pages == 0 {
            return Ok(before - objects.len());
        }
        for _ in 0..pages.div_ceil(ROUND_DIVISOR) {
            let oldest = objects.iter().rposition(|object| object.kind == Kind::Page);
            if let Some(oldest) = oldest {
                remove(store, &objects.remove(oldest).name)?;
            }
        }
    }
}

fn objects(store: &Store) -> Result<Vec<Object>> {
    let mut objects = Vec::new();
    for name in store.list()? {
        let kind = match name.as_str() {
            name if name.starts_with("font-") || name.starts_with("image-") => Kind::Part,
            name if !name.starts_with("page-") => continue,
            name if is_companion(name) => Kind::Companion,
            _ => Kind::Page,
        };
        // Another process may have removed the object since.
        let Ok(info) = store.info(&name) else { continue };
        objects.push(Object { name, bytes: info.file_bytes, made: info.created, kind });
    }
    Ok(objects)
}

fn total(objects: &[Object]) -> u64 {
    objects.iter().map(|object| object.bytes).sum()
}

/// Removes objects that belonged only to removed pages.
fn remove_orphans(store: &Store, objects: &mut Vec<Object>) -> Result<()> {
    let mut parts = HashSet::new();
    let mut addresses = HashSet::new();
    for page in objects.iter().filter(|object| object.kind == Kind::Page) {
        addresses.insert(address_of(&page.name).to_string());
        let Ok(found) = StoredPage::named(store, &page.name) else { continue };
        let Ok(page) = found.page(false) else { continue };
        parts.extend(page.block().parts().map(|part| part_name(part.kind, part.hash)));
    }
    let is_needed = |object: &Object| match object.kind {
        Kind::Page => true,
        Kind::Companion => addresses.contains(address_of(&object.name)),
        Kind::Part => parts.contains(&object.name),
    };
    let (needed, orphans): (Vec<_>, Vec<_>) = objects.drain(..).partition(is_needed);
    *objects = needed;
    for orphan in orphans {
        remove(store, &orphan.name)?;
    }
    Ok(())
}

/// Returns the hash at the end of a page's name, which its companion objects share.
fn address_of(name: &str) -> &str {
    without_ending(name).rsplit('-').next().unwrap_or_default()
}

fn remove(store: &Store, name: &str) -> Result<()> {
    match store.remove(name) {
        Ok(()) | Err(evermap::Error::NotFound { .. }) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::sync::Arc;

    use anyrender::PaintScene;
    use kurbo::{Affine, Rect};
    use peniko::{Blob, Color, Fill, ImageAlphaType, ImageBrush, ImageData, ImageFormat};
    use url::Url;

    use super::*;
    use crate::Layout;
    use crate::fonts::FontSet;
    use crate::manifest::{Manifest, engine_version};
    use crate::page::{PageSize, PartKind, Recorder};
    use crate::page_store::PageBatch;

    /// Stores a page that shows an image of one colour. Returns the image's name.
    fn add_page(store: &Store, number: u8, shade: u8) -> String {
        let url = Url::parse(&format!("https://example.org/{number}")).unwrap();
        let layout = Layout { width: 64, height: 64, scale: 1.0 };
        let window = (layout.width, layout.height);
        let size = PageSize { width: 64, height: 64, window, scale: 1.0 };
        let mut recorder = Recorder::new(size);
        recorder.set_title("A page", url.as_str());
        let image = ImageData {
            data: Blob::new(Arc::new(vec![shade; 256 * 256 * 4])),
            format: ImageFormat::Rgba8,
            alpha_type: ImageAlphaType::Alpha,
            width: 256,
            height: 256,
        };
        recorder.draw_image(ImageBrush::new(image).as_ref(), Affine::IDENTITY);
        let all = Rect::new(0.0, 0.0, 64.0, 64.0);
        recorder.fill(Fill::NonZero, Affine::IDENTITY, Color::BLACK, None, &all);
        let recorded = recorder.finish();
        let manifest = Manifest {
            engine: engine_version(),
            url: url.to_string(),
            final_url: url.to_string(),
            layout,
            fonts: FontSet::default(),
            resources: Vec::new(),
            made_ns: 0,
            cold_ms: 0.0,
            source_bytes: 0,
        };
        let batch = PageBatch {
            url: &url,
            layout,
            manifest: &manifest,
            block: recorded.block.as_bytes(),
            strips: &[],
            parts: &recorded.parts,
            document: None,
        };
        batch.commit(store).unwrap();
        part_name(PartKind::Image, &recorded.parts[0].hash)
    }

    #[test]
    fn the_oldest_pages_are_removed_with_their_unshared_parts() {
        let directory = tempfile::tempdir().unwrap();
        let store = Store::open_or_create(directory.path().join("store")).unwrap();
        store.create::<u64, _>("unrelated", 7).unwrap();
        let shared = add_page(&store, 0, 1);
        let old = add_page(&store, 1, 2);
        for number in 2..8 {
            assert_eq!(add_page(&store, number, 1), shared);
        }
        let new = add_page(&store, 8, 3);
        let bytes = total(&objects(&store).unwrap());
        assert_eq!(prune(&store, bytes).unwrap(), 0, "nothing is removed below the bound");
        assert_eq!(store.list().unwrap().len(), 13);

        assert!(prune(&store, bytes - 1).unwrap() > 0);
        let left = store.list().unwrap();
        assert!(total(&objects(&store).unwrap()) <= bytes);
        assert!(!left.contains(&old), "the image of a removed page is removed");
        assert!(left.contains(&new) && left.contains(&shared), "{left:?}");
        let page_of =
            |number: u8| left.iter().any(|name| name.starts_with(&format!("page-{number}-")));
        assert!(!page_of(0) && !page_of(1) && page_of(7) && page_of(8), "{left:?}");

        prune(&store, 0).unwrap();
        assert_eq!(store.list().unwrap(), ["unrelated"], "other objects are left alone");
    }
}
