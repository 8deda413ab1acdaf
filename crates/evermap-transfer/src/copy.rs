//! Copies by name: the [`Copy`] builder and the resolution of the target's name.

use std::ffi::OsString;
use std::num::NonZeroUsize;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use evermap_observe::{Moment, device_rates};
use rustix::fs::{self, Mode, OFlags};
use rustix::io::Errno;

use crate::end::{End, statx_of};
use crate::engines::{EngineKind, Tuning};
use crate::error::{Error, Result};
use crate::file::{
    self, Destination, Options, Preserve, SharedLinks, c_name, copy_symlink, file_name,
    lock_unfinished, parent_of, with_temporary_name,
};
use crate::meter::Meter;
use crate::policy::{Durability, Reflink};
use crate::report::{Report, TreeSummary};
use crate::sys::write_signals::WriteSignalsBlocked;
use crate::tree::{self, TreeMeter, TreeOptions};

/// Policy for symbolic links in the source.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Follow {
    /// Copies all links as links, including one named as the source (`cp -P`).
    None,
    /// Follows a link named as the source, but no links within a tree (`cp -H`).
    #[default]
    Named,
    /// Follows all links (`cp -L`).
    All,
}

/// Copy of a file or a directory tree to a name. Replaces an existing file.
///
/// ```
/// # let directory = tempfile::tempdir()?;
/// # let (from, to) = (directory.path().join("from"), directory.path().join("to"));
/// std::fs::write(&from, "contents of the file")?;
/// let report = evermap_transfer::Copy::new(&from, &to).verify(true).run()?;
/// assert_eq!(report.size_bytes, 20);
/// assert_eq!(std::fs::read(&to)?, b"contents of the file");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
pub struct Copy {
    source: PathBuf,
    target: PathBuf,
    options: Options,
    tree: TreeOptions,
    follow: Follow,
    exact: bool,
    meter: Arc<Meter>,
    tree_meter: Arc<TreeMeter>,
}

impl Copy {
    /// Creates a copy from `source` to `target`.
    ///
    /// If `target` is a directory, the copy is placed in it under the source's file name, unless
    /// [`Copy::exact_target`] is set. A source that is `.` or ends with `/.` means the directory's
    /// contents, which are merged into an existing target. A link at `target` is followed, except
    /// that the copy of a link replaces it. Links in `source` are followed according to
    /// [`Copy::follow`].
    pub fn new(source: impl Into<PathBuf>, target: impl Into<PathBuf>) -> Copy {
        Copy {
            source: source.into(),
            target: target.into(),
            options: Options::default(),
            tree: TreeOptions::default(),
            follow: Follow::default(),
            exact: false,
            meter: Arc::default(),
            tree_meter: Arc::default(),
        }
    }

    /// Uses only this engine. Data that it cannot move is an error.
    pub fn engine(mut self, engine: EngineKind) -> Copy {
        self.options.request.engine = Some(engine);
        self
    }

    /// Sets the engines' parameters. [`Tuning::default`] has the measured values.
    pub fn tuning(mut self, tuning: Tuning) -> Copy {
        self.options.tuning = tuning;
        self
    }

    /// Sets the durability guaranteed when [`Copy::run`] returns. Default: [`Durability::None`].
    pub fn durability(mut self, durability: Durability) -> Copy {
        self.options.request.durability = durability;
        self
    }

    /// Sets whether extents may be shared with the source. Default: shared if possible.
    pub fn reflink(mut self, reflink: Reflink) -> Copy {
        self.options.request.reflink = reflink;
        self
    }

    /// Before publishing, reads the copy back from the disk and compares it with the source.
    pub fn verify(mut self, verify: bool) -> Copy {
        self.options.verify = verify;
        self
    }

    /// Keeps an interrupted copy as a part file, and continues an existing part of the unchanged
    /// source. The data in the part is first compared with the source.
    pub fn resume(mut self, resume: bool) -> Copy {
        self.options.resume = resume;
        self
    }

    /// Selects the attributes to preserve. Default: all.
    pub fn preserve(mut self, preserve: Preserve) -> Copy {
        self.options.preserve = preserve;
        self
    }

    /// Records in the report how much is cached before and after, and the rates of the target's
    /// device. Ignored for trees.
    pub fn explain(mut self, explain: bool) -> Copy {
        self.options.explain = explain;
        self
    }

    /// Cancels the copy with [`Error::Cancelled`] soon after the flag is set by another thread or a
    /// signal handler. Replaces the counters, so call it before [`Copy::progress`].
    pub fn cancelled_by(mut self, cancelled: Arc<AtomicBool>) -> Copy {
        self.meter = Arc::new(Meter::new(Arc::clone(&cancelled)));
        self.tree_meter = Arc::new(TreeMeter::new(cancelled));
        self
    }

    /// Publishes a tree even if some entries could not be copied. The report lists these.
    pub fn keep_going(mut self, keep_going: bool) -> Copy {
        self.tree.keep_going = keep_going;
        self
    }

    /// Skips entries of a tree that are on other file systems.
    pub fn one_file_system(mut self, one_file_system: bool) -> Copy {
        self.tree.one_file_system = one_file_system;
        self
    }

    /// Sets which symbolic links of the source are followed. Default: [`Follow::Named`].
    pub fn follow(mut self, follow: Follow) -> Copy {
        self.follow = follow;
        self.tree.follow_links = follow == Follow::All;
        self
    }

    /// Treats the target as the copy's own name even if it is a directory. A source directory is
    /// merged into it; a source file is an error.
    pub fn exact_target(mut self, exact: bool) -> Copy {
        self.exact = exact;
        self
    }

    /// Preserves hard links to files that other copies with the same `links` have made.
    pub fn links(mut self, links: Arc<SharedLinks>) -> Copy {
        self.tree.links = Some(links);
        self
    }

    /// Sets the number of threads that copy a tree. Default: one per processor, up to 8.
    pub fn threads(mut self, threads: NonZeroUsize) -> Copy {
        self.tree.threads = Some(threads);
        self
    }

    /// Returns live counters, to show progress from another thread.
    pub fn progress(&self) -> Progress {
        Progress { file: Arc::clone(&self.meter), tree: Arc::clone(&self.tree_meter) }
    }

    /// Runs the copy.
    ///
    /// # Errors
    ///
    /// Any [`Error`]. On error a target file is unchanged and a new target does not exist, unless
    /// only the flush of its directory failed. A directory that the source was merged into keeps
    /// the files already copied, and a stream the bytes already written. With [`Copy::resume`] the
    /// part file remains.
    pub fn run(&self) -> Result<Report> {
        if self.follow == Follow::None && !ends_with(&self.source, b"/") {
            let stat = fs::lstat(&self.source)
                .map_err(Error::io("read the attributes of", &self.source))?;
            if fs::FileType::from_raw_mode(stat.st_mode) == fs::FileType::Symlink {
                let target = self.named_target(|| Ok(file_name(&self.source)?.to_os_string()))?;
                let durability = self.options.request.durability;
                return copy_symlink(
                    &self.source,
                    &stat,
                    &target,
                    self.options.preserve,
                    durability,
                );
            }
        }
        // Threads that copy a tree inherit the signal mask.
        let _no_signal = WriteSignalsBlocked::new();
        let file = open_source(&self.source)?;
        let stat =
            statx_of(file.as_fd()).map_err(Error::io("read the attributes of", &self.source))?;
        if fs::FileType::from_raw_mode(stat.stx_mode.into()) == fs::FileType::Directory {
            return self.run_tree();
        }
        let source = End::with_stat(file.as_fd(), &self.source, stat)?;
        match self.resolve(&source)? {
            Resolved::Name(path) => self.run_file(source, &path),
            Resolved::Stream(target) => {
                file::write_into(source, target.as_fd(), &self.target, &self.options, &self.meter)
            }
        }
    }

    /// Returns the copy's path: the target, or the source's name in the target directory.
    fn named_target(&self, name: impl FnOnce() -> Result<OsString>) -> Result<PathBuf> {
        match std::fs::metadata(&self.target) {
            Ok(metadata) if metadata.is_dir() && !self.exact => Ok(self.target.join(name()?)),
            _ => Ok(self.target.clone()),
        }
    }

    /// Resolves the name of a file's copy.
    fn resolve(&self, source: &End<'_>) -> Result<Resolved> {
        let mut path = self.target.clone();
        let mut holder = Holder::of(&path)?;
        if holder.is_directory() && !self.exact {
            path.push(file_name(&self.source)?);
            holder = Holder::of(&path)?;
        }
        let (stat, is_link) = match holder {
            Holder::None if ends_with(&path, b"/") => {
                return Err(Error::io("find the directory", path)(Errno::NOENT));
            }
            Holder::None => return Ok(Resolved::Name(path)),
            Holder::DanglingLink => {
                return Err(Error::Usage(format!(
                    "{} is a symbolic link to nothing: remove it, or name the file it should point to",
                    path.display()
                )));
            }
            Holder::Object { stat, is_link } => (stat, is_link),
        };
        if (stat.st_dev, stat.st_ino) == source.identity() {
            return Err(Error::SameFile { source_path: self.source.clone(), target_path: path });
        }
        match fs::FileType::from_raw_mode(stat.st_mode) {
            // The link's file is replaced, not the link.
            fs::FileType::RegularFile if is_link => {
                let path = std::fs::canonicalize(&path).map_err(Error::io("follow", &path))?;
                Ok(Resolved::Name(path))
            }
            fs::FileType::RegularFile => Ok(Resolved::Name(path)),
            fs::FileType::Directory => Err(Error::io("replace the directory", path)(Errno::ISDIR)),
            _ => {
                let flags = OFlags::WRONLY | OFlags::CLOEXEC | OFlags::NOCTTY;
                fs::open(&path, flags, Mode::empty())
                    .map(Resolved::Stream)
                    .map_err(Error::io("open", path))
            }
        }
    }

    fn run_file(&self, source: End<'_>, path: &Path) -> Result<Report> {
        let (name, directory) = (file_name(path)?, parent_of(path));
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let opened = fs::open(directory, flags, Mode::empty())
            .map_err(Error::io("open the directory", directory))?;
        let destination = Destination { directory: opened.as_fd(), name: &c_name(name)?, path };
        let (inode, size_bytes) = (source.identity(), source.size_bytes());
        let links = self.tree.links.as_ref().filter(|_| source.stat().stx_nlink > 1);
        if let Some(links) = links
            && link_in_place(links, inode, &destination)?
        {
            return Ok(Report { size_bytes, ..Report::default() });
        }
        let mut report = file::replace(source, destination, &self.options, &self.meter)?;
        if let Some(links) = links {
            links.copied(inode, path);
        }
        if self.options.explain {
            report.device = device_rates(directory);
        }
        Ok(report)
    }

    fn run_tree(&self) -> Result<Report> {
        if self.options.resume {
            return Err(Error::Usage(format!(
                "{} is a directory: only files can be resumed; omit `resume`",
                self.source.display()
            )));
        }
        let target = match ends_with(&self.source, b"/.") || self.source.as_os_str() == "." {
            true => self.target.clone(),
            false => self.named_target(|| directory_name(&self.source))?,
        };
        let options = TreeOptions {
            preserve: self.options.preserve,
            durability: self.options.request.durability,
            reflink: self.options.request.reflink,
            verify: self.options.verify,
            engine: self.options.request.engine,
            tuning: self.options.tuning.clone(),
            ..self.tree.clone()
        };
        let start = Moment::now();
        let copied = tree::copy(&self.source, &target, &options, &self.tree_meter)?;
        let counts = copied.counts;
        Ok(Report {
            size_bytes: counts.bytes + counts.hole_bytes,
            data_bytes: counts.bytes,
            hole_bytes: counts.hole_bytes,
            engines: copied.engines,
            verified: self.options.verify,
            usage: start.since(),
            tree: Some(TreeSummary {
                outcome: copied.outcome,
                counts,
                threads: copied.threads,
                errors: copied.errors.iter().map(ToString::to_string).collect(),
                errors_total: copied.errors_total,
                not_kept_total: copied.not_kept_total,
            }),
            not_kept: copied.not_kept,
            ..Report::default()
        })
    }
}

/// Live counters of a copy, for progress display.
#[derive(Debug, Clone)]
pub struct Progress {
    file: Arc<Meter>,
    tree: Arc<TreeMeter>,
}

impl Progress {
    /// Bytes written to the target or shared with it so far.
    pub fn arrived_bytes(&self) -> u64 {
        self.file.arrived_bytes() + self.tree.counts().bytes
    }

    /// Number of completed files of a tree.
    pub fn files(&self) -> u64 {
        self.tree.counts().files
    }
}

/// Resolved target of a copy.
enum Resolved {
    /// A name that is free or that a regular file has.
    Name(PathBuf),
    /// An object to write into, such as a FIFO or a device.
    Stream(OwnedFd),
}

/// Object that has the name of the target before the copy.
enum Holder {
    None,
    /// A symbolic link to nothing.
    DanglingLink,
    /// An object, through a symbolic link or not.
    Object {
        stat: fs::Stat,
        is_link: bool,
    },
}

impl Holder {
    /// Costs one system call, and one more for a link.
    fn of(path: &Path) -> Result<Holder> {
        let failed = |errno| Error::io("read the attributes of", path)(errno);
        let stat = match fs::lstat(path) {
            Ok(stat) => stat,
            Err(Errno::NOENT) => return Ok(Holder::None),
            Err(errno) => return Err(failed(errno)),
        };
        if fs::FileType::from_raw_mode(stat.st_mode) != fs::FileType::Symlink {
            return Ok(Holder::Object { stat, is_link: false });
        }
        match fs::stat(path) {
            Ok(stat) => Ok(Holder::Object { stat, is_link: true }),
            Err(Errno::NOENT) => Ok(Holder::DanglingLink),
            Err(errno) => Err(failed(errno)),
        }
    }

    fn is_directory(&self) -> bool {
        matches!(self, Holder::Object { stat, .. }
            if fs::FileType::from_raw_mode(stat.st_mode) == fs::FileType::Directory)
    }
}

/// Replaces the name with a hard link to another copy of the same inode. Returns false if there is
/// no such copy, or it cannot be linked here.
fn link_in_place(
    links: &SharedLinks,
    inode: (u64, u64),
    destination: &Destination<'_>,
) -> Result<bool> {
    let failed = Error::io("publish", destination.path);
    // The file is complete and has no lock of its own.
    lock_unfinished(destination.directory);
    let linked = with_temporary_name(destination.name, |name| {
        match links.link(inode, destination.directory, name) {
            true => Ok(()),
            false => Err(Errno::NOENT),
        }
    });
    let Ok(((), temporary)) = linked else { return Ok(false) };
    fs::renameat(destination.directory, &temporary, destination.directory, destination.name)
        .map_err(|errno| {
            let _ = fs::unlinkat(destination.directory, &temporary, fs::AtFlags::empty());
            failed(errno)
        })?;
    // `rename` does nothing if both names are links to the same file.
    let _ = fs::unlinkat(destination.directory, &temporary, fs::AtFlags::empty());
    Ok(true)
}

fn ends_with(path: &Path, ending: &[u8]) -> bool {
    path.as_os_str().as_bytes().ends_with(ending)
}

fn open_source(path: &Path) -> Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOCTTY;
    fs::open(path, flags, Mode::empty()).map_err(Error::io("open", path))
}

/// Returns a directory's name. `.` and `..` are resolved first.
fn directory_name(path: &Path) -> Result<std::ffi::OsString> {
    if let Some(name) = path.file_name() {
        return Ok(name.to_os_string());
    }
    let path = std::fs::canonicalize(path).map_err(Error::io("follow", path))?;
    Ok(file_name(&path)?.to_os_string())
}
