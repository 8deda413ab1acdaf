//! Store of the user interface: checks if its contents are current, and writes them.
//!
//! One object holds the tree, the first frames and the facts about their sources. They become
//! visible together, so a kill at any moment leaves the store unchanged or complete. Fonts are
//! separate objects, named by their content.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use evermap::{Error, PVec, Snapshot, Store};

use crate::contents::FILES;
use crate::error::{Result, TvError};
use crate::fonts::{FontBytes, Fonts};
use crate::kept::{Ingredients, KeptInterface, KeptStamp};
use crate::plain::PlainInterface;

/// Younger time stamps can't be distinguished from those of a later change.
const SETTLED: Duration = Duration::from_secs(2);
/// Version of the design. Increase it when unchanged files shall look different.
const LOOK: u32 = 1;
/// Largest file of the user interface.
const FILE_BYTES_MAX: u64 = 256 << 20;
const REMEDY: &str = "`tv generate DIR` writes the files of an example";

/// File that was read.
pub struct Source {
    /// Contents of the file.
    pub bytes: Vec<u8>,
    /// Time of the last change in nanoseconds since 1970, or 0 if it is too recent.
    pub modified_ns: u64,
}

/// Reads the three files.
///
/// # Errors
/// If one is missing or can't be read.
pub fn read_sources(directory: &Path) -> Result<[Source; 3]> {
    let read = |name: &str| {
        let path = directory.join(name);
        let (bytes, modified_ns) = stamp(&path)?;
        if bytes > FILE_BYTES_MAX {
            let cause =
                std::io::Error::other(format!("the file is larger than {FILE_BYTES_MAX} bytes"));
            return Err(TvError::File { file: path, cause, remedy: REMEDY });
        }
        let bytes = std::fs::read(&path).map_err(TvError::file(&path, REMEDY))?;
        Ok(Source { bytes, modified_ns })
    };
    Ok([read(FILES[0])?, read(FILES[1])?, read(FILES[2])?])
}

/// Returns the length of a file and its time stamp.
fn stamp(path: &Path) -> Result<(u64, u64)> {
    let about = std::fs::metadata(path).map_err(TvError::file(path, REMEDY))?;
    let modified = about.modified().map_err(TvError::file(path, REMEDY))?;
    let settled = SystemTime::now().duration_since(modified).is_ok_and(|age| age >= SETTLED);
    let since = modified.duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos() as u64;
    Ok((about.len(), if settled { since } else { 0 }))
}

/// Returns the name of the object for a size.
pub fn object_name((width, height): (u32, u32)) -> String {
    format!("interface-{width}x{height}")
}

fn stamps_name((width, height): (u32, u32)) -> String {
    format!("stamps-{width}x{height}")
}

/// Describes the dependencies of an interface besides its files.
pub fn made_by(font_directories: &[PathBuf]) -> String {
    let version = env!("CARGO_PKG_VERSION");
    font_directories.iter().fold(format!("tv {version}, look {LOOK}"), |text, directory| {
        format!("{text}, {}", directory.display())
    })
}

/// Result of comparing a stored interface with its files.
pub enum Checked {
    /// The interface is current.
    Good,
    /// The interface is current, but the files have these new time stamps.
    Restamped(Vec<KeptStamp>),
    /// The interface is outdated for this reason.
    Changed(String),
}

/// Compares a stored interface with its files: by length and time stamp, and by content if the time
/// stamp differs.
///
/// # Errors
/// If a file is missing or can't be read.
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
    // Without stored time stamps, contents are compared.
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
        // A time stamp is valid only for the content it was stored with.
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

/// Stores new time stamps, so that the next start need not compare contents.
///
/// # Errors
/// If the store can't be written.
pub fn restamp(store: &Store, size: (u32, u32), stamps: &[KeptStamp]) -> Result<()> {
    Ok(store.replace::<PVec<KeptStamp>, _>(&stamps_name(size), stamps)?)
}

/// Font that is mapped from an object.
struct MappedFont(Snapshot<PVec<u8>>);

impl AsRef<[u8]> for MappedFont {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

/// Maps the fonts of a stored interface.
///
/// # Errors
/// If one is missing.
pub fn map_fonts(store: &Store, kept: &KeptInterface) -> Result<Fonts> {
    let font = |name: &str| -> Result<FontBytes> {
        Ok(Arc::new(MappedFont(store.read::<PVec<u8>>(name)?)))
    };
    let fonts: Result<Vec<FontBytes>> = kept.fonts.iter().map(|name| font(name.as_str())).collect();
    Ok(Fonts::new(fonts?))
}

/// Stores an interface, replacing an older one.
///
/// # Errors
/// If the store can't be written; it is then unchanged.
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

/// Returns true if an equal font comes earlier in the list: one file may serve both weights.
fn batch_has(named: &[(String, &FontBytes)], name: &str, bytes: &FontBytes) -> bool {
    let first = named.iter().find(|(other, _)| other == name);
    first.is_some_and(|(_, other)| !Arc::ptr_eq(other, bytes))
}

/// Opens the stored interface for a size, if there is one.
///
/// # Errors
/// If the store or the object exists but can't be used.
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
