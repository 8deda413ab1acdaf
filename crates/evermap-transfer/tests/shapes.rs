//! Meaning of source and target names compared with `cp`; hard links between sources; cleaning
//! after killed copies.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use evermap_transfer::{Copy, Error, Follow, SharedLinks, clean};
use tempfile::TempDir;

fn temp_dir() -> TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

/// Creates sources of every kind: a file, a tree with links, links to each, a dangling link.
fn sources(temp: &Path) {
    fs::create_dir_all(temp.join("tree/inner")).unwrap();
    fs::write(temp.join("file"), "of the file").unwrap();
    fs::write(temp.join("tree/inner/file"), "within").unwrap();
    symlink("inner/file", temp.join("tree/link")).unwrap();
    symlink("inner", temp.join("tree/directory")).unwrap();
    symlink("file", temp.join("to-file")).unwrap();
    symlink("tree", temp.join("to-tree")).unwrap();
    symlink("nowhere", temp.join("dangling")).unwrap();
}

/// Creates targets of every kind.
fn targets(temp: &Path) {
    fs::create_dir_all(temp.join("there/inner")).unwrap();
    fs::write(temp.join("there/inner/file"), "before").unwrap();
    fs::write(temp.join("there/other"), "kept").unwrap();
    fs::write(temp.join("old"), "before").unwrap();
}

/// Lists all paths below `root` with their contents.
fn listing(root: &Path) -> Vec<String> {
    let mut lines = Vec::new();
    let mut waiting = vec![root.to_path_buf()];
    while let Some(directory) = waiting.pop() {
        for entry in fs::read_dir(&directory).unwrap() {
            let path = entry.unwrap().path();
            let kind = fs::symlink_metadata(&path).unwrap();
            let name = path.strip_prefix(root).unwrap().display().to_string();
            if kind.is_symlink() {
                lines.push(format!("{name} -> {}", fs::read_link(&path).unwrap().display()));
            } else if kind.is_dir() {
                lines.push(format!("{name}/"));
                waiting.push(path);
            } else {
                lines.push(format!("{name}: {}", fs::read_to_string(&path).unwrap()));
            }
        }
    }
    lines.sort();
    lines
}

#[test]
fn source_and_target_names_mean_the_same_as_for_cp() {
    if Command::new("cp").arg("--version").output().is_err() {
        return eprintln!("SKIPPED: GNU cp is not installed");
    }
    let follows = [(Follow::None, "-P"), (Follow::Named, "-H"), (Follow::All, "-L")];
    let sources_named = [
        "file",
        "tree",
        "tree/",
        "tree/.",
        "to-file",
        "to-tree",
        "to-tree/",
        "to-tree/.",
        "dangling",
    ];
    let mut compared = 0;
    for source in sources_named {
        for target in ["new", "there", "old"] {
            for exact in [false, true] {
                for (follow, option) in follows {
                    let (ours, theirs) = (temp_dir(), temp_dir());
                    for one in [&ours, &theirs] {
                        sources(one.path());
                        targets(one.path());
                    }
                    let copied = Copy::new(ours.path().join(source), ours.path().join(target))
                        .follow(follow)
                        .exact_target(exact)
                        .run();
                    let mut cp = Command::new("cp");
                    cp.current_dir(theirs.path()).args(["-a", option]).args(exact.then_some("-T"));
                    let cp = cp.args(["--", source, target]).output().unwrap();
                    let case = format!(
                        "cp -a {option} {} {source} {target}",
                        if exact { "-T" } else { "" }
                    );
                    assert_eq!(copied.is_ok(), cp.status.success(), "{case}: {copied:?} {cp:?}");
                    assert_eq!(listing(ours.path()), listing(theirs.path()), "{case}: {copied:?}");
                    compared += 1;
                }
            }
        }
    }
    assert_eq!(compared, 9 * 3 * 2 * 3);
}

#[test]
fn link_to_a_parent_directory_is_an_error() {
    let temp = temp_dir();
    let tree = temp.path().join("tree");
    fs::create_dir_all(tree.join("inner")).unwrap();
    symlink("..", tree.join("inner/up")).unwrap();
    symlink("nowhere", tree.join("dangling")).unwrap();
    let copy = temp.path().join("copy");
    let report =
        Copy::new(&tree, &copy).follow(Follow::All).keep_going(true).run().unwrap().tree.unwrap();
    assert_eq!(report.errors_total, 2, "{report:?}");
    assert!(copy.join("inner").is_dir() && !copy.join("inner/up").exists());
}

#[test]
fn hard_links_are_preserved_across_sources() {
    let temp = temp_dir();
    let path = |name: &str| temp.path().join(name);
    for directory in ["one", "two", "into"] {
        fs::create_dir(path(directory)).unwrap();
    }
    fs::write(path("one/file"), "linked").unwrap();
    for name in ["two/file", "single", "again"] {
        fs::hard_link(path("one/file"), path(name)).unwrap();
    }
    let links = Arc::new(SharedLinks::default());
    for source in ["one", "single", "two", "again"] {
        Copy::new(path(source), path("into")).links(Arc::clone(&links)).run().unwrap();
    }
    let inodes: Vec<(u64, u64)> = ["one/file", "single", "two/file", "again"]
        .map(|name| fs::metadata(path("into").join(name)).unwrap())
        .map(|stat| (stat.ino(), stat.nlink()))
        .to_vec();
    assert!(inodes.iter().all(|one| *one == (inodes[0].0, 4)), "{inodes:?}");
    // Again, onto the existing copies.
    for source in ["single", "again"] {
        Copy::new(path(source), path("into")).links(Arc::clone(&links)).run().unwrap();
    }
    assert_eq!(fs::metadata(path("into/again")).unwrap().nlink(), 4);
    // A copy that was replaced since then is not linked to.
    fs::remove_file(path("into/again")).unwrap();
    fs::write(path("into/again"), "another").unwrap();
    Copy::new(path("single"), path("into")).links(links).run().unwrap();
    assert_eq!(fs::read_to_string(path("into/single")).unwrap(), "linked");
    let names = fs::read_dir(path("into")).unwrap().count();
    assert_eq!(names, 4, "temporary files remain");
}

#[test]
fn names_after_one_that_cannot_be_linked_are_linked_or_reported() {
    let temp = temp_dir();
    let path = |name: &str| temp.path().join(name);
    fs::create_dir_all(path("tree/sub")).unwrap();
    fs::write(path("file"), "linked").unwrap();
    for name in ["tree/a", "tree/b", "tree/sub/c"] {
        fs::hard_link(path("file"), path(name)).unwrap();
    }
    // Directories in the way of two names.
    for directory in ["into/tree/a", "into/tree/b", "into/tree/sub"] {
        fs::create_dir_all(path(directory)).unwrap();
    }
    fs::set_permissions(path("tree"), fs::Permissions::from_mode(0o750)).unwrap();
    let links = Arc::new(SharedLinks::default());
    Copy::new(path("file"), path("into")).links(Arc::clone(&links)).run().unwrap();
    let copied = Copy::new(path("tree"), path("into")).links(links).run();
    let Err(Error::Incomplete(report)) = copied else { panic!("{copied:?}") };
    assert_eq!(report.errors.len(), 2, "{report}");
    let copies = ["into/file", "into/tree/sub/c"].map(|name| fs::metadata(path(name)).unwrap());
    assert_eq!(copies[0].ino(), copies[1].ino());
    assert_eq!(fs::metadata(path("into/tree")).unwrap().mode() & 0o777, 0o750);
}

#[test]
fn clean_removes_only_unfinished_copies() {
    let temp = temp_dir();
    let path = |name: &str| temp.path().join(name);
    let left = [".film.evermap-0123abcd", "sub/.f.evermap-ffffffff"];
    let parts = [".film.evermap-part", ".film.evermap-part.journal"];
    let others = ["film", ".hidden", ".a.evermap-0123ABCD", "b.evermap-0123abcd", "sub/file"];
    fs::create_dir_all(path("sub/.tree.evermap-00000000/deep")).unwrap();
    for name in left.iter().chain(&parts).chain(&others) {
        fs::write(path(name), "text").unwrap();
    }
    fs::write(path("sub/.tree.evermap-00000000/deep/file"), "text").unwrap();
    symlink("film", path(".l.evermap-00000001")).unwrap();
    // Links to other directories are not followed.
    let elsewhere = self::temp_dir();
    fs::write(elsewhere.path().join(".f.evermap-00000002"), "text").unwrap();
    symlink(elsewhere.path(), path("link")).unwrap();
    let cleaned = clean(temp.path(), false).unwrap();
    assert!(cleaned.errors.is_empty() && cleaned.in_use.is_empty(), "{cleaned:?}");
    assert_eq!((cleaned.removed.len(), cleaned.parts.len()), (4, 2), "{cleaned:?}");
    assert!(parts.iter().chain(&others).all(|name| path(name).exists()));
    assert!(elsewhere.path().join(".f.evermap-00000002").exists());
    let cleaned = clean(temp.path(), true).unwrap();
    assert_eq!((cleaned.removed.len(), cleaned.parts.len()), (2, 0), "{cleaned:?}");
    assert!(others.iter().all(|name| path(name).exists()));
    assert!(matches!(clean(&path("none"), false), Err(Error::Io { .. })));
}

#[test]
fn clean_skips_files_of_a_running_copy() {
    let temp = temp_dir();
    let path = |name: &str| temp.path().join(name);
    let lock = |path: PathBuf| {
        let file = fs::File::open(path).unwrap();
        rustix::fs::flock(&file, rustix::fs::FlockOperation::NonBlockingLockShared).unwrap();
        file
    };
    fs::create_dir_all(path(".tree.evermap-00000000")).unwrap();
    fs::create_dir_all(path("merged/below")).unwrap();
    for name in
        [".f.evermap-00000001", "merged/.g.evermap-00000002", "merged/below/.h.evermap-00000003"]
    {
        fs::write(path(name), "text").unwrap();
    }
    let held = [
        lock(path(".tree.evermap-00000000")),
        lock(path(".f.evermap-00000001")),
        lock(path("merged")),
    ];
    for directory in [temp.path().to_path_buf(), path("merged"), path("merged/below")] {
        let cleaned = clean(&directory, true).unwrap();
        assert!(cleaned.removed.is_empty() && !cleaned.in_use.is_empty(), "{cleaned:?}");
    }
    // Closing would not do: a child that another test has just forked still has the descriptors.
    for file in held {
        rustix::fs::flock(&file, rustix::fs::FlockOperation::Unlock).unwrap();
    }
    assert_eq!(clean(temp.path(), true).unwrap().removed.len(), 4);
}
