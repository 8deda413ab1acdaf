//! Tests of files, `data:` addresses, and the access rules.
#![allow(clippy::unwrap_used)]
#![cfg(feature = "fetch")]

#[path = "support/fetching.rs"]
mod support;

use std::fs;
use std::os::unix::net::UnixListener;
use std::time::{Duration, SystemTime};

use evermap_view::ViewError;
use evermap_view::fetch::{Cause, FetchSource, Fetcher, Kind, Origin, Purpose, Stamp, StampCheck};
use support::{cause, fetcher, file_url, offline, options, page};
use url::Url;

/// Writes a file with an old modification time. The time of its status change can't be set, so the
/// file still counts as recent.
fn old_file(path: &std::path::Path, content: &str) {
    fs::write(path, content).unwrap();
    let file = fs::File::options().write(true).open(path).unwrap();
    file.set_modified(SystemTime::now() - Duration::from_secs(3600)).unwrap();
}

#[test]
fn a_file_is_fetched_with_its_type_and_a_percent_encoded_name() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("Grüße & 100%.html");
    fs::write(&path, "<p>Hello").unwrap();
    let url = file_url(&path);
    assert!(url.as_str().contains("%25.html"), "{url}");
    let fetched = page(&fetcher(), &url).unwrap();
    assert_eq!(fetched.bytes, "<p>Hello");
    assert_eq!(fetched.content_type.kind, Kind::Html);
    assert_eq!((fetched.from, fetched.status), (FetchSource::File, None));
    let with_fragment = Url::parse(&format!("{url}?q=1#top")).unwrap();
    let again = page(&fetcher(), &with_fragment).unwrap();
    assert_eq!(again.bytes, fetched.bytes);
}

#[test]
fn special_files_are_rejected_without_blocking() {
    let directory = tempfile::tempdir().unwrap();
    let says = |path: &std::path::Path| {
        let error = page(&fetcher(), &file_url(path)).unwrap_err();
        assert!(error.to_string().contains(path.file_name().unwrap().to_str().unwrap()), "{error}");
        error.cause
    };
    let Cause::File(why) = says(directory.path()) else { panic!() };
    assert!(why.contains("a directory; name a file in it"), "{why}");
    let fifo = directory.path().join("fifo");
    let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
    rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, mode, 0).unwrap();
    let Cause::File(why) = says(&fifo) else { panic!() };
    assert!(why.contains("a pipe"), "{why}");
    let socket = directory.path().join("socket");
    let _listener = UnixListener::bind(&socket).unwrap();
    let Cause::File(why) = says(&socket) else { panic!() };
    assert!(why.contains("a socket"), "{why}");
    let Cause::File(why) = says(std::path::Path::new("/dev/zero")) else { panic!() };
    assert!(why.contains("a device"), "{why}");
    assert_eq!(says(&directory.path().join("nothing.html")), Cause::NoFile);
    let inside = directory.path().join("fifo").join("inside.html");
    assert_eq!(says(&inside), Cause::NoFile);
    let dangling = directory.path().join("dangling");
    std::os::unix::fs::symlink("nowhere", &dangling).unwrap();
    assert_eq!(says(&dangling), Cause::NoFile);
    let elsewhere = Url::parse("file://otherhost/page.html").unwrap();
    assert!(matches!(cause(page(&fetcher(), &elsewhere)), Cause::BadAddress(_)));
}

#[test]
fn an_unsupported_type_is_named_in_the_error() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("paper.pdf");
    fs::write(&path, "%PDF-1.7").unwrap();
    let url = file_url(&path);
    let error = ViewError::from(page(&fetcher(), &url).unwrap_err());
    assert!(
        matches!(&error, ViewError::UnsupportedType { content_type, .. } if content_type == "application/pdf"),
        "{error}"
    );
    // Any type is allowed for a resource.
    assert!(fetcher().fetch(&url, Origin::File, Purpose::Other, None).is_ok());
}

#[test]
fn only_local_pages_read_files() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("secret.txt");
    fs::write(&path, "secret").unwrap();
    let url = file_url(&path);
    for origin in [Origin::Network, Origin::Data] {
        for purpose in [Purpose::Page, Purpose::Image, Purpose::StyleSheet, Purpose::Font] {
            let error = fetcher().fetch(&url, origin, purpose, None).unwrap_err();
            assert!(matches!(error.cause, Cause::Refused(_)), "{error}");
            let error = ViewError::from(error);
            assert!(matches!(error, ViewError::Refused { .. }), "{error}");
        }
    }
    assert!(fetcher().fetch(&url, Origin::File, Purpose::Image, None).is_ok());
}

#[test]
fn only_four_schemes_are_read_and_no_password_is_sent() {
    for address in ["ftp://127.0.0.1/x", "javascript:1", "about:blank", "unix:/x", "blob:x"] {
        let url = Url::parse(address).unwrap();
        for origin in [Origin::File, Origin::Network, Origin::Data] {
            let error = fetcher().fetch(&url, origin, Purpose::Other, None).unwrap_err();
            assert!(matches!(error.cause, Cause::Refused(_)), "{error}");
            assert!(error.to_string().contains("file, data, http or https"), "{error}");
        }
    }
    let url = Url::parse("http://user:secret@127.0.0.1:1/").unwrap();
    assert!(matches!(cause(page(&fetcher(), &url)), Cause::Refused(_)));
}

#[test]
fn a_data_address_contains_its_content() {
    let url = Url::parse("data:text/css;charset=latin1;base64,cHt9").unwrap();
    let fetched = fetcher().fetch(&url, Origin::Network, Purpose::StyleSheet, None).unwrap();
    assert_eq!(fetched.bytes, "p{}");
    assert_eq!(fetched.content_type.kind, Kind::StyleSheet);
    assert_eq!(fetched.content_type.charset.as_deref(), Some("latin1"));
    assert_eq!((fetched.from, &fetched.stamp), (FetchSource::Data, &Stamp::Data));
    assert_eq!(fetched.stamp.check(&fetcher(), None), StampCheck::Same);
    for wrong in ["data:text/html", "data:;base64,@@"] {
        let wrong = Url::parse(wrong).unwrap();
        assert!(matches!(cause(page(&fetcher(), &wrong)), Cause::BadAddress(_)), "{wrong}");
    }
    let long = Url::parse(&format!("data:text/html,{}", "x".repeat(5000))).unwrap();
    let small = evermap_view::fetch::FetchOptions { page_bytes_max: 100, ..options() };
    let error = page(&Fetcher::new(small, None), &long).unwrap_err();
    assert!(matches!(error.cause, Cause::TooLarge { limit_bytes: 100, .. }), "{error}");
    assert!(error.to_string().len() < 600, "{error}");
}

#[test]
fn a_file_beyond_a_limit_is_not_read() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("large.html");
    fs::File::create(&path).unwrap().set_len(1 << 40).unwrap();
    let fetcher = fetcher();
    let error = ViewError::from(page(&fetcher, &file_url(&path)).unwrap_err());
    assert!(matches!(error, ViewError::TooLarge { limit_bytes: 0x200_0000, .. }), "{error}");

    let options = evermap_view::fetch::FetchOptions { total_bytes_max: 25, ..options() };
    let fetcher = Fetcher::new(options, None);
    let path = directory.path().join("ten.txt");
    fs::write(&path, "0123456789").unwrap();
    assert!(page(&fetcher, &file_url(&path)).is_ok());
    assert!(page(&fetcher, &file_url(&path)).is_ok());
    let third = cause(page(&fetcher, &file_url(&path)));
    assert_eq!(third, Cause::TooLarge { limit_bytes: 25, total: true });
    // Files in `/proc` report a size of 0 but have content.
    let status = page(&support::fetcher(), &Url::parse("file:///proc/self/status").unwrap());
    assert!(!status.unwrap().bytes.is_empty());
}

#[test]
fn a_file_is_unchanged_until_its_bytes_differ() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("page.html");
    old_file(&path, "one");
    let fetcher = Fetcher::new(offline(), None);
    let stamp = page(&fetcher, &file_url(&path)).unwrap().stamp;
    let Stamp::File(file) = &stamp else { panic!() };
    // The file was created just now, so its times are not reliable yet, despite the old
    // modification time.
    assert!(!file.settled);
    assert_eq!(stamp.check(&fetcher, None), StampCheck::Same);
    // Touched, renamed over, linked: different times and inodes, but the same bytes.
    old_file(&directory.path().join("other"), "one");
    fs::rename(directory.path().join("other"), &path).unwrap();
    assert_eq!(stamp.check(&fetcher, None), StampCheck::Same);
    old_file(&path, "two");
    let StampCheck::Changed(why) = stamp.check(&fetcher, None) else { panic!() };
    assert!(why.contains("different content"), "{why}");
    old_file(&path, "three");
    let StampCheck::Changed(why) = stamp.check(&fetcher, None) else { panic!() };
    assert!(why.contains("a different size"), "{why}");
    fs::remove_file(&path).unwrap();
    let StampCheck::Changed(why) = stamp.check(&fetcher, None) else { panic!() };
    assert!(why.contains("does not exist"), "{why}");
}

#[test]
fn a_file_with_settled_times_is_not_read() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("page.html");
    old_file(&path, "one");
    let fetcher = Fetcher::new(offline(), None);
    let Stamp::File(mut file) = page(&fetcher, &file_url(&path)).unwrap().stamp else { panic!() };
    // A check that read the content would reject this hash.
    file.hash = [7; 32];
    let unsettled = Stamp::File(file.clone());
    assert!(matches!(unsettled.check(&fetcher, None), StampCheck::Changed(_)));
    file.settled = true;
    let settled = Stamp::File(file.clone());
    assert_eq!(settled.check(&fetcher, None), StampCheck::Same);
    // A change of any time, the device or the inode causes a read.
    for change in [
        |file: &mut evermap_view::fetch::FileStamp| file.modified_ns += 1,
        |file: &mut evermap_view::fetch::FileStamp| file.changed_ns += 1,
        |file: &mut evermap_view::fetch::FileStamp| file.inode += 1,
        |file: &mut evermap_view::fetch::FileStamp| file.device += 1,
    ] {
        let mut other = file.clone();
        change(&mut other);
        assert!(matches!(Stamp::File(other).check(&fetcher, None), StampCheck::Changed(_)));
    }
}

#[test]
fn a_renewed_stamp_is_settled() {
    // A system file that has not changed for more than two seconds.
    let url = file_url(&std::path::Path::new("/bin/sh").canonicalize().unwrap());
    let fetcher = Fetcher::new(offline(), None);
    let fetched = fetcher.fetch(&url, Origin::File, Purpose::Other, None).unwrap();
    let Stamp::File(file) = &fetched.stamp else { panic!() };
    assert!(file.settled);
    let mut young = Stamp::File(evermap_view::fetch::FileStamp { settled: false, ..file.clone() });
    assert_eq!(young.check_and_renew(&fetcher, None), StampCheck::Same);
    assert_eq!(young, fetched.stamp);
}

#[test]
fn a_missing_file_is_unchanged_until_it_exists() {
    let directory = tempfile::tempdir().unwrap();
    let fetcher = Fetcher::new(offline(), None);
    let path = directory.path().join("style.css");
    let url = file_url(&path);
    let missing =
        |origin| *fetcher.fetch(&url, origin, Purpose::StyleSheet, None).unwrap_err().stamp;
    let (absent, refused) = (missing(Origin::File), missing(Origin::Network));
    assert_eq!(absent.check(&fetcher, None), StampCheck::Same);
    fs::create_dir(&path).unwrap();
    assert_eq!(absent.check(&fetcher, None), StampCheck::Same);
    fs::remove_dir(&path).unwrap();
    fs::write(&path, "p{}").unwrap();
    assert_eq!(
        absent.check(&fetcher, None),
        StampCheck::Changed("it is available now".to_string())
    );
    // A page without access must not learn whether the file exists.
    assert_eq!(refused.check(&fetcher, None), StampCheck::Same);
}

#[test]
fn stamps_survive_json() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("page.html");
    fs::write(&path, "one").unwrap();
    let fetcher = Fetcher::new(offline(), None);
    let there = page(&fetcher, &file_url(&path)).unwrap().stamp;
    let absent = *page(&fetcher, &file_url(&directory.path().join("no"))).unwrap_err().stamp;
    let nowhere = Url::parse("http://127.0.0.1:1/").unwrap();
    let offline = *page(&fetcher, &nowhere).unwrap_err().stamp;
    for stamp in [there, absent, offline, Stamp::Data] {
        let text = serde_json::to_string(&stamp).unwrap();
        assert_eq!(serde_json::from_str::<Stamp>(&text).unwrap(), stamp, "{text}");
    }
}
