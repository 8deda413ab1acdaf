//! Checks that a module was linked so that its memory has room for objects.
//!
//! A module's own heap begins after its data. With data above the window, the heap never grows into
//! the window. With data in the window, or only below it, the heap would.

use evermap::guest::GuestWindow;
use wasmtime::wasmparser::{DataKind, Operator, Parser, Payload};

use crate::budget::TABLE_ELEMENT_BYTES;
use crate::codes::{Code, Refusal};

/// Remedy for a module that was linked without the window. wasm-ld 14, the default of Debian 12,
/// ignores `--global-base` when `--stack-first` is given.
const REMEDY: &str = "link it with --global-base=1342177280 (C: `-Wl,--global-base=1342177280`, and with wasm-ld 14 no `--stack-first`, which makes it ignore the base; Rust: `-C link-arg=--global-base=1342177280`)";

/// Builds the error for a module whose memory has no room for objects.
pub(crate) fn refusal(why: &str) -> Refusal {
    Refusal::new(Code::MemoryLayout, format!("{why}; {REMEDY}"))
}

/// Returns the bytes of memories and tables that an instance takes from the budget at its start.
pub(crate) fn initial_bytes(wasm: &[u8]) -> u64 {
    let mut bytes = 0u64;
    for payload in Parser::new(0).parse_all(wasm) {
        match payload {
            Ok(Payload::MemorySection(section)) => {
                for memory in section.into_iter().flatten() {
                    let page_bytes = 1u64 << memory.page_size_log2.unwrap_or(16).min(63);
                    bytes = bytes.saturating_add(memory.initial.saturating_mul(page_bytes));
                }
            }
            Ok(Payload::TableSection(section)) => {
                for table in section.into_iter().flatten() {
                    let table_bytes = table.ty.initial.saturating_mul(TABLE_ELEMENT_BYTES as u64);
                    bytes = bytes.saturating_add(table_bytes);
                }
            }
            Ok(_) => {}
            // Invalid modules are rejected at compile time.
            Err(_) => break,
        }
    }
    bytes
}

/// Returns the reason why a module's instances cannot map objects, or `None` if they can.
pub(crate) fn layout_error(wasm: &[u8]) -> Option<String> {
    let window = GuestWindow::default().addresses();
    let mut highest_end = None;
    for payload in Parser::new(0).parse_all(wasm) {
        // Invalid modules are rejected at compile time.
        let Ok(payload) = payload else { return None };
        let Payload::DataSection(section) = payload else { continue };
        for data in section.into_iter().flatten() {
            let DataKind::Active { offset_expr, .. } = data.kind else { continue };
            let Some(Ok(Operator::I32Const { value })) =
                offset_expr.get_operators_reader().into_iter().next()
            else {
                continue;
            };
            let start = u64::from(value as u32);
            let end = start + data.data.len() as u64;
            if start < window.end && end > window.start {
                return Some(format!(
                    "the module has data at {start:#x}, in the window {:#x}..{:#x}",
                    window.start, window.end
                ));
            }
            highest_end = highest_end.max(Some(end));
        }
    }
    let below = highest_end.is_some_and(|end| end <= window.start);
    below.then(|| format!("the module's data end at {:#x}", highest_end.unwrap_or(0)))
}
