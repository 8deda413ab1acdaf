//! Was a module linked so that objects have room in its memory?
//!
//! Data above the window mean that the module's own heap, which begins behind its data, never
//! reaches into it. Data in the window, or below it and nowhere above, mean that it will.

use evermap::guest::GuestWindow;
use wasmtime::wasmparser::{DataKind, Operator, Parser, Payload};

/// Why objects cannot be mapped into instances of a module; none if they can.
pub(crate) fn objection(wasm: &[u8]) -> Option<String> {
    let window = GuestWindow::default().addresses();
    let mut highest_end = None;
    for payload in Parser::new(0).parse_all(wasm) {
        // What is no module is refused where it is compiled.
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
