//! A library that stands between an unmodified program and the C library: what the program maps or reads of files that rules name, `evermap-load`
//! loads.
//!
//! `docs/load.md`, "The shim", says what is caught and what is promised. From the bottom: `real` are the functions that are stood in front of,
//! `inside` keeps the shim from catching itself, `lock` survives forks, `table` is which addresses are images, `settings` what is loaded,
//! `report` what is told of it, `images` and `reads` do the work, `hooks` are what the program calls.
//!
//! Two rules hold everywhere. A call that is none of our business costs a comparison or two. And whatever goes wrong here, the program gets what the C
//! library would have given it.

mod forks;
mod hooks;
mod images;
mod inside;
mod loading;
mod lock;
mod maps;
mod reads;
mod real;
mod report;
mod settings;
mod streams;
mod table;

/// Before `main`, when there is one thread.
extern "C" fn begin() {
    let _ = inside::within(|| {
        real::find_all();
        if settings::read() {
            forks::watch();
        }
    });
}

/// After `main`, by `exit`; never by `_exit` or a signal.
extern "C" fn end() {
    let _ = inside::within(report::tell_rest);
}

#[used]
#[unsafe(link_section = ".init_array")]
static BEGIN: extern "C" fn() = begin;

#[used]
#[unsafe(link_section = ".fini_array")]
static END: extern "C" fn() = end;
