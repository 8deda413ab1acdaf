//! The store: is what it holds still good, and how it comes to hold it.
//!
//! One object holds the tree, the first frames and what they were made from: they appear together or not at all, so a
//! kill at any moment leaves the store as it was, or complete. Fonts are objects of their own, named by their content.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use evermap::{Error, PVec, Snapshot, Store};

use crate::contents::FILES;
use crate::error::{Result, TvError};
use crate::fonts::{FontBytes, Fonts};
use crate::kept::{Ingredients, KeptInterface, KeptStamp};
use crate::plain::PlainInterface;

/// Time stamps younger than this can't be told from those of a change that is yet to come.
const SETTLED: Duration = Duration::from_secs(2);
/// Raised when the same files are to look different.
const LOOK: u32 = 1;
/// Files of the user interface may not be larger.
const FILE_BYTES_MAX: u64 = 256 << 20;
const REMEDY: &str = "`tv generate DIR` writes the files of an example";

/// A file that was read.
pub struct Source {
    /// Its bytes.
    pub bytes: Vec<u8>,
    /// Nanoseconds since 1970 of its last change, or 0 when that is too young.
    pub modified_ns: u64,
}

/// Reads the three files.
///
/// # Errors
/// When one is missing or can't be read.
pub fn read_sources(directory: &Path) -> Result<[Source; 3]> {
    let read = |name: &str| {
        let path = directory.join(name);
        let (bytes, modified_ns) = stamp(&path)?;
        if bytes > FILE_BYTES_MAX {
            let cause = std::io::Error::other(format!("it has more than {FILE_BYTES_MAX} bytes"));
            return Err(TvError::File { file: path, cause, remedy: REMEDY });
        }
        let bytes = std::fs::read(&path).map_err(TvError::file(&path, REMEDY))?;
        Ok(Source { bytes, modified_ns })
    };
    Ok([read(FILES[0])?, read(FILES[1])?, read(FILES[2])?])
}

/// The length of a file, and its time stamp.
fn stamp(path: &Path) -> Result<(u64, u64)> {
    let about = std::fs::metadata(path).map_err(TvError::file(path, REMEDY))?;
    let modified = about.modified().map_err(TvError::file(path, REMEDY))?;
    let settled = SystemTime::now().duration_since(modified).is_ok_and(|age| age >= SETTLED);
    let since = modified.duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos() as u64;
    Ok((about.len(), if settled { since } else { 0 }))
}

/// The name of the object for a size.
pub fn object_name((width, height): (u32, u32)) -> String {
    format!("interface-{width}x{height}")
}

fn stamps_name((width, height): (u32, u32)) -> String {
    format!("stamps-{width}x{height}")
}

/// What an interface depends on besides its files.
pub fn made_by(font_directories: &[PathBuf]) -> String {
    let version = env!("CARGO_PKG_VERSION");
    font_directories.iter().fold(format!("tv {version}, look {LOOK}"), |text, directory| {
        format!("{text}, {}", directory.display())
    })
}

/// Whether a kept interface is still what the files say.
pub enum Checked {
    /// It is.
    Good,
    /// It is, but time stamps have changed: these.
    Restamped(Vec<KeptStamp>),
    /// It is not, because of this.
    Changed(String),
}

/// Compares what is kept with the files: by length and time stamp, and where that does not tell, by content.
///
/// # Errors
/// When a file is missing or can't be read.
pub fn check(
    store: &Store,
    kept: &KeptInterface,
    directory: &Path,
    made_by: &str,
) -> Result<Checked> {
    if kept.made_by != *made_by {
        return Ok(Checked::Changed("the program or the directories of fonts".to_string()));
    }
    if kept.sources.len() != FILES.len() {
        return Ok(Checked::Changed("the number of files".to_string()));
    }
    // Without stamps, contents tell.
    let noted = store.read::<PVec<KeptStamp>>(&stamps_name((kept.width, kept.height))).ok();
    let noted: &[KeptStamp] = noted.as_ref().map_or(&[], |stamps| stamps.as_slice());
    let mut stamps = Vec::new();
    let mut restamped = false;
    for source in kept.sources.iter() {
        let path = directory.join(source.name.as_str());
        let (bytes, modified_ns) = stamp(&path)?;
        if bytes != source.bytes {
            return Ok(Checked::Changed(path.display().to_string()));
        }
        let stamp = KeptStamp { hash: source.hash, modified_ns };
        // A stamp counts for the content that it was noted with.
        let same = |n: &KeptStamp| n.hash == stamp.hash && n.modified_ns == modified_ns;
        if modified_ns == 0 || !noted.iter().any(same) {
            let content = std::fs::read(&path).map_err(TvError::file(&path, REMEDY))?;
            if *blake3::hash(&content).as_bytes() != source.hash {
                return Ok(Checked::Changed(path.display().to_string()));
            }
            restamped |= modified_ns != 0;
        }
        stamps.push(stamp);
    }
    Ok(if restamped { Checked::Restamped(stamps) } else { Checked::Good })
}

/// Notes new time stamps, so that the next start need not look at contents.
///
/// # Errors
/// When the store can't be written.
pub fn restamp(store: &Store, size: (u32, u32), stamps: &[KeptStamp]) -> Result<()> {
    Ok(store.replace::<PVec<KeptStamp>, _>(&stamps_name(size), stamps)?)
}

/// A font, mapped.
struct MappedFont(Snapshot<PVec<u8>>);

impl AsRef<[u8]> for MappedFont {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

/// The fonts of a kept interface, mapped.
///
/// # Errors
/// When one is not there.
pub fn map_fonts(store: &Store, kept: &KeptInterface) -> Result<Fonts> {
    let font = |name: &str| -> Result<FontBytes> {
        Ok(Arc::new(MappedFont(store.read::<PVec<u8>>(name)?)))
    };
    let fonts: Result<Vec<FontBytes>> = kept.fonts.iter().map(|name| font(name.as_str())).collect();
    Ok(Fonts::new(fonts?))
}

/// Keeps an interface, in place of an older one.
///
/// # Errors
/// When the store can't be written. It is then as it was.
pub fn keep(
    store: &Path,
    interface: &PlainInterface,
    frames: &[(String, Vec<u8>)],
    sources: &[Source; 3],
    fonts: &[FontBytes],
    made_by: &str,
) -> Result<()> {
    let store = Store::open_or_create(store)?;
    let named: Vec<(String, &FontBytes)> = fonts
        .iter()
        .map(|bytes| {
            let hash = blake3::hash((**bytes).as_ref()).to_hex();
            (format!("font-{}", &hash[..32]), bytes)
        })
        .collect();
    let (mut files, mut stamps) = (Vec::new(), Vec::new());
    for (name, source) in FILES.into_iter().zip(sources) {
        let hash = *blake3::hash(&source.bytes).as_bytes();
        files.push((name, hash, source.bytes.len() as u64));
        stamps.push(KeptStamp { hash, modified_ns: source.modified_ns });
    }
    let names: Vec<String> = named.iter().map(|(name, _)| name.clone()).collect();
    let mut batch = store.batch()?;
    for (name, bytes) in &named {
        if !store.contains(name)? && !batch_has(&named, name, bytes) {
            batch.replace::<PVec<u8>, _>(name, (***bytes).as_ref())?;
        }
    }
    let ingredients = Ingredients { interface, frames, sources: &files, fonts: &names, made_by };
    let name = object_name((interface.width, interface.height));
    batch.replace::<KeptInterface, _>(&name, ingredients)?;
    let name = stamps_name((interface.width, interface.height));
    batch.replace::<PVec<KeptStamp>, _>(&name, stamps.as_slice())?;
    Ok(batch.commit()?)
}

/// Whether the same font comes earlier: one file may serve as both.
fn batch_has(named: &[(String, &FontBytes)], name: &str, bytes: &FontBytes) -> bool {
    let first = named.iter().find(|(other, _)| other == name);
    first.is_some_and(|(_, other)| !Arc::ptr_eq(other, bytes))
}

/// Opens what is kept for a size, if there is a store and it has that.
///
/// # Errors
/// When the store or the object is there and can't be used.
pub fn open(store: &Path, size: (u32, u32)) -> Result<Option<(Store, Snapshot<KeptInterface>)>> {
    if !store.exists() {
        return Ok(None);
    }
    let store = Store::open(store)?;
    match store.read::<KeptInterface>(&object_name(size)) {
        Ok(kept) => Ok(Some((store, kept))),
        Err(Error::NotFound { .. }) => Ok(None),
        Err(error) => Err(error.into()),
    }
}
