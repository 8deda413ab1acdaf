//! Directories as tar streams: written by the sender, unpacked by the receiver, and published when
//! complete.
//!
//! The last entry contains the number of entries before it, so a stream that ends early is detected
//! and leaves nothing. Times are PAX records in nanoseconds. Hard links, symbolic links and modes
//! are preserved. Sockets, devices and FIFOs are skipped and reported. The `tar` crate unpacks the
//! entries and writes nothing outside its directory.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File, Metadata};
use std::io::{self, BufWriter, Read, Write};
use std::mem::ManuallyDrop;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use evermap_transfer::{Copy, Durability, Error, NotKept};
use rustix::fs::{AtFlags, CWD, RenameFlags, Timespec, Timestamps};
use tar::{Builder, EntryType, Header};

/// Name of the last entry. Distinct from all paths of a tree, which begin with `./`.
const END: &str = "evermap-end-of-tree";

/// Size of the write buffer.
const BUFFER_BYTES: usize = 256 << 10;

/// Report of a sent tree.
#[derive(Debug, Default, serde::Serialize)]
pub struct TreeSent {
    pub path: PathBuf,
    pub files: u64,
    pub directories: u64,
    pub bytes: u64,
    pub not_kept: Vec<NotKept>,
}

/// Writes the directory `root` and its contents.
pub fn send(root: &Path, stream: impl Write) -> Result<TreeSent, Error> {
    let mut writer = TreeWriter {
        // Dropping it would end the archive like a complete one.
        archive: ManuallyDrop::new(Builder::new(BufWriter::with_capacity(BUFFER_BYTES, stream))),
        links: HashMap::new(),
        entries: 0,
        sent: TreeSent { path: root.into(), ..TreeSent::default() },
    };
    let mut waiting = vec![PathBuf::from(".")];
    while let Some(relative) = waiting.pop() {
        let path = root.join(&relative);
        let listing = fs::read_dir(&path).map_err(Error::io("read the directory", &path))?;
        let stat_of = |path: &Path| {
            fs::symlink_metadata(path).map_err(Error::io("read the attributes of", path))
        };
        // Links are not followed, except for one named as the root.
        let stat = match relative.as_os_str() == "." {
            true => fs::metadata(&path).map_err(Error::io("read the attributes of", &path))?,
            false => stat_of(&path)?,
        };
        writer.directory(&relative, &stat)?;
        for entry in listing {
            let name = entry.map_err(Error::io("read the directory", &path))?.file_name();
            let (relative, path) = (relative.join(&name), path.join(&name));
            let stat = stat_of(&path)?;
            match stat.is_dir() {
                true => waiting.push(relative),
                false => writer.entry(&path, &relative, &stat)?,
            }
        }
    }
    writer.end()
}

struct TreeWriter<W: Write> {
    archive: ManuallyDrop<Builder<BufWriter<W>>>,
    /// First name of each file with several.
    links: HashMap<(u64, u64), PathBuf>,
    entries: u64,
    sent: TreeSent,
}

fn not_sent(error: io::Error) -> Error {
    Error::Peer { address: "ssh".into(), what: format!("cannot write to the connection: {error}") }
}

impl<W: Write> TreeWriter<W> {
    fn directory(&mut self, relative: &Path, stat: &Metadata) -> Result<(), Error> {
        self.sent.directories += 1;
        self.append(relative, stat, EntryType::Directory, io::empty(), 0).map_err(not_sent)
    }

    fn entry(&mut self, path: &Path, relative: &Path, stat: &Metadata) -> Result<(), Error> {
        let kind = stat.file_type();
        if !kind.is_file() && !kind.is_symlink() {
            let why = "skipped: not a file, directory or symbolic link".into();
            self.sent.not_kept.push(NotKept {
                path: path.into(),
                what: "special file".into(),
                why,
            });
            return Ok(());
        }
        let inode = (stat.dev(), stat.ino());
        if stat.nlink() > 1 {
            if let Some(first) = self.links.get(&inode).cloned() {
                return self.link(relative, stat, EntryType::Link, &first).map_err(not_sent);
            }
            self.links.insert(inode, relative.into());
        }
        if kind.is_symlink() {
            let leads_to = fs::read_link(path).map_err(Error::io("read the link", path))?;
            return self.link(relative, stat, EntryType::Symlink, &leads_to).map_err(not_sent);
        }
        let file = File::open(path).map_err(Error::io("open", path))?;
        let before = file.metadata().map_err(Error::io("read the attributes of", path))?;
        let changed = |what: &str| Error::SourceChanged { path: path.into(), what: what.into() };
        if !before.is_file() {
            return Err(changed("no longer a regular file"));
        }
        let mut read = Ok(());
        let reader = Exactly { file: &file, left: before.len(), failed: &mut read };
        let appended = self.append(relative, &before, EntryType::Regular, reader, before.len());
        read.map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof => changed("the file became shorter"),
            _ => Error::io("read", path)(error),
        })?;
        appended.map_err(not_sent)?;
        let after = file.metadata().map_err(Error::io("read the attributes of", path))?;
        let state = |stat: &Metadata| (stat.len(), stat.mtime(), stat.mtime_nsec());
        if state(&before) != state(&after) {
            return Err(changed("size or modification time"));
        }
        self.sent.files += 1;
        self.sent.bytes += before.len();
        Ok(())
    }

    fn link(
        &mut self,
        relative: &Path,
        stat: &Metadata,
        kind: EntryType,
        leads_to: &Path,
    ) -> io::Result<()> {
        let mut header = self.begin(stat, kind, 0)?;
        self.archive.append_link(&mut header, relative, leads_to)
    }

    fn append(
        &mut self,
        relative: &Path,
        stat: &Metadata,
        kind: EntryType,
        bytes: impl Read,
        length: u64,
    ) -> io::Result<()> {
        let mut header = self.begin(stat, kind, length)?;
        self.archive.append_data(&mut header, relative, bytes)
    }

    /// Counts an entry, writes its times, and returns a header with its other attributes.
    fn begin(&mut self, stat: &Metadata, kind: EntryType, length: u64) -> io::Result<Header> {
        self.entries += 1;
        let time = format!("{}", Seconds(stat.mtime(), stat.mtime_nsec()));
        self.archive.append_pax_extensions([("mtime", time.as_bytes())])?;
        let mut header = Header::new_gnu();
        header.set_metadata(stat);
        header.set_entry_type(kind);
        header.set_size(length);
        Ok(header)
    }

    fn end(mut self) -> Result<TreeSent, Error> {
        let count = self.entries.to_string();
        let mut header = Header::new_gnu();
        header.set_entry_type(EntryType::Regular);
        header.set_size(count.len() as u64);
        header.set_mode(0o600);
        self.archive.append_data(&mut header, END, count.as_bytes()).map_err(not_sent)?;
        let archive = ManuallyDrop::into_inner(self.archive);
        archive.into_inner().and_then(|mut stream| stream.flush()).map_err(not_sent)?;
        Ok(self.sent)
    }
}

/// A time in PAX format: seconds since 1970 with a fraction.
struct Seconds(i64, i64);

impl std::fmt::Display for Seconds {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let total = i128::from(self.0) * 1_000_000_000 + i128::from(self.1);
        let (sign, total) = if total < 0 { ("-", -total) } else { ("", total) };
        write!(f, "{sign}{}.{:09}", total / 1_000_000_000, total % 1_000_000_000)
    }
}

/// Parses the format of [`Seconds`].
fn seconds(text: &str) -> Option<Timespec> {
    let (negative, text) = match text.strip_prefix('-') {
        Some(text) => (true, text),
        None => (false, text),
    };
    let (whole, fraction) = text.split_once('.')?;
    if fraction.len() != 9 {
        return None;
    }
    let total = whole.parse::<i128>().ok()? * 1_000_000_000 + fraction.parse::<i128>().ok()?;
    let total = if negative { -total } else { total };
    Some(Timespec {
        tv_sec: i64::try_from(total.div_euclid(1_000_000_000)).ok()?,
        tv_nsec: total.rem_euclid(1_000_000_000) as _,
    })
}

/// Reads exactly `left` bytes of a file. An earlier end is an error, which is also stored in
/// `failed`.
struct Exactly<'a> {
    file: &'a File,
    left: u64,
    failed: &'a mut io::Result<()>,
}

impl Read for Exactly<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let most = buffer.len().min(usize::try_from(self.left).unwrap_or(usize::MAX));
        let read = match self.file.read(&mut buffer[..most]) {
            Ok(0) if most > 0 => Err(io::Error::from(io::ErrorKind::UnexpectedEof)),
            read => read,
        };
        match read {
            Ok(bytes) => {
                self.left -= bytes as u64;
                Ok(bytes)
            }
            Err(error) => {
                let kind = error.kind();
                *self.failed = Err(error);
                Err(kind.into())
            }
        }
    }
}

/// Report of a received tree.
#[derive(Debug, serde::Serialize)]
pub struct TreeReceived {
    pub path: PathBuf,
    pub entries: u64,
    pub bytes: u64,
}

/// Unpacks `stream` to `target`, or to `name` in it if it is a directory. An existing directory of
/// that name is merged into.
pub fn receive(
    stream: impl Read,
    target: &Path,
    name: &OsStr,
    durability: Durability,
) -> Result<TreeReceived, Error> {
    let target = match fs::metadata(target) {
        Ok(found) if found.is_dir() => target.join(name),
        _ => target.to_path_buf(),
    };
    let Some(target_name) = target.file_name() else {
        return Err(Error::Usage(format!(
            "{} has no directory name: use a path that ends with one",
            target.display()
        )));
    };
    let parent = match target.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent.to_path_buf(),
        _ => PathBuf::from("."),
    };
    let unfinished = Unfinished::make(&parent, target_name)?;
    let mut received =
        unpack(stream, &unfinished.path).map_err(|error| match error.raw_os_error() {
            Some(code)
                if rustix::io::Errno::from_raw_os_error(code) == rustix::io::Errno::NOSPC =>
            {
                Error::NoSpace { path: target.clone(), needed_bytes: 0 }
            }
            _ => Error::Peer {
                address: "the sender".into(),
                what: format!(
                    "{error}; nothing was kept: check the sender's messages and send again"
                ),
            },
        })?;
    let unfinished_path = unfinished.path.clone();
    match fs::symlink_metadata(&target) {
        Ok(_) => {
            // Merge file by file. Each file is replaced atomically.
            Copy::new(&unfinished_path, &target).exact_target(true).durability(durability).run()?;
        }
        Err(_) => unfinished.publish(&target, durability)?,
    }
    received.path = target;
    Ok(received)
}

/// A directory with a temporary name, removed unless published. `evermap copy --clean` recognises
/// the name and the lock of a running process.
struct Unfinished {
    path: PathBuf,
    lock: File,
    published: bool,
}

impl Unfinished {
    fn make(parent: &Path, name: &OsStr) -> Result<Unfinished, Error> {
        let mut last = io::Error::from(io::ErrorKind::AlreadyExists);
        for _ in 0..16 {
            let path = parent.join(evermap_transfer::temporary_name(name)?);
            match fs::DirBuilder::new().mode(0o700).create(&path) {
                // `copy --clean` may remove it before it is locked. Then another one is created.
                Ok(()) => match File::open(&path) {
                    Ok(lock) => {
                        let _ = lock.lock_shared();
                        if lock.metadata().is_ok_and(|found| found.nlink() > 0) {
                            return Ok(Unfinished { path, lock, published: false });
                        }
                    }
                    Err(error) if error.kind() == io::ErrorKind::NotFound => last = error,
                    Err(error) => return Err(Error::io("open", &path)(error)),
                },
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => last = error,
                Err(error) => return Err(Error::io("create a directory in", parent)(error)),
            }
        }
        Err(Error::io("create a directory in", parent)(last))
    }

    fn publish(mut self, target: &Path, durability: Durability) -> Result<(), Error> {
        if durability != Durability::None {
            rustix::fs::syncfs(&self.lock).map_err(Error::io("flush", target))?;
        }
        rustix::fs::renameat_with(CWD, &self.path, CWD, target, RenameFlags::NOREPLACE)
            .map_err(Error::io("publish", target))?;
        self.published = true;
        if durability == Durability::Full
            && let Some(parent) = target.parent()
        {
            let parent = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
            let flushed = File::open(parent).and_then(|parent| parent.sync_all());
            flushed.map_err(Error::io("flush", parent))?;
        }
        Ok(())
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        if !self.published && fs::remove_dir_all(&self.path).is_err() {
            make_writable(&self.path);
            let _ = fs::remove_dir_all(&self.path);
        }
    }
}

/// Makes directories writable again, so that their contents can be removed.
fn make_writable(root: &Path) {
    let mut waiting = vec![root.to_path_buf()];
    while let Some(directory) = waiting.pop() {
        let _ = fs::set_permissions(&directory, fs::Permissions::from_mode(0o700));
        for entry in fs::read_dir(&directory).into_iter().flatten().flatten() {
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                waiting.push(entry.path());
            }
        }
    }
}

/// Attributes of a directory, set after its contents.
struct Later {
    path: PathBuf,
    mode: u32,
    modified: Option<Timespec>,
}

fn unpack(stream: impl Read, root: &Path) -> io::Result<TreeReceived> {
    let mut archive = tar::Archive::new(stream);
    archive.set_preserve_permissions(true);
    archive.set_preserve_mtime(false);
    archive.set_overwrite(false);
    let invalid = |what: String| io::Error::new(io::ErrorKind::InvalidData, what);
    let mut received = TreeReceived { path: PathBuf::new(), entries: 0, bytes: 0 };
    let mut directories: Vec<Later> = Vec::new();
    for entry in archive.entries()? {
        let mut entry = entry?;
        let name = entry.path_bytes().into_owned();
        if name == END.as_bytes() {
            let mut count = String::new();
            entry.take(32).read_to_string(&mut count)?;
            if count != received.entries.to_string() {
                return Err(invalid(format!(
                    "only {} of {count} entries arrived",
                    received.entries
                )));
            }
            for directory in directories.iter().rev() {
                fs::set_permissions(&directory.path, fs::Permissions::from_mode(directory.mode))?;
                set_modified(&directory.path, directory.modified)?;
            }
            return Ok(received);
        }
        received.entries += 1;
        let kind = entry.header().entry_type();
        let mode = entry.header().mode()? & 0o777;
        let modified = modified(&mut entry)?;
        let path = root.join(OsStr::from_bytes(&name));
        match kind {
            EntryType::Directory => {
                // Keep it writable until its contents are complete.
                if name != b"./" && name != b"." {
                    entry.set_preserve_permissions(false);
                    if !entry.unpack_in(root)? {
                        return Err(outside(&name));
                    }
                    fs::set_permissions(&path, fs::Permissions::from_mode(0o700))?;
                }
                directories.push(Later { path, mode, modified });
            }
            EntryType::Regular | EntryType::Symlink | EntryType::Link => {
                received.bytes += if kind == EntryType::Regular { entry.size() } else { 0 };
                entry.set_mask(0o7000);
                if !entry.unpack_in(root)? {
                    return Err(outside(&name));
                }
                set_modified(&path, modified)?;
            }
            other => return Err(invalid(format!("unsupported entry type {other:?}"))),
        }
    }
    Err(io::Error::new(
        io::ErrorKind::UnexpectedEof,
        "the stream ended before the tree was complete",
    ))
}

fn outside(name: &[u8]) -> io::Error {
    let name = String::from_utf8_lossy(name);
    io::Error::new(io::ErrorKind::InvalidData, format!("{name:?} is outside the directory"))
}

fn modified<R: Read>(entry: &mut tar::Entry<'_, R>) -> io::Result<Option<Timespec>> {
    let Some(extensions) = entry.pax_extensions()? else { return Ok(None) };
    for extension in extensions {
        let extension = extension?;
        if extension.key_bytes() == b"mtime" {
            return Ok(extension.value().ok().and_then(seconds));
        }
    }
    Ok(None)
}

fn set_modified(path: &Path, modified: Option<Timespec>) -> io::Result<()> {
    let Some(last_modification) = modified else { return Ok(()) };
    let times = Timestamps {
        last_access: Timespec { tv_sec: 0, tv_nsec: rustix::fs::UTIME_OMIT as _ },
        last_modification,
    };
    rustix::fs::utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW).map_err(io::Error::from)
}

/// Returns the name of a directory for the receiver. `.` and `..` are resolved first.
pub fn name_of(path: &Path) -> Result<OsString, Error> {
    if let Some(name) = path.file_name() {
        return Ok(name.to_os_string());
    }
    let path = fs::canonicalize(path).map_err(Error::io("follow", path))?;
    path.file_name()
        .map(OsStr::to_os_string)
        .ok_or_else(|| Error::Usage("the root directory has no name: send its contents".into()))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn tree(temp: &Path) -> PathBuf {
        let root = temp.join("photos");
        fs::create_dir_all(root.join("2026/empty")).unwrap();
        fs::write(root.join("2026/a.jpg"), vec![7; 300_000]).unwrap();
        fs::write(root.join("x".repeat(200)), "long name").unwrap();
        fs::hard_link(root.join("2026/a.jpg"), root.join("b.jpg")).unwrap();
        std::os::unix::fs::symlink("2026/a.jpg", root.join("link")).unwrap();
        std::os::unix::fs::symlink("/nowhere", root.join("dangling")).unwrap();
        let times = seconds("-12.250000000").unwrap();
        set_modified(&root.join("2026/a.jpg"), Some(times)).unwrap();
        fs::set_permissions(root.join("2026"), fs::Permissions::from_mode(0o555)).unwrap();
        root
    }

    fn sent(root: &Path) -> Vec<u8> {
        let mut stream = Vec::new();
        send(root, &mut stream).unwrap();
        stream
    }

    #[test]
    fn tree_arrives_with_links_modes_and_times() {
        let temp = tempfile::tempdir().unwrap();
        let root = tree(temp.path());
        let stream = sent(&root);
        let target = temp.path().join("copy");
        let received = receive(&stream[..], &target, OsStr::new("x"), Durability::None).unwrap();
        assert_eq!(received.path, target);
        let stat = |path: &str| fs::symlink_metadata(target.join(path)).unwrap();
        assert_eq!(fs::read(target.join("2026/a.jpg")).unwrap(), vec![7; 300_000]);
        assert_eq!(
            (stat("2026/a.jpg").mtime(), stat("2026/a.jpg").mtime_nsec()),
            (-13, 750_000_000)
        );
        assert_eq!((stat("b.jpg").nlink(), stat("2026").mode() & 0o777), (2, 0o555));
        assert_eq!(fs::read_link(target.join("dangling")).unwrap(), Path::new("/nowhere"));
        assert_eq!(
            stat("2026").mtime_nsec(),
            fs::metadata(root.join("2026")).unwrap().mtime_nsec()
        );
        // Into a directory under the sender's name. The second time it is merged.
        fs::create_dir(temp.path().join("in")).unwrap();
        for _ in 0..2 {
            let target = temp.path().join("in");
            receive(&stream[..], &target, OsStr::new("photos"), Durability::Full).unwrap();
        }
        assert_eq!(fs::read_dir(temp.path().join("in")).unwrap().count(), 1);
        // Make it writable again, so that the test directory can be removed.
        fs::set_permissions(root.join("2026"), fs::Permissions::from_mode(0o755)).unwrap();
    }

    #[test]
    fn truncated_stream_leaves_nothing() {
        let temp = tempfile::tempdir().unwrap();
        let root = tree(temp.path());
        let stream = sent(&root);
        let target = temp.path().join("copy");
        for length in (0..stream.len() - 1024).step_by(stream.len() / 97) {
            let error =
                receive(&stream[..length], &target, OsStr::new("x"), Durability::None).unwrap_err();
            assert!(matches!(error, Error::Peer { .. }), "{length}: {error:?}");
            assert_eq!(fs::read_dir(temp.path()).unwrap().count(), 1, "{length}");
        }
        fs::set_permissions(root.join("2026"), fs::Permissions::from_mode(0o755)).unwrap();
    }

    #[test]
    fn hostile_stream_writes_nothing_outside() {
        let temp = tempfile::tempdir().unwrap();
        fs::create_dir(temp.path().join("outside")).unwrap();
        let outside = temp.path().join("outside");
        let mut streams: Vec<Vec<u8>> = Vec::new();
        let raw = |entries: &[(&str, EntryType, &str)]| {
            let mut builder = Builder::new(Vec::new());
            for (name, kind, link) in entries {
                let mut header = Header::new_gnu();
                header.set_entry_type(*kind);
                header.set_size(if *kind == EntryType::Regular { 4 } else { 0 });
                header.set_mode(0o644);
                // Names set byte by byte, as no honest writer would.
                let gnu = header.as_gnu_mut().unwrap();
                gnu.name[..name.len()].copy_from_slice(name.as_bytes());
                gnu.linkname[..link.len()].copy_from_slice(link.as_bytes());
                header.set_cksum();
                let bytes: &[u8] = if *kind == EntryType::Regular { b"evil" } else { b"" };
                builder.append(&header, bytes).unwrap();
            }
            builder.into_inner().unwrap()
        };
        let path = outside.display().to_string();
        streams.push(raw(&[("../outside/evil", EntryType::Regular, "")]));
        streams.push(raw(&[(&format!("{path}/evil"), EntryType::Regular, "")]));
        streams.push(raw(&[("l", EntryType::Symlink, &path), ("l/evil", EntryType::Regular, "")]));
        streams.push(raw(&[
            ("l", EntryType::Symlink, ".."),
            ("l/outside/evil", EntryType::Regular, ""),
        ]));
        streams.push(raw(&[("h", EntryType::Link, "/etc/passwd")]));
        streams.push(raw(&[("d", EntryType::Block, "")]));
        streams.push(raw(&[("f", EntryType::Fifo, "")]));
        streams.push(vec![0xff; 4096]);
        let target = temp.path().join("copy");
        for (number, stream) in streams.iter().enumerate() {
            let received = receive(&stream[..], &target, OsStr::new("x"), Durability::None);
            assert!(received.is_err(), "{number}");
            assert!(
                !target.exists() && fs::read_dir(&outside).unwrap().next().is_none(),
                "{number}"
            );
        }
        assert_eq!(fs::read_dir(temp.path()).unwrap().count(), 1);
    }
}
