//! Completion of a directory: its attributes, its name, then its parents.

use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::directory::{Directory, Pair, Placement};
use super::shared::{Shared, target_error};
use crate::error::Result;
use crate::file::attributes::Subject;

impl Shared<'_> {
    /// Finishes one unit of pending work of a directory. After the last one the directory is
    /// completed, and possibly its parents.
    pub(super) fn completed(&self, directory: Arc<Directory>) {
        let mut next = Some(directory);
        while let Some(directory) = next {
            if directory.pending.fetch_sub(1, Ordering::AcqRel) > 1 || self.queue.is_stopped() {
                break;
            }
            next = self.complete(&directory);
        }
    }

    /// Sets the attributes of a directory with complete contents. Returns the parent, unless the
    /// directory is held back.
    fn complete(&self, directory: &Arc<Directory>) -> Option<Arc<Directory>> {
        match self.descriptors.pair(directory, &self.roots) {
            Ok(pair) => {
                if let Err(error) = self.apply_attributes(directory, &pair) {
                    self.failed(directory, error);
                }
                if let Some(parent) = &directory.parent {
                    self.descriptors.reopen_parent(parent, &pair, &self.roots);
                }
            }
            Err(error) => self.failed(directory, error),
        }
        match directory.placement {
            Placement::New(_) => self.publish_tree(directory),
            Placement::Existing | Placement::InsideNew => directory.parent.clone(),
        }
    }

    fn apply_attributes(&self, directory: &Directory, pair: &Pair) -> Result<()> {
        let mut refusals = Vec::new();
        let target = Subject::Open(pair.target.as_fd());
        let kept = self.copier.apply(
            &directory.attributes,
            &directory.xattrs,
            target,
            &directory.made,
            true,
            &mut refusals,
        );
        self.refused(&mut refusals, || directory.path(&self.roots.target, None));
        kept.map_err(|(operation, errno)| {
            target_error(operation, directory.path(&self.roots.target, None), errno)
        })
    }
}
