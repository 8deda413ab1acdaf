//! The user interface as it lies in an object: the same tree, of vectors and strings that hold raw addresses. The next
//! start maps it and follows them; nothing is read in, unpacked or linked up.

use evermap::{Build, Built, Error, PString, PVec, Persist, Plain, Slot, from_iter};

use crate::model::{Frame, Kind, Look, Recipe, implement_interface};
use crate::plain::{PlainInterface, PlainItem, PlainRow, PlainScreen};

/// The root of the object.
#[derive(Persist)]
#[repr(C)]
pub struct KeptInterface {
    /// All screens; the first is home.
    pub screens: PVec<KeptScreen>,
    /// First frames that are kept, painted.
    pub frames: PVec<KeptFrame>,
    /// The files that it was made from.
    pub sources: PVec<KeptSource>,
    /// The names of the fonts' objects: for text, and for titles.
    pub fonts: PVec<PString>,
    /// What else it was made by: the program's version and the directories of fonts.
    pub made_by: PString,
    /// Pixels wide.
    pub width: u32,
    /// Pixels high.
    pub height: u32,
}

/// A file, as it was when it was read.
#[derive(Persist)]
#[repr(C)]
pub struct KeptSource {
    /// Its name in the directory.
    pub name: PString,
    /// BLAKE3 of its bytes.
    pub hash: [u8; 32],
    /// Bytes in it.
    pub bytes: u64,
}

/// When a file with some content was changed last. Stamps have an object of their own, a `PVec<KeptStamp>`: nobody writes
/// to an object while he reads it.
#[derive(Persist, Plain, Clone, Copy)]
#[repr(C)]
pub struct KeptStamp {
    /// BLAKE3 of the file's bytes.
    pub hash: [u8; 32],
    /// Nanoseconds since 1970 of its last change; 0 when that was too young to be told from a later one.
    pub modified_ns: u64,
}

/// The first frame of a screen.
#[derive(Persist)]
#[repr(C)]
pub struct KeptFrame {
    /// The screen.
    pub screen: PString,
    /// Its painted rows, compressed (`evermap_view::paint::Strips`).
    pub strips: PVec<u8>,
}

/// A screen; the fields are those of [`crate::model::ScreenRef`].
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

/// A row; the fields are those of [`crate::model::RowRef`].
#[derive(Persist)]
#[repr(C)]
#[allow(missing_docs)]
pub struct KeptRow {
    pub title: PString,
    pub items: PVec<KeptItem>,
    pub frame: Frame,
}

/// An item; the fields are those of [`crate::model::ItemRef`].
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

/// All that the object is made of.
pub struct Ingredients<'a> {
    /// The tree.
    pub interface: &'a PlainInterface,
    /// Names of screens, with their strips.
    pub frames: &'a [(String, Vec<u8>)],
    /// Name, hash and length of each file.
    pub sources: &'a [(&'a str, [u8; 32], u64)],
    /// Names of the fonts' objects.
    pub fonts: &'a [String],
    /// See [`KeptInterface::made_by`].
    pub made_by: &'a str,
}

impl Build<Ingredients<'_>> for KeptInterface {
    fn build<'a>(from: Ingredients<'_>, slot: Slot<'a, Self>) -> Result<Built<'a, Self>, Error> {
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
    fn build<'a>(from: &PlainScreen, slot: Slot<'a, Self>) -> Result<Built<'a, Self>, Error> {
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
    fn build<'a>(from: &PlainRow, slot: Slot<'a, Self>) -> Result<Built<'a, Self>, Error> {
        let title = from.title.as_str();
        slot.build(KeptRowInit { title, items: from_iter(&from.items), frame: from.frame })
    }
}

impl Build<&PlainItem> for KeptItem {
    fn build<'a>(from: &PlainItem, slot: Slot<'a, Self>) -> Result<Built<'a, Self>, Error> {
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
