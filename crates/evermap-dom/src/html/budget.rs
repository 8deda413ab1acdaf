//! Work budget of one HTML parse.
//!
//! The HTML standard asks for the stack of open elements and the list of active formatting elements
//! to be searched again and again, so hostile pages cost time by the square of their length. Every
//! search calls the sink, which counts it here. The budget grows with the input: a page that stays
//! within it is parsed in time linear in its length, and another one ends with an error that names
//! the place. Nothing here looks at a clock, so the same page always ends the same way.

use std::cell::Cell;

/// Units that any page has, however short.
const UNITS_MIN: u64 = 64_000_000;
/// Units for each byte of text.
const UNITS_PER_BYTE: u64 = 12;
/// Creating an element costs about as much as this many comparisons, and takes 80 bytes.
const ELEMENT_UNITS: u64 = 32;
/// An attribute, without its value.
const ATTRIBUTE_UNITS: u64 = 8;
/// Below this many live handles, comparing a new formatting element with the active ones is cheap.
const FEW_HANDLES: u64 = 128;
/// Comparing the attributes of two tags, for each attribute.
const TAG_COMPARISON_UNITS: u64 = 32;
/// Attributes in one tag. The tokenizer compares each name with all before it.
pub(super) const ATTRIBUTES_MAX: usize = 8_000;

/// Payload of the unwinding that leaves html5ever in the middle of a token.
pub(super) struct OutOfWork;

/// Units spent, and how many there are.
#[derive(Debug)]
pub(super) struct Budget {
    spent: Cell<u64>,
    units_max: Cell<u64>,
    /// Live handles when two nodes were last compared.
    handles_before: Cell<u64>,
}

impl Budget {
    pub(super) fn new() -> Budget {
        let units_max = Cell::new(UNITS_MIN);
        Budget { spent: Cell::new(0), units_max, handles_before: Cell::new(0) }
    }

    /// Adds the units of text that is about to be parsed.
    pub(super) fn allow(&self, bytes: usize) {
        self.units_max.set(self.units_max.get().saturating_add(bytes as u64 * UNITS_PER_BYTE));
    }

    /// Units there are for the text so far.
    pub(super) fn units_max(&self) -> u64 {
        self.units_max.get()
    }

    /// Units that were used.
    #[cfg(test)]
    pub(super) fn spent(&self) -> u64 {
        self.spent.get()
    }

    /// Returns true if the budget is used up. Parsing stops at the next token then.
    pub(super) fn is_spent(&self) -> bool {
        self.spent.get() > self.units_max.get()
    }

    /// Counts units.
    ///
    /// Unwinds with [`OutOfWork`] when the budget is used up, for a single token can cost the square
    /// of the tree's depth. Where panics abort, the token is finished first.
    #[inline]
    pub(super) fn spend(&self, units: u64) {
        self.spent.set(self.spent.get().saturating_add(units));
        if self.is_spent() {
            stop();
        }
    }

    /// A tag of the tokenizer, which compared each attribute's name with those before it.
    pub(super) fn spend_tag(&self, attributes: usize) {
        let attributes = attributes as u64;
        self.spend(1 + attributes * attributes);
    }

    /// A new element with attributes of so many bytes.
    pub(super) fn spend_element(&self, attributes: usize, value_bytes: usize) {
        self.spend(ELEMENT_UNITS + attributes as u64 * ATTRIBUTE_UNITS + value_bytes as u64);
    }

    /// A new formatting element, whose tag html5ever compares with those of all active ones without
    /// a call of the sink. `handles` are the open and the active elements together.
    pub(super) fn spend_formatting(&self, attributes: usize, handles: u64) {
        let many = handles.saturating_sub(FEW_HANDLES);
        let each = TAG_COMPARISON_UNITS * (1 + attributes as u64);
        self.spend(handles.saturating_add(many.saturating_mul(each)));
    }

    /// Two nodes are compared. Where handles went since the last time, elements were taken out of
    /// the middle of a list, which moves all behind them.
    #[inline]
    pub(super) fn spend_comparison(&self, handles: u64) {
        let gone = self.handles_before.replace(handles).saturating_sub(handles);
        self.spend(1 + gone.saturating_mul(handles));
    }
}

#[cold]
fn stop() {
    // No message: this is no panic, and the driver catches it.
    if cfg!(panic = "unwind") && !std::thread::panicking() {
        std::panic::resume_unwind(Box::new(OutOfWork));
    }
}
