//! Network functions of `evermap_transfer.h`.

use std::ffi::{OsStr, c_char};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::Duration;

use evermap_transfer::net::{Address, Listener, Receive, ReceiveReport, Send};

use crate::abi::arguments::{give_text, path, place};
use crate::abi::failure::{self, Failure, Result};
use crate::abi::types::em_status;
use crate::runtime::{fork, start};
use crate::transfer::choices::Choices;
use crate::transfer::counted::Counted;
use crate::transfer::receivers;
use crate::transfer::report::{Reported, Told};
use crate::transfer::types::{em_transfer_options, em_transfer_report, evermap_receiver};

/// # Safety
/// `address` is null or a text.
unsafe fn address_of(address: *const c_char) -> Result<Address> {
    // SAFETY: the caller guarantees null or a text. An address may be a path, so any bytes are
    // allowed.
    let text = unsafe { path(address) }.map_err(|_| Failure::argument("the address is NULL"))?;
    Ok(Address::parse(text)?)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn evermap_send(
    source: *const c_char,
    address: *const c_char,
    given: *const em_transfer_options,
    report: *mut em_transfer_report,
) -> em_status {
    failure::status(|| {
        fork::check()?;
        // SAFETY: the caller passes texts and structs as the header requires.
        let (source, address, choices, reported) = unsafe {
            (
                path(source)?,
                address_of(address)?,
                Choices::new(given)?,
                Reported::new(report, given)?,
            )
        };
        choices.refuse_others("evermap_send", &["verify", "connections", "raw", "idle_ms"])?;
        let (watch, counted) = (choices.watch(), Counted::default());
        let mut send = Send::new(source)
            .verify(choices.is(|given| given.verify))
            .raw(choices.is(|given| given.raw))
            .cancelled_by(watch.flag())
            .on_progress(counted.teller());
        if let Some(engine) = choices.engine {
            send = send.engine(engine);
        }
        match choices.of(|given| given.connections.into()) {
            0 => {}
            // The library checks the maximum and rejects larger counts.
            many => send = send.connections(u16::try_from(many).unwrap_or(u16::MAX)),
        }
        if let Some(time) = milliseconds(&choices, |given| given.idle_ms) {
            send = send.idle_timeout(time);
        }
        let run = || {
            let sent = send.to(&address)?;
            counted.set(sent.traffic.bytes, sent.traffic.bytes);
            Ok(sent)
        };
        let sent = watch.during(|| counted.get(), run)?;
        reported.give(&Told::sent(&sent, choices.is(|given| given.raw)));
        Ok(())
    })
}

type Received = evermap_transfer::Result<ReceiveReport>;

fn milliseconds(
    choices: &Choices,
    field: impl Fn(&em_transfer_options) -> u32,
) -> Option<Duration> {
    let chosen = choices.of(|given| field(given).into());
    (chosen != 0).then(|| Duration::from_millis(chosen))
}

/// Receives one file into `target` with the connection of `accept`.
fn receive(
    function: &str,
    target: &Path,
    choices: &Choices,
    reported: Reported,
    accept: impl FnOnce(&Receive) -> Received + std::marker::Send,
) -> Result<()> {
    choices.refuse_others(
        function,
        &["durability", "verify", "raw", "discard", "wait_ms", "idle_ms"],
    )?;
    let (watch, counted) = (choices.watch(), Counted::default());
    let mut receive = Receive::new(target)
        .durability(choices.durability()?)
        .verify(choices.is(|given| given.verify))
        .raw(choices.is(|given| given.raw))
        .discard(choices.is(|given| given.discard))
        .cancelled_by(watch.flag())
        .on_progress(counted.teller());
    if let Some(engine) = choices.engine {
        receive = receive.engine(engine);
    }
    if let Some(time) = milliseconds(choices, |given| given.wait_ms) {
        receive = receive.wait_timeout(time);
    }
    if let Some(time) = milliseconds(choices, |given| given.idle_ms) {
        receive = receive.idle_timeout(time);
    }
    let run = || {
        let received = accept(&receive)?;
        counted.set(received.traffic.bytes, received.traffic.bytes);
        Ok(received)
    };
    let received = watch.during(|| counted.get(), run)?;
    reported.give(&Told::received(&received, choices.is(|given| given.raw)));
    Ok(())
}

/// Returns the destination path. It is empty if the data is discarded.
///
/// # Safety
/// `target` is null or a text.
unsafe fn target_of<'a>(target: *const c_char, choices: &Choices) -> Result<&'a Path> {
    match target.is_null() && choices.is(|given| given.discard) {
        true => Ok(Path::new(OsStr::from_bytes(b""))),
        // SAFETY: the caller guarantees null or a text.
        false => unsafe { path(target) },
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn evermap_receive(
    address: *const c_char,
    target: *const c_char,
    given: *const em_transfer_options,
    report: *mut em_transfer_report,
) -> em_status {
    failure::status(|| {
        fork::check()?;
        // SAFETY: the caller passes texts and structs as the header requires.
        let (address, choices, reported) =
            unsafe { (address_of(address)?, Choices::new(given)?, Reported::new(report, given)?) };
        // SAFETY: the caller passes null or a text.
        let target = unsafe { target_of(target, &choices) }?;
        receive("evermap_receive", target, &choices, reported, |receive| receive.on(&address))
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn evermap_listen(
    address: *const c_char,
    receiver: *mut *mut evermap_receiver,
) -> em_status {
    failure::status(|| {
        fork::check()?;
        start::watch();
        // SAFETY: the caller passes null or a text, and null or a writable place.
        let (address, receiver) = unsafe { (address_of(address)?, place(receiver)?) };
        // Each transfer sets its own destination later.
        let listening: Listener = Receive::new("").discard(true).listen(&address)?;
        receiver.write(receivers::insert(listening)?);
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn evermap_receiver_address(
    receiver: *const evermap_receiver,
    buffer: *mut c_char,
    size: usize,
) -> em_status {
    failure::status(|| {
        let receiver = receivers::find(receiver)?;
        // SAFETY: the caller passes a buffer that is writable for its size.
        unsafe { give_text(&receiver.address, buffer, size) }
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn evermap_receiver_next(
    receiver: *mut evermap_receiver,
    target: *const c_char,
    given: *const em_transfer_options,
    report: *mut em_transfer_report,
) -> em_status {
    failure::status(|| {
        let receiver = receivers::find(receiver)?;
        // SAFETY: the caller passes structs as the header requires.
        let (choices, reported) = unsafe { (Choices::new(given)?, Reported::new(report, given)?) };
        // SAFETY: the caller passes null or a text.
        let target = unsafe { target_of(target, &choices) }?;
        let listening = receiver.take()?;
        let listening = &*listening;
        receive("evermap_receiver_next", target, &choices, reported, |receive| {
            listening.next(receive)
        })
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn evermap_receiver_close(receiver: *mut evermap_receiver) -> em_status {
    failure::status(|| receivers::remove(receiver))
}
