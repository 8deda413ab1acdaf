//! Regular files: a fast path for small ones, and `file::create` for the rest.
//!
//! A small file without holes takes ten calls: open, stat, read, list of extended attributes;
//! create, write; stat of the source again; times; two closes. Buffers belong to the thread, and
//! nothing is allocated.

use std::ffi::CString;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use rustix::fs::{self, AtFlags, Mode, OFlags, SeekFrom, Stat};
use rustix::io::{Errno, pread, pwrite, retry_on_intr};

use super::directory::{At, CreationDefaults};
use super::meter::TreeMeter;
use super::worker::Worker;
use crate::end::End;
use crate::engines::EngineKind;
use crate::error::{Error, Result};
use crate::file::attributes::{Attributes, InitialAttributes, Subject, Xattr};
use crate::file::{self, Destination, Identity};
use crate::meter::Meter;
use crate::policy::Reflink;
use crate::report::EngineUse;
use crate::sys::close;

/// Up to this size a file is read and written with one call each; see `docs/transfer.md`, section
/// 4.
pub(super) const SMALL_BYTES: usize = 256 << 10;

/// Unit of `st_blocks` on all file systems.
const BLOCK_BYTES: u64 = 512;

/// A created target with its temporary name.
pub(super) struct New {
    descriptor: OwnedFd,
    temporary: Option<CString>,
    made: InitialAttributes,
}

impl Worker<'_> {
    /// Copies a file. `stat` was queried after opening `source`.
    pub(super) fn regular(
        &mut self,
        at: &At<'_>,
        source: &OwnedFd,
        stat: &Stat,
        has_links: bool,
    ) -> Result<()> {
        let options = self.shared.options;
        let is_small = stat.st_size as u64 <= SMALL_BYTES as u64
            && !options.verify
            && options.engine.is_none()
            && options.reflink != Reflink::Always;
        let source = source.as_fd();
        // A file that will be shared is not read.
        let shares = stat.st_size > 0 && self.shared.may_share.load(Ordering::Relaxed);
        if !is_small || !(shares || self.read_small(at, source, stat)?) {
            return self.large(at, source, stat, has_links);
        }
        let attributes = Attributes::of(stat);
        let failed = |(operation, errno)| self.shared.source_error(operation, at, errno);
        let xattrs =
            self.copier.xattrs(Subject::Open(source), &mut self.refusals).map_err(failed)?;
        let new = self.create(at, &attributes, &xattrs)?;
        let name = new.temporary.clone();
        let written = self.fill(at, source, stat, shares, (&attributes, &xattrs), new);
        let published = match (written, name.as_deref()) {
            (Ok(()), Some(temporary)) => self.shared.publish_file(at, temporary, has_links),
            (written, _) => written,
        };
        if published.is_err() {
            let _ =
                fs::unlinkat(&at.pair.target, name.as_deref().unwrap_or(at.name), AtFlags::empty());
        }
        published?;
        let bytes: usize = self.spans.iter().map(|(begin, end)| end - begin).sum();
        let meter = self.shared.meter;
        TreeMeter::count(&meter.files, 1);
        TreeMeter::count(&meter.bytes, bytes as u64);
        if bytes as u64 != stat.st_size as u64 {
            TreeMeter::count(&meter.hole_bytes, stat.st_size as u64 - bytes as u64);
        }
        Ok(())
    }

    /// Reads the file into the buffer and records its spans. Returns false if the size is wrong or
    /// changing.
    fn read_small(&mut self, at: &At<'_>, source: BorrowedFd<'_>, stat: &Stat) -> Result<bool> {
        let size = stat.st_size as usize;
        if self.buffer.is_empty() {
            // One byte more than the maximum: a read that leaves it free has seen the end.
            self.buffer = vec![0; SMALL_BYTES + 1];
        }
        self.spans.clear();
        let failed = |errno| self.shared.source_error("read", at, errno);
        if (stat.st_blocks as u64) * BLOCK_BYTES >= size as u64 {
            let read =
                retry_on_intr(|| pread(source, &mut self.buffer[..size + 1], 0)).map_err(failed)?;
            self.spans.extend((size > 0).then_some((0, size)));
            return Ok(read == size);
        }
        let mut offset = 0;
        while offset < size {
            let begin = match fs::seek(source, SeekFrom::Data(offset as u64)) {
                Ok(begin) => begin as usize,
                Err(Errno::NXIO) => break,
                Err(Errno::INVAL) => return Ok(false),
                Err(errno) => return Err(failed(errno)),
            };
            let end = fs::seek(source, SeekFrom::Hole(begin as u64)).map_err(failed)? as usize;
            if begin >= size || end > size || end <= begin {
                return Ok(false);
            }
            let read = retry_on_intr(|| pread(source, &mut self.buffer[begin..end], begin as u64))
                .map_err(failed)?;
            if read != end - begin {
                return Ok(false);
            }
            self.spans.push((begin, end));
            offset = end;
        }
        Ok(true)
    }

    /// Creates the target: in a hidden directory under its own name, else under a temporary name.
    fn create(&mut self, at: &At<'_>, attributes: &Attributes, xattrs: &[Xattr]) -> Result<New> {
        let flags =
            OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let (mode, got) = self.copier.creation_mode(attributes, xattrs, at.directory.is_hidden());
        let (descriptor, temporary) =
            self.make_at(at, "create", |target, name| fs::openat(target, name, flags, mode))?;
        let creation_defaults = match at.directory.creation_defaults.get() {
            Some(creation_defaults) => *creation_defaults,
            None => self.learn_defaults(at, descriptor.as_fd(), mode, got)?,
        };
        let may_have_acl = at.directory.has_default_acl;
        let mode = if creation_defaults.keeps_mode && !may_have_acl {
            got
        } else {
            InitialAttributes::UNKNOWN
        };
        let made = InitialAttributes {
            uid: creation_defaults.uid,
            gid: creation_defaults.gid,
            mode,
            may_have_acl,
        };
        Ok(New { descriptor, temporary, made })
    }

    /// Learns the owner and mode handling from the first file created in a directory. They apply to
    /// all others in it.
    fn learn_defaults(
        &self,
        at: &At<'_>,
        made: BorrowedFd<'_>,
        mode: Mode,
        got: u32,
    ) -> Result<CreationDefaults> {
        let stat = fs::fstat(made)
            .map_err(|errno| self.shared.target_error("read the attributes of", at, errno))?;
        let keeps_mode = stat.st_mode & 0o7777 == got && mode.as_raw_mode() != 0;
        let creation_defaults = CreationDefaults { uid: stat.st_uid, gid: stat.st_gid, keeps_mode };
        Ok(*at.directory.creation_defaults.get_or_init(|| creation_defaults))
    }

    /// Writes the buffered data, checks that the source has not changed, and copies the attributes.
    fn fill(
        &mut self,
        at: &At<'_>,
        source: BorrowedFd<'_>,
        before: &Stat,
        shares: bool,
        (attributes, xattrs): (&Attributes, &[Xattr]),
        new: New,
    ) -> Result<()> {
        let target = new.descriptor.as_fd();
        if !(shares && self.share(at, source, target, before)?) {
            self.write(at, target, before)?;
        }
        let after = fs::fstat(source)
            .map_err(|errno| self.shared.source_error("read the attributes of", at, errno))?;
        if let Some(what) = identity_of(before).differs(&identity_of(&after)) {
            return Err(Error::SourceChanged { path: self.shared.source_path(at), what });
        }
        self.copier
            .apply(attributes, xattrs, Subject::Open(target), &new.made, true, &mut self.refusals)
            .map_err(|(operation, errno)| self.shared.target_error(operation, at, errno))?;
        close(new.descriptor).map_err(|errno| self.shared.target_error("write", at, errno))
    }

    /// Shares the source's extents. If refused, reads the file instead, stops trying for further
    /// files, and returns false.
    fn share(
        &mut self,
        at: &At<'_>,
        source: BorrowedFd<'_>,
        target: BorrowedFd<'_>,
        stat: &Stat,
    ) -> Result<bool> {
        match retry_on_intr(|| fs::ioctl_ficlone(target, source)) {
            Ok(()) => {
                self.spans.clear();
                self.spans.push((0, stat.st_size as usize));
                let bytes = stat.st_size as u64;
                self.shared.used(EngineUse { engine: EngineKind::Reflink, bytes, copies: 0 });
                return Ok(true);
            }
            Err(errno @ (Errno::NOSPC | Errno::DQUOT)) => {
                return Err(self.shared.target_error("share extents with", at, errno));
            }
            Err(_) => self.shared.may_share.store(false, Ordering::Relaxed),
        }
        match self.read_small(at, source, stat)? {
            true => Ok(false),
            false => Err(Error::SourceChanged {
                path: self.shared.source_path(at),
                what: "the size changed".to_string(),
            }),
        }
    }

    /// Writes the buffered data.
    fn write(&self, at: &At<'_>, target: BorrowedFd<'_>, stat: &Stat) -> Result<()> {
        let failed = |errno| self.shared.target_error("write", at, errno);
        for &(begin, end) in &self.spans {
            let mut written = begin;
            while written < end {
                match retry_on_intr(|| pwrite(target, &self.buffer[written..end], written as u64)) {
                    // Stop, or a target that accepts nothing without an error would be retried
                    // forever.
                    Ok(0) => return Err(failed(Errno::IO)),
                    Ok(bytes) => written += bytes,
                    Err(errno) => return Err(failed(errno)),
                }
            }
        }
        match self.spans.last().map_or(0, |(_, end)| *end) == stat.st_size as usize {
            true => Ok(()),
            false => fs::ftruncate(target, stat.st_size as u64).map_err(failed),
        }
    }

    /// Copies a file that is large or has an unreliable size with `file::create`, then sets
    /// attributes and name like for all others.
    fn large(
        &mut self,
        at: &At<'_>,
        source: BorrowedFd<'_>,
        stat: &Stat,
        has_links: bool,
    ) -> Result<()> {
        let shared = self.shared;
        let (source_path, target_path) = (shared.source_path(at), shared.target_path(at));
        let temporary = (!at.directory.is_hidden()).then(|| self.temporary.name(at.name));
        let name = temporary.as_deref().unwrap_or(at.name);
        // A temporary name is as good as none here: no other program uses it.
        let destination =
            Destination { directory: at.pair.target.as_fd(), name, path: &target_path };
        let meter = Meter::new(Arc::clone(shared.meter.cancelled()));
        let end = End::new(source, &source_path)?;
        let (report, target) = file::create(end, destination, &shared.file, &meter)?;
        let completed =
            self.apply_attributes_large(at, source, stat, target).and_then(|()| match &temporary {
                Some(temporary) => shared.publish_file(at, temporary, has_links),
                None => Ok(()),
            });
        if completed.is_err() {
            let _ = fs::unlinkat(&at.pair.target, name, AtFlags::empty());
        }
        completed?;
        report.engines.into_iter().for_each(|used| shared.used(used));
        TreeMeter::count(&shared.meter.files, 1);
        TreeMeter::count(&shared.meter.bytes, report.data_bytes);
        TreeMeter::count(&shared.meter.hole_bytes, report.hole_bytes);
        Ok(())
    }

    fn apply_attributes_large(
        &mut self,
        at: &At<'_>,
        source: BorrowedFd<'_>,
        stat: &Stat,
        target: OwnedFd,
    ) -> Result<()> {
        let shared = self.shared;
        let xattrs = self
            .copier
            .xattrs(Subject::Open(source), &mut self.refusals)
            .map_err(|(operation, errno)| shared.source_error(operation, at, errno))?;
        let made = fs::fstat(&target)
            .map_err(|errno| shared.target_error("read the attributes of", at, errno))?;
        let made = InitialAttributes::of(&made);
        let made = InitialAttributes { may_have_acl: at.directory.has_default_acl, ..made };
        self.copier
            .apply(
                &Attributes::of(stat),
                &xattrs,
                Subject::Open(target.as_fd()),
                &made,
                true,
                &mut self.refusals,
            )
            .map_err(|(operation, errno)| shared.target_error(operation, at, errno))?;
        close(target).map_err(|errno| shared.target_error("write", at, errno))
    }
}

/// Extracts the identity from a `stat` result.
fn identity_of(stat: &Stat) -> Identity {
    Identity {
        device: stat.st_dev,
        inode: stat.st_ino,
        size_bytes: stat.st_size as u64,
        modified: (stat.st_mtime, stat.st_mtime_nsec as u32),
        changed: (stat.st_ctime, stat.st_ctime_nsec as u32),
    }
}
