//! Converts load options from the C struct to the builder.

use std::path::Path;

use evermap_load::{Advice, Cache, ForkPolicy, Latency, Loader, Method, Order, Recording};

use super::rules;
use super::types::{LOAD_NONE, em_advice, em_load_options};
use crate::abi::arguments::{options, path, text};
use crate::abi::failure::{Failure, Result};
use crate::abi::types::*;

/// Returns a loader of a file with the given options.
///
/// # Safety
/// `given` is null or as the header requires. With `may_map` and `trust_rules` the caller gives the
/// guarantees that the header states.
pub unsafe fn loader(file: &Path, given: *const em_load_options) -> Result<Loader> {
    // SAFETY: the caller guarantees null or a struct as the header requires.
    let given = unsafe { options(given) }?;
    let Some(given) = given else { return Ok(Loader::open(file)) };
    // SAFETY: with `trust_rules`, the caller gives the guarantee that the header states.
    let loader = unsafe { by_rules(file, &given) }?;
    let loader = numbers(loader, &given)?;
    // SAFETY: the caller guarantees a struct as the header requires.
    let mut loader = unsafe { by_recording(loader, &given) }?;
    if !given.method.is_null() {
        // SAFETY: not null, so the caller guarantees a text.
        loader = loader.method(method(unsafe { text(given.method, "the method") }?)?);
    }
    if given.may_map != 0 {
        // SAFETY: with `may_map`, the caller guarantees that the file does not change while it is
        // mapped.
        loader = unsafe { loader.may_map() };
    }
    Ok(loader)
}

/// Returns a loader with the options of the first matching rule, if any.
///
/// # Safety
/// With `trust_rules` the caller gives the guarantee that the header states.
unsafe fn by_rules(file: &Path, given: &em_load_options) -> Result<Loader> {
    if given.rules.is_null() {
        return match given.trust_rules {
            0 => Ok(Loader::open(file)),
            _ => Err(Failure::argument("`trust_rules` without `rules`")),
        };
    }
    let rules = rules::find(given.rules)?;
    let Some(rule) = rules.find(file) else { return Ok(Loader::open(file)) };
    let loader = rule.loader(file);
    match given.trust_rules != 0 && rule.unchanging() == Some(true) {
        // SAFETY: the rule states that the file does not change, and the caller guarantees that the
        // rules are right.
        true => Ok(unsafe { loader.may_map() }),
        false => Ok(loader),
    }
}

/// Applies the recording options.
///
/// # Safety
/// `given` is as the header requires.
unsafe fn by_recording(loader: Loader, given: &em_load_options) -> Result<Loader> {
    match (given.record != 0, given.recording.is_null(), given.replay.is_null()) {
        (false, true, true) => Ok(loader),
        (true, true, true) => Ok(loader.record()),
        // SAFETY: not null, so the caller guarantees a path.
        (false, false, true) => Ok(loader.recording(unsafe { path(given.recording) }?)),
        (false, true, false) => {
            // SAFETY: not null, so the caller guarantees a path.
            let file = unsafe { path(given.replay) }?;
            Ok(loader.replay(&Recording::read(file)?))
        }
        _ => Err(Failure::argument("only one of `record`, `recording` and `replay` can be set")),
    }
}

/// Applies the numeric options. Zeros keep the defaults.
fn numbers(mut loader: Loader, given: &em_load_options) -> Result<Loader> {
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
    if given.order != 0 {
        loader = loader.order(order(given.order)?);
    }
    if given.latency != 0 {
        loader = loader.latency(latency(given.latency)?);
    }
    if given.cache != 0 {
        loader = loader.cache(cache(given.cache)?);
    }
    if given.fork != 0 {
        loader = loader.fork(fork(given.fork)?);
    }
    if given.memory_bytes_max != 0 {
        loader = loader.memory_max(given.memory_bytes_max);
    }
    if given.threads != 0 {
        loader = loader.threads(given.threads as usize);
    }
    Ok(loader)
}

/// Converts the advice for a part of an image.
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
        Failure::argument(format!("unknown method `{name}`; the methods are {names}"))
    })
}

fn unknown(field: &str, number: u32) -> Failure {
    Failure::argument(format!("{number} is not a valid `{field}`; see evermap_load.h"))
}
