//! What a source's and a target's names mean, beside `cp`; hard links between sources; what killed copies leave.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use evermap_transfer::{Copy, Error, Follow, SharedLinks, clean};
use tempfile::TempDir;

fn place() -> TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

/// A place with a source of every kind: a file, a tree with links, links to each, one that leads nowhere.
fn sources(place: &Path) {
    fs::create_dir_all(place.join("tree/inner")).unwrap();
    fs::write(place.join("file"), "of the file").unwrap();
    fs::write(place.join("tree/inner/file"), "within").unwrap();
    symlink("inner/file", place.join("tree/link")).unwrap();
    symlink("inner", place.join("tree/directory")).unwrap();
    symlink("file", place.join("to-file")).unwrap();
    symlink("tree", place.join("to-tree")).unwrap();
    symlink("nowhere", place.join("dangling")).unwrap();
}

/// A target of every kind.
fn targets(place: &Path) {
    fs::create_dir_all(place.join("there/inner")).unwrap();
    fs::write(place.join("there/inner/file"), "before").unwrap();
    fs::write(place.join("there/other"), "kept").unwrap();
    fs::write(place.join("old"), "before").unwrap();
}

/// All paths below, with what they are.
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
fn names_of_sources_and_targets_mean_what_they_mean_to_cp() {
    if Command::new("cp").arg("--version").output().is_err() {
        return eprintln!("SKIPPED: there is no GNU cp here");
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
                    let (ours, theirs) = (place(), place());
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
fn a_link_that_leads_to_a_directory_above_is_an_error_and_no_endless_tree() {
    let place = place();
    let tree = place.path().join("tree");
    fs::create_dir_all(tree.join("inner")).unwrap();
    symlink("..", tree.join("inner/up")).unwrap();
    symlink("nowhere", tree.join("dangling")).unwrap();
    let copy = place.path().join("copy");
    let report =
        Copy::new(&tree, &copy).follow(Follow::All).keep_going(true).run().unwrap().tree.unwrap();
    assert_eq!(report.errors_total, 2, "{report:?}");
    assert!(copy.join("inner").is_dir() && !copy.join("inner/up").exists());
}

#[test]
fn hard_links_are_kept_across_all_sources_that_share_them() {
    let place = place();
    let path = |name: &str| place.path().join(name);
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
    // A second time, onto what is there.
    for source in ["single", "again"] {
        Copy::new(path(source), path("into")).links(Arc::clone(&links)).run().unwrap();
    }
    assert_eq!(fs::metadata(path("into/again")).unwrap().nlink(), 4);
    // A copy that was replaced meanwhile is not linked to.
    fs::remove_file(path("into/again")).unwrap();
    fs::write(path("into/again"), "another").unwrap();
    Copy::new(path("single"), path("into")).links(links).run().unwrap();
    assert_eq!(fs::read_to_string(path("into/single")).unwrap(), "linked");
    let names = fs::read_dir(path("into")).unwrap().count();
    assert_eq!(names, 4, "nothing is left under a temporary name");
}

#[test]
fn cleaning_removes_left_overs_and_nothing_else() {
    let place = place();
    let path = |name: &str| place.path().join(name);
    let left = [".film.evermap-0123abcd", "sub/.f.evermap-ffffffff"];
    let parts = [".film.evermap-part", ".film.evermap-part.journal"];
    let others = ["film", ".hidden", ".a.evermap-0123ABCD", "b.evermap-0123abcd", "sub/file"];
    fs::create_dir_all(path("sub/.tree.evermap-00000000/deep")).unwrap();
    for name in left.iter().chain(&parts).chain(&others) {
        fs::write(path(name), "text").unwrap();
    }
    fs::write(path("sub/.tree.evermap-00000000/deep/file"), "text").unwrap();
    symlink("film", path(".l.evermap-00000001")).unwrap();
    // A link to elsewhere is not gone through.
    let elsewhere = self::place();
    fs::write(elsewhere.path().join(".f.evermap-00000002"), "text").unwrap();
    symlink(elsewhere.path(), path("link")).unwrap();
    let cleaned = clean(place.path(), false).unwrap();
    assert!(cleaned.errors.is_empty() && cleaned.in_use.is_empty(), "{cleaned:?}");
    assert_eq!((cleaned.removed.len(), cleaned.parts.len()), (4, 2), "{cleaned:?}");
    assert!(parts.iter().chain(&others).all(|name| path(name).exists()));
    assert!(elsewhere.path().join(".f.evermap-00000002").exists());
    let cleaned = clean(place.path(), true).unwrap();
    assert_eq!((cleaned.removed.len(), cleaned.parts.len()), (2, 0), "{cleaned:?}");
    assert!(others.iter().all(|name| path(name).exists()));
    assert!(matches!(clean(&path("none"), false), Err(Error::Io { .. })));
}

#[test]
fn what_a_running_copy_has_is_left_alone() {
    let place = place();
    let path = |name: &str| place.path().join(name);
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
    for directory in [place.path().to_path_buf(), path("merged"), path("merged/below")] {
        let cleaned = clean(&directory, true).unwrap();
        assert!(cleaned.removed.is_empty() && !cleaned.in_use.is_empty(), "{cleaned:?}");
    }
    drop(held);
    assert_eq!(clean(place.path(), true).unwrap().removed.len(), 4);
}
