//! Guarantees of files of rules.

#![allow(clippy::unwrap_used)]
#![cfg(feature = "files")]

use evermap_load::{Error, Method, Rules};

#[test]
fn the_first_matching_rule_applies() {
    let rules = Rules::parse(
        "[[file]]\npattern = '*.idx'\nmethod = 'read'\n\
         [[file]]\npattern = '/data/**/*.bin'\n[[file]]\npattern = '/data/**'\nunchanging = true\n",
    )
    .unwrap();
    let pattern = |path: &str| rules.find(path).map(|rule| rule.pattern().to_string());
    assert_eq!(pattern("/data/a.idx").as_deref(), Some("*.idx"));
    assert_eq!(pattern("/data/a/b/c.bin").as_deref(), Some("/data/**/*.bin"));
    assert_eq!(pattern("/data/a/b/c").as_deref(), Some("/data/**"));
    assert_eq!(pattern("/elsewhere/c.bin"), None);
    assert_eq!(rules.find("/data/c").unwrap().unchanging(), Some(true));
    assert_eq!(rules.find("/data/c.bin").unwrap().unchanging(), None);
}

#[test]
fn a_star_matches_no_slash_and_relative_patterns_start_at_the_rules_file() {
    let directory = tempfile::tempdir().unwrap();
    // Pattern characters in a directory's name are literal.
    let inner = directory.path().join("a[1]*");
    std::fs::create_dir_all(inner.join("models/deep")).unwrap();
    std::fs::write(inner.join("rules.toml"), "[[file]]\npattern = './models/*'\n").unwrap();
    let rules = Rules::read(inner.join("rules.toml")).unwrap();
    assert!(rules.find(inner.join("models/one")).is_some());
    assert!(rules.find(inner.join("models/deep/one")).is_none());
    assert!(rules.find("models/one").is_none());
}

#[test]
fn a_rule_sets_the_loaders_options() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("file.bin");
    std::fs::write(&path, vec![7; 1 << 20]).unwrap();
    let rules = Rules::parse("[[file]]\npattern = '*.bin'\nmethod = 'read-huge'\nthreads = 3\n");
    let image = rules.unwrap().loader(&path).unwrap().load().unwrap();
    let choice = image.report().choice;
    assert_eq!((choice.method, choice.threads), (Method::ReadHuge, 3));
    assert_eq!(image[5], 7);
}

#[test]
fn errors_in_rules_name_the_line() {
    for (text, named) in [
        ("[[file]]\npattern = '*'\ntouchd = 1.0\n", "touchd"),
        ("[[file]]\npattern = '*'\ntouched = 1.5\n", "from 0 to 1"),
        ("[[file]]\npattern = '*'\nthreads = 0\n", "at least 1"),
        ("[[file]]\n\npattern = 'a***'\n", "line 3"),
        ("[[file]]\ntouched = 0.5\n", "pattern"),
        ("[[file]]\npattern = '*'\nmethod = 'mnap'\n", "mnap"),
        ("[[files]]\npattern = '*'\n", "files"),
        ("[[file", "line 1"),
    ] {
        let error = Rules::parse(text).unwrap_err();
        assert!(matches!(&error, Error::Malformed { .. }), "{error:?}");
        assert!(error.to_string().contains(named), "{text}: {error}");
    }
    let error = Rules::read("/nonexistent/rules.toml").unwrap_err();
    assert!(matches!(error, Error::Io { .. }), "{error:?}");
}

/// Reading a device, which has no end, or a long sparse file must not use up memory.
#[test]
fn files_of_rules_and_recordings_that_are_too_long_are_refused() {
    let error = Rules::read("/dev/zero").unwrap_err();
    assert!(error.to_string().contains("longer than 1048576 bytes"), "{error}");
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("recording");
    let file = std::fs::File::create(&path).unwrap();
    file.set_len((256 << 20) + 1).unwrap();
    let error = evermap_load::Recording::read(&path).unwrap_err();
    assert!(error.to_string().contains("longer than 268435456 bytes"), "{error}");
    assert!(error.to_string().contains("recording"), "{error}");
}
