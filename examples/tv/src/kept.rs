//! User interface in an object: the same tree, of vectors and strings that hold raw addresses. The
//! next start maps it and follows them, without reading, decoding or linking anything.

use evermap::{Build, Built, HeapError, PString, PVec, Persist, Plain, Slot, from_iter};

use crate::model::{Frame, Kind, Look, Recipe, implement_interface};
use crate::plain::{PlainInterface, PlainItem, PlainRow, PlainScreen};

/// Root of the object.
#[derive(Persist)]
#[repr(C)]
pub struct KeptInterface {
    /// All screens; the first one is home.
    pub screens: PVec<KeptScreen>,
    /// Painted first frames.
    pub frames: PVec<KeptFrame>,
    /// Files that the interface was made from.
    pub sources: PVec<KeptSource>,
    /// Names of the fonts' objects: for text and for titles.
    pub fonts: PVec<PString>,
    /// Other dependencies: the program's version and the directories of fonts.
    pub made_by: PString,
    /// Width in pixels.
    pub width: u32,
    /// Height in pixels.
    pub height: u32,
}

/// File with the properties it had when it was read.
#[derive(Persist)]
#[repr(C)]
pub struct KeptSource {
    /// Name in the directory.
    pub name: PString,
    /// BLAKE3 hash of the bytes.
    pub hash: [u8; 32],
    /// Length in bytes.
    pub bytes: u64,
}

/// Time of the last change of a file with a given content. Time stamps are in a separate object, a
/// `PVec<KeptStamp>`, because a process does not write to an object while it reads it.
#[derive(Persist, Plain, Clone, Copy)]
#[repr(C)]
pub struct KeptStamp {
    /// BLAKE3 hash of the file's bytes.
    pub hash: [u8; 32],
    /// Nanoseconds since 1970; 0 if the change was too recent to be distinguished from a later one.
    pub modified_ns: u64,
}

/// First frame of a screen.
#[derive(Persist)]
#[repr(C)]
pub struct KeptFrame {
    /// Name of the screen.
    pub screen: PString,
    /// Painted rows, compressed (`evermap_view::paint::Strips`).
    pub strips: PVec<u8>,
}

/// Screen with the fields of [`crate::model::ScreenRef`].
#[derive(Persist)]
#[repr(C)]
#[allow(missing_docs)]
pub struct KeptScreen {
    pub name: PString,
    pub title: PString,
    pub rows: PVec<KeptRow>,
    pub viewport: Frame,
    pub fixed_rows: u32,
    pub start_row: u32,
    pub start_item: u32,
    pub start_left: f32,
    pub first_minute: u32,
    pub now_minute: u32,
    pub kind: Kind,
}

/// Row with the fields of [`crate::model::RowRef`].
#[derive(Persist)]
#[repr(C)]
#[allow(missing_docs)]
pub struct KeptRow {
    pub title: PString,
    pub items: PVec<KeptItem>,
    pub frame: Frame,
}

/// Item with the fields of [`crate::model::ItemRef`].
#[derive(Persist)]
#[repr(C)]
#[allow(missing_docs)]
pub struct KeptItem {
    pub title: PString,
    pub note: PString,
    pub text: PString,
    pub target: PString,
    pub frame: Frame,
    pub recipe: Recipe,
    pub look: Look,
}

implement_interface!(KeptInterface);

/// Values that the object is built from.
pub struct Ingredients<'a> {
    /// Tree of screens.
    pub interface: &'a PlainInterface,
    /// Names of screens with their compressed frames.
    pub frames: &'a [(String, Vec<u8>)],
    /// Name, hash and length of each file.
    pub sources: &'a [(&'a str, [u8; 32], u64)],
    /// Names of the fonts' objects.
    pub fonts: &'a [String],
    /// See [`KeptInterface::made_by`].
    pub made_by: &'a str,
}

impl Build<Ingredients<'_>> for KeptInterface {
    fn build<'a>(
        from: Ingredients<'_>,
        slot: Slot<'a, Self>,
    ) -> Result<Built<'a, Self>, HeapError> {
        let frames = from.frames.iter().map(|(screen, strips)| KeptFrameInit {
            screen: screen.as_str(),
            strips: strips.as_slice(),
        });
        let sources = from.sources.iter().map(|(name, hash, bytes)| KeptSourceInit {
            name: *name,
            hash: *hash,
            bytes: *bytes,
        });
        slot.build(KeptInterfaceInit {
            screens: from_iter(&from.interface.screens),
            frames: from_iter(frames),
            sources: from_iter(sources),
            fonts: from_iter(from.fonts.iter().map(String::as_str)),
            made_by: from.made_by,
            width: from.interface.width,
            height: from.interface.height,
        })
    }
}

impl Build<&PlainScreen> for KeptScreen {
    fn build<'a>(from: &PlainScreen, slot: Slot<'a, Self>) -> Result<Built<'a, Self>, HeapError> {
        slot.build(KeptScreenInit {
            name: from.name.as_str(),
            title: from.title.as_str(),
            rows: from_iter(&from.rows),
            viewport: from.viewport,
            fixed_rows: from.fixed_rows,
            start_row: from.start_row,
            start_item: from.start_item,
            start_left: from.start_left,
            first_minute: from.first_minute,
            now_minute: from.now_minute,
            kind: from.kind,
        })
    }
}

impl Build<&PlainRow> for KeptRow {
    fn build<'a>(from: &PlainRow, slot: Slot<'a, Self>) -> Result<Built<'a, Self>, HeapError> {
        let title = from.title.as_str();
        slot.build(KeptRowInit { title, items: from_iter(&from.items), frame: from.frame })
    }
}

impl Build<&PlainItem> for KeptItem {
    fn build<'a>(from: &PlainItem, slot: Slot<'a, Self>) -> Result<Built<'a, Self>, HeapError> {
        slot.build(KeptItemInit {
            title: from.title.as_str(),
            note: from.note.as_str(),
            text: from.text.as_str(),
            target: from.target.as_str(),
            frame: from.frame,
            recipe: from.recipe,
            look: from.look,
        })
    }
}
