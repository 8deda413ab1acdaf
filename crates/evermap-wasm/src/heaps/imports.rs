//! The five functions that guests import.

use wasmtime::{Caller, Linker, Result};

use super::Heaps;
use super::linear::CallerMemory;
use crate::codes::Refusal;
use crate::report::Import;

/// Name of the module from which guests import them.
const MODULE: &str = "evermap";

/// Adds the imports to a linker. `heaps` finds the heaps in an instance's state.
pub(crate) fn add_to_linker<T: 'static>(
    linker: &mut Linker<T>,
    heaps: impl Fn(&mut T) -> &mut Heaps + Copy + Send + Sync + 'static,
) -> Result<()> {
    linker.func_wrap(
        MODULE,
        "map",
        move |mut caller: Caller<'_, T>, name: u32, name_bytes: u32, bytes: u32, level: u32| {
            serve(&mut caller, heaps, Import::Map, |heaps, memory| {
                heaps.map(memory, name, name_bytes, bytes, level)
            })
        },
    )?;
    linker.func_wrap(MODULE, "unmap", move |mut caller: Caller<'_, T>, address: u32| {
        serve(&mut caller, heaps, Import::Unmap, |heaps, _| heaps.unmap(address))
    })?;
    linker.func_wrap(MODULE, "commit", move |mut caller: Caller<'_, T>, address: u32| {
        serve(&mut caller, heaps, Import::Commit, |heaps, _| heaps.commit(address))
    })?;
    linker.func_wrap(
        MODULE,
        "stat",
        move |mut caller: Caller<'_, T>, address: u32, out: u32, out_bytes: u32| {
            serve(&mut caller, heaps, Import::Stat, |heaps, memory| {
                heaps.stat(memory, address, out, out_bytes)
            })
        },
    )?;
    linker.func_wrap(
        MODULE,
        "last_fault",
        move |mut caller: Caller<'_, T>, out: u32, out_bytes: u32| {
            serve(&mut caller, heaps, Import::LastFault, |heaps, memory| {
                heaps.last_fault(memory, out, out_bytes)
            })
        },
    )?;
    Ok(())
}

fn serve<T: 'static>(
    caller: &mut Caller<'_, T>,
    heaps: impl Fn(&mut T) -> &mut Heaps,
    import: Import,
    call: impl FnOnce(&mut Heaps, &CallerMemory) -> std::result::Result<u32, Refusal>,
) -> i32 {
    let memory = CallerMemory::of(caller);
    let heaps = heaps(caller.data_mut());
    let memory = if heaps.linear().is_some() { memory } else { memory.without_window() };
    heaps.counts.count(import);
    let result = call(heaps, &memory);
    heaps.answer(result)
}
