//! Wishes: from the struct that C gives to what the builder takes.

use std::path::Path;

use evermap_load::{Advice, Cache, ForkPolicy, Latency, Loader, Method, Order};

use super::types::{LOAD_NONE, em_advice, em_load_options};
use crate::arguments::{options, text};
use crate::failure::{Failure, Result};
use crate::types::*;

/// A loader of a file with what was wished.
///
/// # Safety
/// `given` is null or what the header says; with `may_map` the caller makes the promise that stands there.
pub unsafe fn loader(path: &Path, given: *const em_load_options) -> Result<Loader> {
    let mut loader = Loader::open(path);
    // SAFETY: passed on from the caller.
    let given = unsafe { options(given) }?;
    let Some(given) = given else { return Ok(loader) };
    loader = match (given.begin_bytes, given.length_bytes) {
        (begin, 0) => loader.range(begin..),
        (begin, length_bytes) => loader.range(begin..begin.saturating_add(length_bytes)),
    };
    if let Some(share) = share("touched_permille", given.touched_permille)? {
        loader = loader.touched(share);
    }
    if let Some(share) = share("written_permille", given.written_permille)? {
        loader = loader.written(share);
    }
    loader = loader
        .order(order(given.order)?)
        .latency(latency(given.latency)?)
        .cache(cache(given.cache)?)
        .fork(fork(given.fork)?);
    if given.memory_bytes_max != 0 {
        loader = loader.memory_max(given.memory_bytes_max);
    }
    if given.threads != 0 {
        loader = loader.threads(given.threads as usize);
    }
    if !given.method.is_null() {
        // SAFETY: not null, so a text, by the caller's promise.
        loader = loader.method(method(unsafe { text(given.method, "the method") }?)?);
    }
    if given.may_map != 0 {
        // SAFETY: the caller's promise, in the header's words.
        loader = unsafe { loader.may_map() };
    }
    Ok(loader)
}

/// What will be done with a part of an image.
pub fn advice(number: em_advice) -> Result<Advice> {
    match number {
        ADVICE_WRITE_SOON => Ok(Advice::WriteSoon),
        ADVICE_READ_ONLY => Ok(Advice::ReadOnly),
        ADVICE_NEVER => Ok(Advice::Never),
        ADVICE_SEQUENTIAL => Ok(Advice::Sequential),
        other => Err(unknown("advice", other)),
    }
}

fn share(field: &str, permille: u32) -> Result<Option<f64>> {
    match permille {
        0 => Ok(None),
        1..=1000 => Ok(Some(f64::from(permille) / 1000.0)),
        LOAD_NONE => Ok(Some(0.0)),
        other => {
            let message =
                format!("`{field}` is {other}: it is 1 to 1000, EM_LOAD_NONE, or 0 if not known");
            Err(Failure::argument(message))
        }
    }
}

fn order(number: u32) -> Result<Order> {
    match number {
        LOAD_ORDER_UNKNOWN => Ok(Order::Unknown),
        LOAD_ORDER_SEQUENTIAL => Ok(Order::Sequential),
        LOAD_ORDER_RANDOM => Ok(Order::Random),
        other => Err(unknown("order", other)),
    }
}

fn latency(number: u32) -> Result<Latency> {
    match number {
        LOAD_LATENCY_FIRST_USE => Ok(Latency::FirstUse),
        LOAD_LATENCY_FINISH => Ok(Latency::Finish),
        other => Err(unknown("latency", other)),
    }
}

fn cache(number: u32) -> Result<Cache> {
    match number {
        LOAD_CACHE_AUTO => Ok(Cache::Auto),
        LOAD_CACHE_KEEP => Ok(Cache::Keep),
        LOAD_CACHE_DROP => Ok(Cache::Drop),
        other => Err(unknown("cache", other)),
    }
}

fn fork(number: u32) -> Result<ForkPolicy> {
    match number {
        LOAD_FORK_FINISH => Ok(ForkPolicy::Finish),
        LOAD_FORK_WITHOUT => Ok(ForkPolicy::DontFork),
        other => Err(unknown("fork", other)),
    }
}

fn method(name: &str) -> Result<Method> {
    Method::from_name(name).ok_or_else(|| {
        let names = Method::ALL.map(Method::name).join(", ");
        Failure::argument(format!("no method is called `{name}`; there are {names}"))
    })
}

fn unknown(field: &str, number: u32) -> Failure {
    Failure::argument(format!("{number} is no choice of `{field}`; see evermap_load.h"))
}
