//! Walks a tree by paths, independently of the code under test, and records everything a copy must
//! preserve.

use std::collections::{BTreeMap, HashMap};
use std::ffi::{OsStr, OsString};
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::SeekFrom;

/// State of one name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    pub kind: &'static str,
    pub mode: u32,
    pub owner: (u32, u32),
    pub modified: (i64, i64),
    /// Only for files and special files: listing a directory or following a link changes it.
    pub accessed: Option<(i64, i64)>,
    pub device: u64,
    pub xattrs: BTreeMap<OsString, Vec<u8>>,
    pub content: Vec<u8>,
    /// Begin and end of each extent.
    pub extents: Vec<(u64, u64)>,
    /// First name of the inode, in order.
    pub first_name: PathBuf,
}

pub type Tree = BTreeMap<PathBuf, Node>;

/// Records the tree at `root` by relative names.
pub fn tree(root: &Path) -> Tree {
    let mut names = vec![PathBuf::new()];
    let mut nodes = Tree::new();
    while let Some(name) = names.pop() {
        let path = if name.as_os_str().is_empty() { root.to_path_buf() } else { root.join(&name) };
        nodes.insert(name.clone(), node(&path));
        if path.symlink_metadata().unwrap().is_dir() {
            let entries = std::fs::read_dir(&path).unwrap();
            names.extend(entries.map(|entry| name.join(entry.unwrap().file_name())));
        }
    }
    let mut first: HashMap<(u64, u64), PathBuf> = HashMap::new();
    for (name, node) in &mut nodes {
        let metadata = root.join(name).symlink_metadata().unwrap();
        let inode = (metadata.dev(), metadata.ino());
        node.first_name = first.entry(inode).or_insert_with(|| name.clone()).clone();
    }
    nodes
}

fn node(path: &Path) -> Node {
    let metadata = path.symlink_metadata().unwrap();
    let kind = metadata.file_type();
    let is_node = kind.is_block_device() || kind.is_char_device();
    let mut node = Node {
        kind: match kind {
            kind if kind.is_dir() => "directory",
            kind if kind.is_symlink() => "symlink",
            kind if kind.is_fifo() => "FIFO",
            kind if kind.is_socket() => "socket",
            _ if is_node => "device",
            _ => "file",
        },
        mode: metadata.mode(),
        owner: (metadata.uid(), metadata.gid()),
        modified: (metadata.mtime(), metadata.mtime_nsec()),
        accessed: (!kind.is_dir() && !kind.is_symlink())
            .then(|| (metadata.atime(), metadata.atime_nsec())),
        device: if is_node { metadata.rdev() } else { 0 },
        xattrs: xattrs(path),
        content: Vec::new(),
        extents: Vec::new(),
        first_name: PathBuf::new(),
    };
    if kind.is_symlink() {
        node.content = std::fs::read_link(path).unwrap().as_os_str().as_bytes().to_vec();
    } else if kind.is_file() && rustix::fs::access(path, rustix::fs::Access::READ_OK).is_ok() {
        node.extents = extents(path);
        node.content = read(path);
    }
    node
}

/// Reads a file without changing its access time, if possible.
fn read(path: &Path) -> Vec<u8> {
    let mut content = Vec::new();
    let open = |flags| std::fs::OpenOptions::new().read(true).custom_flags(flags).open(path);
    let mut file = open(libc::O_NOATIME).or_else(|_| open(0)).unwrap();
    file.read_to_end(&mut content).unwrap();
    content
}

fn xattrs(path: &Path) -> BTreeMap<OsString, Vec<u8>> {
    let mut list = vec![0; 64 << 10];
    let Ok(length) = rustix::fs::llistxattr(path, &mut list) else { return BTreeMap::new() };
    let names = list[..length].split(|byte| *byte == 0).filter(|name| !name.is_empty());
    names
        .map(|name| {
            let mut value = vec![0; 64 << 10];
            let length = rustix::fs::lgetxattr(path, name, &mut value).unwrap();
            (OsStr::from_bytes(name).to_os_string(), value[..length].to_vec())
        })
        .collect()
}

fn extents(path: &Path) -> Vec<(u64, u64)> {
    let file = std::fs::File::open(path).unwrap();
    let (mut extents, mut offset) = (Vec::new(), 0);
    while let Ok(begin) = rustix::fs::seek(&file, SeekFrom::Data(offset)) {
        offset = rustix::fs::seek(&file, SeekFrom::Hole(begin)).unwrap();
        extents.push((begin, offset));
    }
    extents
}

/// Panics with the names that differ and their differences.
pub fn assert_same(source: &Tree, target: &Tree) {
    let names = |tree: &Tree| tree.keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(source), names(target), "the names differ");
    for (name, node) in source {
        let copied = &target[name];
        if node == copied {
            continue;
        }
        let (mut node, mut copied) = (node.clone(), copied.clone());
        assert!(node.content == copied.content, "the contents of {name:?} differ");
        (node.content, copied.content) = (Vec::new(), Vec::new());
        assert_eq!(node, copied, "{name:?} differs");
    }
}

/// Returns the paths below a directory that have temporary names.
pub fn temporary_names(directory: &Path) -> Vec<PathBuf> {
    let mut names = Vec::new();
    let mut directories = vec![directory.to_path_buf()];
    while let Some(directory) = directories.pop() {
        for entry in std::fs::read_dir(directory).unwrap().map(Result::unwrap) {
            if entry.file_name().as_bytes().windows(9).any(|part| part == b".evermap-") {
                names.push(entry.path());
            } else if entry.file_type().unwrap().is_dir() {
                directories.push(entry.path());
            }
        }
    }
    names
}
