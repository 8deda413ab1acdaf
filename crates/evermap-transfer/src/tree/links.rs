//! Hard links within a tree: the first name of an inode is copied, the others are linked to that
//! copy.
//!
//! The table holds only inodes with several names, and only until all names were seen. While a
//! thread copies the first name, other threads record further names here and continue without
//! waiting.

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
    /// A thread is copying it. These names will be linked afterwards.
    Copying(Vec<Name>),
    /// It was copied under this name.
    Copied(Name),
}

#[derive(Debug)]
struct Inode {
    state: State,
    /// Number of names not seen yet, by the link count when first seen.
    unseen: u64,
}

/// Action for a name of an inode with several names.
#[derive(Debug)]
pub(super) enum Claim {
    /// It is the first: copy it, and call [`Links::finish_first`].
    First,
    /// Link it to this name.
    Copied(Name),
    /// The thread that copies the first name will link this one. The directory must stay incomplete
    /// until then.
    Waiting,
}

/// Inodes with several names.
#[derive(Debug, Default)]
pub(super) struct Links {
    inodes: Mutex<HashMap<DeviceInode, Inode>>,
}

impl Links {
    /// Returns the action for `name`, one of the inode's `names`.
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
                Claim::Waiting
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

    /// Records that the first name was copied, or failed, so that another becomes the first.
    /// Returns the names recorded in the meantime.
    pub(super) fn finish_first(&self, inode: DeviceInode, copied: Option<Name>) -> Vec<Name> {
        let mut inodes = lock(&self.inodes);
        let Some(known) = inodes.remove(&inode) else { return Vec::new() };
        let waiting = match known.state {
            State::Copying(waiting) => waiting,
            State::Copied(_) => Vec::new(),
        };
        // The waiting names are claimed again and then counted.
        let unseen = known.unseen + waiting.len() as u64;
        match copied {
            Some(name) if unseen > 0 => {
                inodes.insert(inode, Inode { state: State::Copied(name), unseen });
            }
            // All names were seen, or the next claimed name becomes the first.
            _ => {}
        }
        waiting
    }
}

impl Links {
    /// Returns the inodes with unseen names, with the name of their copy.
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
    fn all_names_are_linked_and_then_the_inode_is_removed() {
        let (links, directory) = (Links::default(), directory());
        let claim = |name| links.claim((1, 2), 3u64, &directory, name);
        let first = Name { directory: Arc::clone(&directory), name: c"first".into() };
        assert!(matches!(claim(c"first"), Claim::First));
        assert!(matches!(claim(c"second"), Claim::Waiting));
        let waiting = links.finish_first((1, 2), Some(first));
        assert_eq!(waiting.len(), 1);
        assert!(matches!(claim(c"second"), Claim::Copied(_)));
        assert!(matches!(claim(c"later"), Claim::Copied(_)));
        assert!(lock(&links.inodes).is_empty());
    }

    #[test]
    fn failed_first_name_makes_the_next_name_the_first() {
        let (links, directory) = (Links::default(), directory());
        let claim = |name| links.claim((1, 2), 2u64, &directory, name);
        assert!(matches!(claim(c"first"), Claim::First));
        assert!(matches!(claim(c"second"), Claim::Waiting));
        assert_eq!(links.finish_first((1, 2), None).len(), 1);
        assert!(matches!(claim(c"second"), Claim::First));
    }
}
