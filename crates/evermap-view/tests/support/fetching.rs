//! What the tests of fetching share: fetchers, stores, ends of time.
#![allow(dead_code)]

#[path = "server.rs"]
pub mod server;

use std::path::Path;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use evermap::Store;
use evermap_view::fetch::{Cause, FetchError, FetchOptions, Fetched, Fetcher, Origin, Purpose};
use url::Url;

/// Options that do not depend on the environment.
pub fn options() -> FetchOptions {
    FetchOptions { proxy_from_environment: false, ..FetchOptions::default() }
}

pub fn offline() -> FetchOptions {
    FetchOptions { offline: true, ..options() }
}

/// A fetcher without a cache.
pub fn fetcher() -> Fetcher {
    Fetcher::new(options(), None)
}

/// A fetcher that keeps what it fetches in this store.
pub fn keeping(store: &Store) -> Fetcher {
    Fetcher::new(options(), Some(store.clone()))
}

pub fn store_in(directory: &tempfile::TempDir) -> Store {
    Store::open_or_create(directory.path().join("store")).unwrap()
}

pub fn soon(milliseconds: u64) -> Option<Instant> {
    Some(Instant::now() + Duration::from_millis(milliseconds))
}

pub fn file_url(path: &Path) -> Url {
    Url::from_file_path(path).unwrap()
}

/// A page that the user asks for.
pub fn page(fetcher: &Fetcher, url: &Url) -> Result<Fetched, FetchError> {
    fetcher.fetch(url, Origin::of(url), Purpose::Page, None)
}

/// A picture of a page from the network.
pub fn image(fetcher: &Fetcher, url: &Url) -> Result<Fetched, FetchError> {
    fetcher.fetch(url, Origin::Network, Purpose::Image, None)
}

pub fn cause(result: Result<Fetched, FetchError>) -> Cause {
    match result {
        Ok(fetched) => panic!("{} was fetched", fetched.final_url),
        Err(error) => error.cause,
    }
}

/// Runs a test of this file that is `#[ignore]`d, in a process of its own.
pub fn child(test: &str, environment: &[(&str, &str)]) -> Output {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args([test, "--exact", "--ignored", "--nocapture", "--test-threads=1"]);
    command.envs(environment.iter().copied());
    command.output().unwrap()
}

/// What a child was given; nothing when somebody runs it by hand.
pub fn given(variable: &str) -> Option<String> {
    std::env::var(variable).ok()
}

pub fn assert_passed(output: &Output) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success() && out.contains("1 passed"), "{out}\n{err}");
}
