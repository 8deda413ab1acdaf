//! The five functions that guests import, and no more.

use wasmtime::{Caller, Linker, Memory, Result};

use super::Heaps;
use crate::codes::Refusal;
use crate::report::Import;

/// The module that they are imported from.
const MODULE: &str = "evermap";

/// Adds the imports for instances whose state has its heaps where `heaps` says.
pub(crate) fn add_to_linker<T: 'static>(
    linker: &mut Linker<T>,
    heaps: impl Fn(&mut T) -> &mut Heaps + Copy + Send + Sync + 'static,
) -> Result<()> {
    linker.func_wrap(
        MODULE,
        "map",
        move |mut caller: Caller<'_, T>, name: u32, name_bytes: u32, bytes: u32, level: u32| {
            serve(&mut caller, heaps, Import::Map, |heaps| {
                heaps.map(name, name_bytes, bytes, level)
            })
        },
    )?;
    linker.func_wrap(MODULE, "unmap", move |mut caller: Caller<'_, T>, address: u32| {
        serve(&mut caller, heaps, Import::Unmap, |heaps| heaps.unmap(address))
    })?;
    linker.func_wrap(MODULE, "commit", move |mut caller: Caller<'_, T>, address: u32| {
        serve(&mut caller, heaps, Import::Commit, |heaps| heaps.commit(address))
    })?;
    linker.func_wrap(
        MODULE,
        "stat",
        move |mut caller: Caller<'_, T>, address: u32, out: u32, out_bytes: u32| {
            serve(&mut caller, heaps, Import::Stat, |heaps| heaps.stat(address, out, out_bytes))
        },
    )?;
    linker.func_wrap(
        MODULE,
        "last_fault",
        move |mut caller: Caller<'_, T>, out: u32, out_bytes: u32| {
            serve(&mut caller, heaps, Import::LastFault, |heaps| heaps.last_fault(out, out_bytes))
        },
    )?;
    Ok(())
}

fn serve<T: 'static>(
    caller: &mut Caller<'_, T>,
    heaps: impl Fn(&mut T) -> &mut Heaps,
    import: Import,
    call: impl FnOnce(&mut Heaps) -> std::result::Result<u32, Refusal>,
) -> i32 {
    let bytes = memory_of(caller).map(|memory| memory.data_size(&*caller));
    let heaps = heaps(caller.data_mut());
    heaps.counts.count(import);
    if let (Some(linear), Some(bytes)) = (&mut heaps.linear, bytes) {
        linear.set_bytes(bytes);
    }
    let result = call(heaps);
    heaps.answer(result)
}

/// The caller's memory, which a program of C or Rust exports by this name.
fn memory_of<T>(caller: &mut Caller<'_, T>) -> Option<Memory> {
    caller.get_export("memory")?.into_memory()
}
