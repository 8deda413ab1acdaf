//! Guarantees of sets of images.

#![allow(clippy::unwrap_used)]

use std::path::PathBuf;

use evermap_load::{Error, ImageSet, Loader, Method};

fn contents(number: usize, bytes: usize) -> Vec<u8> {
    (0..bytes).map(|at| (at / 4096 + at + number * 31) as u8).collect()
}

/// Creates files of these sizes.
fn files(sizes: &[usize]) -> (tempfile::TempDir, Vec<PathBuf>) {
    let directory = tempfile::tempdir().unwrap();
    let paths: Vec<PathBuf> =
        (0..sizes.len()).map(|number| directory.path().join(number.to_string())).collect();
    for (number, path) in paths.iter().enumerate() {
        std::fs::write(path, contents(number, sizes[number])).unwrap();
    }
    (directory, paths)
}

#[test]
fn all_files_have_their_bytes_in_the_order_of_their_loaders() {
    let mut sizes: Vec<usize> = (0..200).map(|number| number * 37).collect();
    sizes.extend([300_000, 5 << 20, (2 << 20) + 1, 17 << 20, 18 << 20, 0, 19 << 20]);
    let (_directory, paths) = files(&sizes);
    let mut set = ImageSet::load(paths.iter().map(Loader::open)).unwrap();
    assert_eq!(set.len(), sizes.len());
    for (number, image) in set.iter_mut().enumerate() {
        assert_eq!(image.path(), paths[number]);
        assert!(**image == contents(number, sizes[number])[..], "{number}");
        image.iter_mut().for_each(|byte| *byte = !*byte);
    }
    set.wait().unwrap();
    let progress = set.progress();
    assert_eq!(progress.loaded_bytes, progress.total_bytes);
    assert_eq!(progress.total_bytes, sizes.iter().sum::<usize>() as u64);
    assert_eq!(set.get(&paths[9]).unwrap()[5], !contents(9, 6)[5]);
    assert!(set.get("elsewhere").is_none());
    for (number, path) in paths.iter().enumerate() {
        assert!(std::fs::read(path).unwrap() == contents(number, sizes[number]), "{number}");
    }
}

#[test]
fn many_on_demand_images_complete_in_any_order_of_access() {
    let sizes = [17 << 20; 7];
    let (_directory, paths) = files(&sizes);
    let loaders = || paths.iter().map(|path| Loader::open(path).method(Method::TakeoverOnDemand));
    let set = match ImageSet::load(loaders()) {
        Err(Error::Refused { why, .. }) => return println!("skipped: {why}"),
        other => other.unwrap(),
    };
    // Accessed windows do not wait for a turn.
    for (number, image) in set.iter().enumerate().rev() {
        assert_eq!(image[16 << 20], contents(number, (16 << 20) + 1)[16 << 20]);
    }
    set.wait().unwrap();
    for (number, image) in set.into_iter().enumerate() {
        assert!(image[..] == contents(number, sizes[number])[..], "{number}");
    }
    // Some images are dropped before their turn.
    let mut images = ImageSet::load_each(loaders());
    images.drain(..3).for_each(|image| drop(image.unwrap()));
    for image in images {
        image.unwrap().wait().unwrap();
    }
}

#[test]
fn a_failed_file_is_named_and_the_others_are_loaded() {
    let (directory, mut paths) = files(&[10, 20, 30]);
    paths.insert(1, directory.path().join("missing"));
    let error = ImageSet::load(paths.iter().map(Loader::open)).unwrap_err();
    assert!(error.to_string().contains("missing"), "{error}");
    let each = ImageSet::load_each(paths.iter().map(Loader::open));
    assert_eq!(each.iter().map(Result::is_ok).collect::<Vec<_>>(), [true, false, true, true]);
    assert!(ImageSet::load([]).unwrap().is_empty());
}

#[test]
fn each_loader_has_its_own_limit() {
    let (_directory, paths) = files(&[1 << 20, 1 << 20]);
    let loaders =
        [Loader::open(&paths[0]).memory_max(1 << 19), Loader::open(&paths[1]).memory_max(1 << 21)];
    let each = ImageSet::load_each(loaders);
    assert!(matches!(each[0], Err(Error::NoMemory { .. })), "{:?}", each[0]);
    assert!(each[1].is_ok());
}
