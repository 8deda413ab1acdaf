//! Checks whether a resource still matches its stamp, as cheaply as possible: first by a file's
//! metadata or by the clock, then by the file's content or a request to the server.

use std::time::Instant;

use url::Url;

use super::Fetcher;
use super::call::{Call, now_ns};
use super::cause::Cause;
use super::file;
use super::redirect::follow;
use super::stamp::{FileStamp, HttpStamp, MissingStamp, ObjectStamp, Stamp, StampCheck};

impl Stamp {
    /// Checks whether the resource is unchanged. The cost depends on the resource:
    ///
    /// - A file costs one `stat`. Its content is read and hashed only if its times have changed, or
    ///   were too recent to be reliable when it was read.
    /// - A response costs nothing while it is fresh. After that it costs a lookup in the HTTP
    ///   cache, which another process may have refreshed, and then a conditional request. With
    ///   [`offline`](super::FetchOptions::offline), the result is `Unknown` instead of a request.
    /// - An object of the store costs a catalog lookup of its last commit.
    /// - A missing resource costs another fetch.
    pub fn check(&self, fetcher: &Fetcher, deadline: Option<Instant>) -> StampCheck {
        self.clone().check_and_renew(fetcher, deadline)
    }

    /// Like [`check`](Stamp::check). If the resource is unchanged, also updates the stamp to the
    /// current state, so that the next check costs less.
    pub fn check_and_renew(&mut self, fetcher: &Fetcher, deadline: Option<Instant>) -> StampCheck {
        match self {
            Stamp::Data => StampCheck::Same,
            Stamp::File(file) => check_file(file, fetcher, deadline),
            Stamp::Http(http) => check_http(http, fetcher, deadline),
            Stamp::Object(object) => check_object(object, fetcher),
            Stamp::Missing(missing) => check_missing(missing, fetcher, deadline),
        }
    }
}

fn parse(url: &str) -> Result<Url, StampCheck> {
    Url::parse(url)
        .map_err(|e| StampCheck::Unknown(format!("the address in its stamp is invalid ({e})")))
}

fn check_file(stamp: &mut FileStamp, fetcher: &Fetcher, deadline: Option<Instant>) -> StampCheck {
    let url = match parse(&stamp.url) {
        Ok(url) => url,
        Err(unknown) => return unknown,
    };
    let metadata = match file::path_of(&url).map(std::fs::metadata) {
        Ok(Ok(metadata)) => metadata,
        Ok(Err(e)) => return StampCheck::Changed(file::cause_of(&e).to_string()),
        Err(cause) => return StampCheck::Unknown(cause.to_string()),
    };
    if stamp.settled && stamp.is_of(&metadata) {
        return StampCheck::Same;
    }
    if metadata.len() != stamp.size_bytes {
        return StampCheck::Changed("the file has a different size".to_string());
    }
    // The file was read at this size before, so only the fetcher's total limit can be exceeded.
    let call = Call::new(&fetcher.options, super::Purpose::Page, deadline, &fetcher.budget);
    match file::read(&url, &call) {
        Ok((_, new)) if new.hash == stamp.hash => {
            *stamp = new;
            StampCheck::Same
        }
        Ok(_) => StampCheck::Changed("the file has different content".to_string()),
        Err(cause @ (Cause::Timeout { .. } | Cause::TooLarge { .. })) => {
            StampCheck::Unknown(cause.to_string())
        }
        Err(cause) => StampCheck::Changed(cause.to_string()),
    }
}

fn check_object(stamp: &ObjectStamp, fetcher: &Fetcher) -> StampCheck {
    let Some(store) = fetcher.store() else {
        return StampCheck::Unknown("no store is open".to_string());
    };
    match store.info(&stamp.name) {
        Ok(now) if now.uuid == stamp.uuid && now.sequence == stamp.sequence => StampCheck::Same,
        Ok(_) => StampCheck::Changed("the document in the store is a different one".to_string()),
        Err(error) => StampCheck::Changed(error.to_string()),
    }
}

/// Returns true if the time is between the fetch and the end of its freshness.
fn is_fresh(fetched_ns: u64, fresh_until_ns: u64, fetcher: &Fetcher) -> bool {
    let now_ns = now_ns();
    !fetcher.options.reload && fetched_ns <= now_ns && now_ns < fresh_until_ns
}

fn check_http(stamp: &mut HttpStamp, fetcher: &Fetcher, deadline: Option<Instant>) -> StampCheck {
    if is_fresh(stamp.fetched_ns, stamp.fresh_until_ns, fetcher) {
        return StampCheck::Same;
    }
    let url = match parse(&stamp.url) {
        Ok(url) => url,
        Err(unknown) => return unknown,
    };
    let call = Call::new(&fetcher.options, stamp.purpose, deadline, &fetcher.budget);
    let followed = match follow(fetcher, &url, stamp.purpose, &call, Some(stamp)) {
        Ok(followed) => followed,
        Err(Cause::Offline) => return StampCheck::Unknown("stale, offline".to_string()),
        Err(cause) if cause.is_transient() => return StampCheck::Unknown(cause.to_string()),
        Err(cause) => return StampCheck::Changed(cause.to_string()),
    };
    let new = followed.stamp;
    if new.final_url != stamp.final_url {
        return StampCheck::Changed(format!("it now redirects to {}", new.final_url));
    }
    if new.status != stamp.status {
        if new.status == 429 || new.status >= 500 {
            return StampCheck::Unknown(format!("the server returned {}", new.status));
        }
        return StampCheck::Changed(format!("the server returned {}", new.status));
    }
    if new.hash != stamp.hash {
        return StampCheck::Changed("the server sends different content".to_string());
    }
    *stamp = new;
    StampCheck::Same
}

fn check_missing(
    stamp: &mut MissingStamp,
    fetcher: &Fetcher,
    deadline: Option<Instant>,
) -> StampCheck {
    if is_fresh(stamp.fetched_ns, stamp.fresh_until_ns, fetcher) {
        return StampCheck::Same;
    }
    let url = match parse(&stamp.url) {
        Ok(url) => url,
        Err(unknown) => return unknown,
    };
    let error = match fetcher.fetch(&url, stamp.origin, stamp.purpose, deadline) {
        Ok(_) => return StampCheck::Changed("it is available now".to_string()),
        Err(error) => error,
    };
    match error.cause {
        Cause::Offline if stamp.kind != "offline" => {
            StampCheck::Unknown("stale, offline".to_string())
        }
        // The request failed differently, but the resource is still unavailable.
        cause if cause.is_transient() && cause.kind() != stamp.kind => {
            StampCheck::Unknown(cause.to_string())
        }
        _ => {
            if let Stamp::Missing(new) = *error.stamp {
                *stamp = new;
            }
            StampCheck::Same
        }
    }
}
