//! A directory that has everything in it: its attributes, its name, and then perhaps those above it.

use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::directory::{Directory, Pair, Place};
use super::shared::{Shared, target_error};
use crate::error::Result;
use crate::file::attributes::Subject;

impl Shared<'_> {
    /// One thing less is due in a directory. If it was the last, the directory is complete, and perhaps those above.
    pub(super) fn completed(&self, directory: Arc<Directory>) {
        let mut next = Some(directory);
        while let Some(directory) = next {
            if directory.due.fetch_sub(1, Ordering::AcqRel) > 1 || self.queue.is_stopped() {
                break;
            }
            next = self.complete(&directory);
        }
    }

    /// Brings attributes to a directory that has everything in it; gives back the parent, if nothing is held back.
    fn complete(&self, directory: &Arc<Directory>) -> Option<Arc<Directory>> {
        match self.descriptors.pair(directory, &self.roots) {
            Ok(pair) => {
                if let Err(error) = self.keep_attributes(directory, &pair) {
                    self.failed(directory, error);
                }
                if let Some(parent) = &directory.parent {
                    self.descriptors.revive_parent(parent, &pair, &self.roots);
                }
            }
            Err(error) => self.failed(directory, error),
        }
        match directory.place {
            Place::Fresh(_) => self.publish_tree(directory),
            Place::Existing | Place::Within => directory.parent.clone(),
        }
    }

    fn keep_attributes(&self, directory: &Directory, pair: &Pair) -> Result<()> {
        let mut refusals = Vec::new();
        let target = Subject::Open(pair.target.as_fd());
        let kept = self.keeper.keep(
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
