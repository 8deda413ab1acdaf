//! Whether a resource is still what its stamp says, for as little as possible: a look at a file, a
//! look at the clock; only then the file's content, or a question to the server.

use std::time::Instant;

use url::Url;

use super::Fetcher;
use super::call::{Call, now_ns};
use super::error::Cause;
use super::file;
use super::redirect::follow;
use super::stamp::{FileStamp, HttpStamp, MissingStamp, ObjectStamp, Stamp, Still};

impl Stamp {
    /// Is the resource still the same? Costs
    ///
    /// - for a file, one look at it; its content is read and hashed only if its times have changed, or
    ///   were too young to prove anything when it was read;
    /// - for a response, nothing while it is fresh; then a look into the HTTP cache, which another
    ///   process may have made fresh again; then a conditional request. With
    ///   [`offline`](super::FetchOptions::offline), `Unknown` instead of that;
    /// - for an object of the store, a look at its last commit;
    /// - for what was missing, another try.
    pub fn check(&self, fetcher: &Fetcher, deadline: Option<Instant>) -> Still {
        self.clone().check_and_renew(fetcher, deadline)
    }

    /// The same; and if the resource is the same, the stamp becomes what it would be had it been made
    /// now, so that the next check costs less.
    pub fn check_and_renew(&mut self, fetcher: &Fetcher, deadline: Option<Instant>) -> Still {
        match self {
            Stamp::Data => Still::Same,
            Stamp::File(file) => check_file(file, fetcher, deadline),
            Stamp::Http(http) => check_http(http, fetcher, deadline),
            Stamp::Object(object) => check_object(object, fetcher),
            Stamp::Missing(missing) => check_missing(missing, fetcher, deadline),
        }
    }
}

fn parse(url: &str) -> Result<Url, Still> {
    Url::parse(url).map_err(|e| Still::Unknown(format!("its stamp names no address ({e})")))
}

fn check_file(stamp: &mut FileStamp, fetcher: &Fetcher, deadline: Option<Instant>) -> Still {
    let url = match parse(&stamp.url) {
        Ok(url) => url,
        Err(unknown) => return unknown,
    };
    let metadata = match file::path_of(&url).map(std::fs::metadata) {
        Ok(Ok(metadata)) => metadata,
        Ok(Err(e)) => return Still::Changed(file::refused(&e).to_string()),
        Err(cause) => return Still::Unknown(cause.to_string()),
    };
    if stamp.settled && stamp.is_of(&metadata) {
        return Still::Same;
    }
    if metadata.len() != stamp.size_bytes {
        return Still::Changed("the file has another size".to_string());
    }
    // Of a size that was read before: no limit but the fetcher's is in the way.
    let call = Call::new(&fetcher.options, super::Purpose::Page, deadline, &fetcher.budget);
    match file::read(&url, &call) {
        Ok((_, new)) if new.hash == stamp.hash => {
            *stamp = new;
            Still::Same
        }
        Ok(_) => Still::Changed("the file has another content".to_string()),
        Err(cause @ (Cause::Timeout { .. } | Cause::TooLarge { .. })) => {
            Still::Unknown(cause.to_string())
        }
        Err(cause) => Still::Changed(cause.to_string()),
    }
}

fn check_object(stamp: &ObjectStamp, fetcher: &Fetcher) -> Still {
    let Some(store) = fetcher.store() else {
        return Still::Unknown("there is no store".to_string());
    };
    match store.info(&stamp.name) {
        Ok(now) if now.uuid == stamp.uuid && now.sequence == stamp.sequence => Still::Same,
        Ok(_) => Still::Changed("the document in the store is another".to_string()),
        Err(error) => Still::Changed(error.to_string()),
    }
}

/// Is it between the moment that something was fetched and the end of its freshness?
fn is_fresh(fetched_ns: u64, fresh_until_ns: u64, fetcher: &Fetcher) -> bool {
    let now_ns = now_ns();
    !fetcher.options.reload && fetched_ns <= now_ns && now_ns < fresh_until_ns
}

fn check_http(stamp: &mut HttpStamp, fetcher: &Fetcher, deadline: Option<Instant>) -> Still {
    if is_fresh(stamp.fetched_ns, stamp.fresh_until_ns, fetcher) {
        return Still::Same;
    }
    let url = match parse(&stamp.url) {
        Ok(url) => url,
        Err(unknown) => return unknown,
    };
    let call = Call::new(&fetcher.options, stamp.purpose, deadline, &fetcher.budget);
    let followed = match follow(fetcher, &url, stamp.purpose, &call, Some(stamp)) {
        Ok(followed) => followed,
        Err(Cause::Offline) => return Still::Unknown("stale, offline".to_string()),
        Err(cause) if cause.is_passing() => return Still::Unknown(cause.to_string()),
        Err(cause) => return Still::Changed(cause.to_string()),
    };
    let new = followed.stamp;
    if new.final_url != stamp.final_url {
        return Still::Changed(format!("it is redirected to {}", new.final_url));
    }
    if new.status != stamp.status {
        if new.status == 429 || new.status >= 500 {
            return Still::Unknown(format!("the server answers {}", new.status));
        }
        return Still::Changed(format!("the server answers {}", new.status));
    }
    if new.hash != stamp.hash {
        return Still::Changed("the server sends another content".to_string());
    }
    *stamp = new;
    Still::Same
}

fn check_missing(stamp: &mut MissingStamp, fetcher: &Fetcher, deadline: Option<Instant>) -> Still {
    if is_fresh(stamp.fetched_ns, stamp.fresh_until_ns, fetcher) {
        return Still::Same;
    }
    let url = match parse(&stamp.url) {
        Ok(url) => url,
        Err(unknown) => return unknown,
    };
    let error = match fetcher.fetch(&url, stamp.origin, stamp.purpose, deadline) {
        Ok(_) => return Still::Changed("it is there now".to_string()),
        Err(error) => error,
    };
    match error.cause {
        Cause::Offline if stamp.kind != "offline" => Still::Unknown("stale, offline".to_string()),
        // As far as it could be asked, nothing is different.
        cause if cause.is_passing() && cause.kind() != stamp.kind => {
            Still::Unknown(cause.to_string())
        }
        _ => {
            if let Stamp::Missing(new) = *error.stamp {
                *stamp = new;
            }
            Still::Same
        }
    }
}
