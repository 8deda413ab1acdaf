//! Helpers for tests of fetching: fetchers, stores and deadlines.
#![allow(dead_code)]

#[path = "server.rs"]
pub mod server;

use std::path::Path;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use evermap::Store;
use evermap_view::fetch::{Cause, FetchError, FetchOptions, Fetched, Fetcher, Origin, Purpose};
use url::Url;

/// Returns options that do not depend on the environment.
pub fn options() -> FetchOptions {
    FetchOptions { proxy_from_environment: false, ..FetchOptions::default() }
}

pub fn offline() -> FetchOptions {
    FetchOptions { offline: true, ..options() }
}

/// Returns a fetcher without a cache.
pub fn fetcher() -> Fetcher {
    Fetcher::new(options(), None)
}

/// Returns a fetcher whose cache is in this store.
pub fn caching(store: &Store) -> Fetcher {
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

/// Fetches a page that the user requests.
pub fn page(fetcher: &Fetcher, url: &Url) -> Result<Fetched, FetchError> {
    fetcher.fetch(url, Origin::of(url), Purpose::Page, None)
}

/// Fetches a picture for a page from the network.
pub fn image(fetcher: &Fetcher, url: &Url) -> Result<Fetched, FetchError> {
    fetcher.fetch(url, Origin::Network, Purpose::Image, None)
}

pub fn cause(result: Result<Fetched, FetchError>) -> Cause {
    match result {
        Ok(fetched) => panic!("{} was fetched", fetched.final_url),
        Err(error) => error.cause,
    }
}

/// Runs an `#[ignore]`d test of this file in a child process.
pub fn child(test: &str, environment: &[(&str, &str)]) -> Output {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args([test, "--exact", "--ignored", "--nocapture", "--test-threads=1"]);
    command.envs(environment.iter().copied());
    command.output().unwrap()
}

/// Returns a variable that a child test receives; `None` if the test is run by hand.
pub fn variable(variable: &str) -> Option<String> {
    std::env::var(variable).ok()
}

pub fn assert_passed(output: &Output) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success() && out.contains("1 passed"), "{out}\n{err}");
}
