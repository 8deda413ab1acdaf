//! Copying by name: the builder, and what a target's name means.

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

use crate::engines::{EngineKind, Tuning};
use crate::error::{Error, Result};
use crate::file::{
    self, Identity, Options, Place, Placing, Preserve, SharedLinks, Source, c_name, copy_symlink,
    hold, look, with_temporary_name,
};
use crate::meter::Meter;
use crate::policy::rates::Kept;
use crate::policy::{Durability, Reflink, Wish};
use crate::report::{Report, TreeSummary};
use crate::sys::write_signals::WriteSignalsBlocked;
use crate::tree::{self, TreeMeter, TreeOptions};

/// Which symbolic links of a source are followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Follow {
    /// None: links are copied as links, also the one that names the source (`cp -P`).
    None,
    /// The one that names the source, and none within a tree (`cp -H`).
    #[default]
    Named,
    /// All: what a link leads to is copied in its place (`cp -L`).
    All,
}

/// A copy of a file to a name, in place of what has it; or of a directory with all that is in it.
///
/// ```
/// # let place = tempfile::tempdir()?;
/// # let (from, to) = (place.path().join("from"), place.path().join("to"));
/// std::fs::write(&from, "what is to be copied")?;
/// let report = evermap_transfer::Copy::new(&from, &to).verify(true).run()?;
/// assert_eq!(report.size_bytes, 20);
/// assert_eq!(std::fs::read(&to)?, b"what is to be copied");
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
    /// From `source` to `target`; if that is a directory, to the source's name in it, unless [`Copy::exact_target`] says
    /// otherwise. A source that ends with `/.` stands for what is in it: that is merged into a target that is there. The
    /// target's links are followed, and the source's as [`Copy::follow`] says.
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

    /// This engine and no other; what it cannot move is an error.
    pub fn engine(mut self, engine: EngineKind) -> Copy {
        self.options.wish.engine = Some(engine);
        self
    }

    /// What engines are told; [`Tuning::default`] has the measured values.
    pub fn tuning(mut self, tuning: Tuning) -> Copy {
        self.options.tuning = tuning;
        self
    }

    /// What holds when [`Copy::run`] returns; [`Durability::None`] unless it is said.
    pub fn durability(mut self, durability: Durability) -> Copy {
        self.options.wish.durability = durability;
        self
    }

    /// Whether extents may be shared with the source; where it is possible, unless it is said.
    pub fn reflink(mut self, reflink: Reflink) -> Copy {
        self.options.wish.reflink = reflink;
        self
    }

    /// Reads the copy back from where it was stored, before it gets its name, and compares it with the source.
    pub fn verify(mut self, verify: bool) -> Copy {
        self.options.verify = verify;
        self
    }

    /// Leaves a part when it is interrupted, and goes on with the one that is there, if it is of this source as it is now. What it has is compared with
    /// the source first.
    pub fn resume(mut self, resume: bool) -> Copy {
        self.options.resume = resume;
        self
    }

    /// What is kept beside the bytes; all of it, unless it is said.
    pub fn preserve(mut self, preserve: Preserve) -> Copy {
        self.options.preserve = preserve;
        self
    }

    /// Asks what is cached before and after, for the report.
    pub fn explain(mut self, explain: bool) -> Copy {
        self.options.explain = explain;
        self
    }

    /// Set to true, by another thread or a signal handler, it ends the copy soon with [`Error::Cancelled`].
    pub fn cancelled_by(mut self, cancelled: Arc<AtomicBool>) -> Copy {
        self.meter = Arc::new(Meter::new(Arc::clone(&cancelled)));
        self.tree_meter = Arc::new(TreeMeter::new(cancelled));
        self
    }

    /// Of a tree that has things which cannot be copied, publishes the rest, and lists those.
    pub fn keep_going(mut self, keep_going: bool) -> Copy {
        self.tree.keep_going = keep_going;
        self
    }

    /// Of a tree, leaves out what is on other file systems.
    pub fn one_file_system(mut self, one_file_system: bool) -> Copy {
        self.tree.one_file_system = one_file_system;
        self
    }

    /// Which symbolic links of the source are followed; the one that names it, unless it is said.
    pub fn follow(mut self, follow: Follow) -> Copy {
        self.follow = follow;
        self.tree.follow_links = follow == Follow::All;
        self
    }

    /// Takes the target for the copy's own name, also if it is a directory: a directory is merged into it, and a file is
    /// refused.
    pub fn exact_target(mut self, exact: bool) -> Copy {
        self.exact = exact;
        self
    }

    /// Keeps hard links to what other copies with these links have made.
    pub fn links(mut self, links: Arc<SharedLinks>) -> Copy {
        self.tree.links = Some(links);
        self
    }

    /// How many threads copy a tree; as many as there are processors, up to 8, unless it is said.
    pub fn threads(mut self, threads: NonZeroUsize) -> Copy {
        self.tree.threads = Some(threads);
        self
    }

    /// What it counts while it runs: for progress, from another thread.
    pub fn progress(&self) -> Progress {
        Progress { file: Arc::clone(&self.meter), tree: Arc::clone(&self.tree_meter) }
    }

    /// Copies.
    ///
    /// # Errors
    ///
    /// All of [`Error`]; the target's name has what it had before then.
    pub fn run(&self) -> Result<Report> {
        if self.follow == Follow::None && !ends_with(&self.source, b"/") {
            let stat = fs::lstat(&self.source).map_err(Error::io("look at", &self.source))?;
            if fs::FileType::from_raw_mode(stat.st_mode) == fs::FileType::Symlink {
                let target = self.named_target(|| Ok(file_name(&self.source)?.to_os_string()))?;
                let durability = self.options.wish.durability;
                return copy_symlink(
                    &self.source,
                    &stat,
                    &target,
                    self.options.preserve,
                    durability,
                );
            }
        }
        // Threads of a tree's copy inherit it.
        let _no_signal = WriteSignalsBlocked::new();
        let file = open_source(&self.source)?;
        let stat = look(file.as_fd()).map_err(Error::io("look at", &self.source))?;
        if fs::FileType::from_raw_mode(stat.stx_mode.into()) == fs::FileType::Directory {
            return self.run_tree();
        }
        let source = Source { file: file.as_fd(), path: &self.source };
        let target = self.named_target(|| Ok(file_name(&self.source)?.to_os_string()))?;
        let identity = Identity::of(&stat);
        match resolve(&self.source, target, &identity)? {
            Resolved::Name { directory, path } => {
                self.run_file(source, &directory, &path, &identity, stat.stx_nlink)
            }
            Resolved::Stream(target) => {
                file::write_into(source, target.as_fd(), &self.target, &self.options, &self.meter)
            }
        }
    }

    /// The name that the copy gets: that of the target, or one in it.
    fn named_target(&self, name: impl FnOnce() -> Result<OsString>) -> Result<PathBuf> {
        match std::fs::metadata(&self.target) {
            Ok(metadata) if metadata.is_dir() && !self.exact => Ok(self.target.join(name()?)),
            _ => Ok(self.target.clone()),
        }
    }

    fn run_file(
        &self,
        source: Source<'_>,
        directory: &Path,
        path: &Path,
        identity: &Identity,
        names: u32,
    ) -> Result<Report> {
        let name = file_name(path)?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let opened = fs::open(directory, flags, Mode::empty())
            .map_err(Error::io("open the directory", directory))?;
        let place = Place {
            directory: opened.as_fd(),
            name: &c_name(name)?,
            path,
            placing: Placing::Replacing,
        };
        let inode = (identity.device, identity.inode);
        let links = self.tree.links.as_ref().filter(|_| names > 1);
        if let Some(links) = links
            && link_in_place(links, inode, &place)?
        {
            return Ok(Report { size_bytes: identity.size_bytes, ..Report::default() });
        }
        let mut report = file::copy_at(source, place, &self.options, &self.meter)?;
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
                "{} is a directory: only files are copied in parts that can be resumed; leave `resume` out",
                self.source.display()
            )));
        }
        let target = match ends_with(&self.source, b"/.") || self.source.as_os_str() == "." {
            true => self.target.clone(),
            false => self.named_target(|| directory_name(&self.source))?,
        };
        let options = TreeOptions {
            preserve: self.options.preserve,
            durability: self.options.wish.durability,
            reflink: self.options.wish.reflink,
            verify: self.options.verify,
            engine: self.options.wish.engine,
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

/// What a copy counts while it runs, for progress.
#[derive(Debug, Clone)]
pub struct Progress {
    file: Arc<Meter>,
    tree: Arc<TreeMeter>,
}

impl Progress {
    /// Bytes that have arrived.
    pub fn arrived_bytes(&self) -> u64 {
        self.file.arrived_bytes() + self.tree.counts().bytes
    }

    /// Files of a tree that are complete.
    pub fn files(&self) -> u64 {
        self.tree.counts().files
    }
}

impl Default for Options {
    fn default() -> Options {
        Options {
            wish: Wish::default(),
            tuning: Tuning::default(),
            verify: false,
            resume: false,
            preserve: Preserve::default(),
            explain: false,
            kept: Kept::of_user(),
        }
    }
}

/// What a target's name stands for.
enum Resolved {
    /// A name in a directory, which a regular file has or nothing.
    Name { directory: PathBuf, path: PathBuf },
    /// Something that is written into: a FIFO, a device.
    Stream(OwnedFd),
}

/// Links to what another copy made of this file, in place of what has the name. False if none did.
fn link_in_place(links: &SharedLinks, inode: (u64, u64), place: &Place<'_>) -> Result<bool> {
    let failed = Error::io("give its name to", place.path);
    // The file is complete and has no lock of its own.
    hold(place.directory);
    let linked =
        with_temporary_name(place.name, |name| match links.link(inode, place.directory, name) {
            true => Ok(()),
            false => Err(Errno::NOENT),
        });
    let Ok(((), temporary)) = linked else { return Ok(false) };
    fs::renameat(place.directory, &temporary, place.directory, place.name).map_err(|errno| {
        let _ = fs::unlinkat(place.directory, &temporary, fs::AtFlags::empty());
        failed(errno)
    })?;
    // Nothing is renamed where both names are links to one file already.
    let _ = fs::unlinkat(place.directory, &temporary, fs::AtFlags::empty());
    Ok(true)
}

fn ends_with(path: &Path, ending: &[u8]) -> bool {
    path.as_os_str().as_bytes().ends_with(ending)
}

fn open_source(path: &Path) -> Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOCTTY;
    fs::open(path, flags, Mode::empty()).map_err(Error::io("open", path))
}

/// Finds out what is there.
fn resolve(source: &Path, path: PathBuf, identity: &Identity) -> Result<Resolved> {
    let stat = match fs::stat(&path) {
        Ok(stat) => stat,
        Err(Errno::NOENT) => return name_that_is_free(path),
        Err(errno) => return Err(Error::io("look at", path)(errno)),
    };
    if (stat.st_dev, stat.st_ino) == (identity.device, identity.inode) {
        return Err(Error::SameFile { source_path: source.into(), target_path: path });
    }
    match fs::FileType::from_raw_mode(stat.st_mode) {
        fs::FileType::RegularFile => {
            // Behind its links, so that what is replaced is the file and not the link.
            let path = std::fs::canonicalize(&path).map_err(Error::io("follow", &path))?;
            name_in(path)
        }
        fs::FileType::Directory => Err(Error::io("replace the directory", path)(Errno::ISDIR)),
        _ => {
            let flags = OFlags::WRONLY | OFlags::CLOEXEC | OFlags::NOCTTY;
            fs::open(&path, flags, Mode::empty())
                .map(Resolved::Stream)
                .map_err(Error::io("open", path))
        }
    }
}

/// Nothing is there, or a link to nothing.
fn name_that_is_free(path: PathBuf) -> Result<Resolved> {
    if std::fs::symlink_metadata(&path).is_ok() {
        return Err(Error::Usage(format!(
            "{} is a symbolic link to nothing: remove it, or name what it should point to",
            path.display()
        )));
    }
    if ends_with(&path, b"/") {
        return Err(Error::io("find the directory", path)(Errno::NOENT));
    }
    name_in(path)
}

fn name_in(path: PathBuf) -> Result<Resolved> {
    let directory = match path.parent() {
        Some(directory) if !directory.as_os_str().is_empty() => directory.to_path_buf(),
        _ => PathBuf::from("."),
    };
    Ok(Resolved::Name { directory, path })
}

fn file_name(path: &Path) -> Result<&std::ffi::OsStr> {
    path.file_name().ok_or_else(|| {
        Error::Usage(format!("{} names no file: give a path that ends with a name", path.display()))
    })
}

/// What a directory is called within another one: `.` and `..` have names, too.
fn directory_name(path: &Path) -> Result<std::ffi::OsString> {
    if let Some(name) = path.file_name() {
        return Ok(name.to_os_string());
    }
    let path = std::fs::canonicalize(path).map_err(Error::io("follow", path))?;
    Ok(file_name(&path)?.to_os_string())
}
