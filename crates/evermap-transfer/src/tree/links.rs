//! Hard links among what is copied: the first name of an inode is copied, the others are linked to that copy.
//!
//! Only inodes with more than one name are in the table, and only until all their names were seen. While one thread
//! copies the first name, others that come upon the inode leave their names here and go on: nobody waits.

use std::collections::HashMap;
use std::ffi::{CStr, CString};
use std::sync::{Arc, Mutex};

use super::directory::{DeviceInode, Directory};
use super::queue::lock;

/// A name in a directory.
#[derive(Debug, Clone)]
pub(super) struct Name {
    pub(super) directory: Arc<Directory>,
    pub(super) name: CString,
}

#[derive(Debug)]
enum State {
    /// One thread copies it; these names are to be linked when it is done.
    Copying(Vec<Name>),
    /// Here it is.
    Copied(Name),
}

#[derive(Debug)]
struct Inode {
    state: State,
    /// Names that were not seen yet, as far as the inode said when it was first seen.
    unseen: u64,
}

/// What to do with a name of an inode that has several.
#[derive(Debug)]
pub(super) enum Claim {
    /// It is the first: it is to be copied, and [`Links::settle`] called.
    First,
    /// To be linked to this.
    Copied(Name),
    /// Whoever copies it will link this name, too. Its directory must not be complete before that.
    Noted,
}

/// The inodes that have several names.
#[derive(Debug, Default)]
pub(super) struct Links {
    inodes: Mutex<HashMap<DeviceInode, Inode>>,
}

impl Links {
    /// Asks what to do with `name`, one of `names` that the inode has.
    pub(super) fn claim(
        &self,
        inode: DeviceInode,
        names: impl Into<u64>,
        directory: &Arc<Directory>,
        name: &CStr,
    ) -> Claim {
        let mut inodes = lock(&self.inodes);
        let Some(known) = inodes.get_mut(&inode) else {
            inodes.insert(
                inode,
                Inode { state: State::Copying(Vec::new()), unseen: names.into().saturating_sub(1) },
            );
            return Claim::First;
        };
        known.unseen = known.unseen.saturating_sub(1);
        match &mut known.state {
            State::Copying(waiting) => {
                waiting.push(Name { directory: Arc::clone(directory), name: name.to_owned() });
                Claim::Noted
            }
            State::Copied(first) => {
                let first = first.clone();
                if known.unseen == 0 {
                    inodes.remove(&inode);
                }
                Claim::Copied(first)
            }
        }
    }

    /// The first name was copied, or could not be: then another one will be the first. Gives back the names that were
    /// left here meanwhile.
    pub(super) fn settle(&self, inode: DeviceInode, copied: Option<Name>) -> Vec<Name> {
        let mut inodes = lock(&self.inodes);
        let Some(known) = inodes.remove(&inode) else { return Vec::new() };
        let waiting = match known.state {
            State::Copying(waiting) => waiting,
            State::Copied(_) => Vec::new(),
        };
        // The waiting names are claimed again, and counted then.
        let unseen = known.unseen + waiting.len() as u64;
        match copied {
            Some(name) if unseen > 0 => {
                inodes.insert(inode, Inode { state: State::Copied(name), unseen });
            }
            // All were seen; or the next one that is claimed is the first.
            _ => {}
        }
        waiting
    }
}

impl Links {
    /// Files of which not all names were seen, each with the name of its copy.
    pub(super) fn copied(&self) -> Vec<(DeviceInode, Name)> {
        let inodes = lock(&self.inodes);
        let copied = inodes.iter().filter_map(|(inode, known)| match &known.state {
            State::Copied(name) => Some((*inode, name.clone())),
            State::Copying(_) => None,
        });
        copied.collect()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::tree::directory::tests::{child, pair};

    fn directory() -> Arc<Directory> {
        child(None, &pair())
    }

    #[test]
    fn all_names_are_linked_to_the_first_and_then_the_inode_is_forgotten() {
        let (links, directory) = (Links::default(), directory());
        let claim = |name| links.claim((1, 2), 3u64, &directory, name);
        let first = Name { directory: Arc::clone(&directory), name: c"first".into() };
        assert!(matches!(claim(c"first"), Claim::First));
        assert!(matches!(claim(c"meanwhile"), Claim::Noted));
        let waiting = links.settle((1, 2), Some(first));
        assert_eq!(waiting.len(), 1);
        assert!(matches!(claim(c"meanwhile"), Claim::Copied(_)));
        assert!(matches!(claim(c"later"), Claim::Copied(_)));
        assert!(lock(&links.inodes).is_empty());
    }

    #[test]
    fn another_name_is_the_first_when_the_first_could_not_be_copied() {
        let (links, directory) = (Links::default(), directory());
        let claim = |name| links.claim((1, 2), 2u64, &directory, name);
        assert!(matches!(claim(c"first"), Claim::First));
        assert!(matches!(claim(c"second"), Claim::Noted));
        assert_eq!(links.settle((1, 2), None).len(), 1);
        assert!(matches!(claim(c"second"), Claim::First));
    }
}
