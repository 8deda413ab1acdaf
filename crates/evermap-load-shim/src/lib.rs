//! Library between an unmodified program and the C library. `evermap-load` loads what the program
//! maps or reads of files that match a rule.
//!
//! `docs/load.md`, "The shim", lists the intercepted calls and the guarantees. Modules from the
//! bottom: `real` has the replaced functions, `inside` prevents recursion, `lock` survives forks,
//! `table` maps addresses to images, `settings` has the rules, `line` is a line of the report,
//! `loading` owns the images, `report` writes the rest at the end, `images` and `reads` do the
//! work, and `hooks` are the functions that the program calls.
//!
//! Two rules apply everywhere. A call that does not concern the shim costs one or two comparisons.
//! On any failure, the program gets the result of the C library.

mod forks;
mod hooks;
mod images;
mod inside;
mod line;
mod loading;
mod lock;
mod maps;
mod reads;
mod real;
mod report;
mod settings;
mod streams;
mod table;

/// Runs before `main`, with a single thread.
extern "C" fn begin() {
    let _ = inside::within(|| {
        real::find_all();
        if settings::read() {
            forks::watch();
        }
    });
}

/// Runs at `exit`, but not at `_exit` or after a signal.
extern "C" fn end() {
    let _ = inside::within(report::write_rest);
}

#[used]
#[unsafe(link_section = ".init_array")]
static BEGIN: extern "C" fn() = begin;

#[used]
#[unsafe(link_section = ".fini_array")]
static END: extern "C" fn() = end;
