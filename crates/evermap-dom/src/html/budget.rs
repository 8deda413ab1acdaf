//! Work budget of one HTML parse.
//!
//! The HTML standard searches the stack of open elements and the list of active formatting elements
//! repeatedly, so hostile pages take quadratic time. Every search calls the sink, which counts it
//! here. The budget grows with the input: a page within it is parsed in linear time, another page
//! ends with an error that has the place. The budget uses no clock, so the same page always ends
//! the same way.

use std::cell::Cell;

/// Units of every page, however short.
const UNITS_MIN: u64 = 64_000_000;
/// Units for each byte of text.
const UNITS_PER_BYTE: u64 = 12;
/// Units for creating an element, which costs about as much as this many comparisons and takes 80
/// bytes.
const ELEMENT_UNITS: u64 = 32;
/// Units for an attribute without its value.
const ATTRIBUTE_UNITS: u64 = 8;
/// Below this many live handles, comparing a new formatting element with the active ones is cheap.
const FEW_HANDLES: u64 = 128;
/// Units per attribute for comparing the attributes of two tags.
const TAG_COMPARISON_UNITS: u64 = 32;
/// Maximum number of attributes in one tag. The tokenizer compares each name with all earlier ones.
pub(super) const ATTRIBUTES_MAX: usize = 8_000;

/// Panic payload that unwinds out of html5ever in the middle of a token.
pub(super) struct OutOfWork;

/// Used and available units.
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

    /// Returns the units available for the text so far.
    pub(super) fn units_max(&self) -> u64 {
        self.units_max.get()
    }

    /// Returns the used units.
    #[cfg(test)]
    pub(super) fn spent(&self) -> u64 {
        self.spent.get()
    }

    /// Returns true if the budget is used up. Then parsing stops at the next token.
    pub(super) fn is_spent(&self) -> bool {
        self.spent.get() > self.units_max.get()
    }

    /// Counts units.
    ///
    /// Unwinds with [`OutOfWork`] when the budget is used up, because a single token can take time
    /// quadratic in the tree's depth. With `panic = "abort"`, the token is finished first.
    #[inline]
    pub(super) fn spend(&self, units: u64) {
        self.spent.set(self.spent.get().saturating_add(units));
        if self.is_spent() {
            stop();
        }
    }

    /// Counts a tag of the tokenizer, which compares each attribute's name with all earlier ones.
    pub(super) fn spend_tag(&self, attributes: usize) {
        let attributes = attributes as u64;
        self.spend(1 + attributes * attributes);
    }

    /// Counts a new element with attributes of `bytes` bytes.
    pub(super) fn spend_element(&self, attributes: usize, value_bytes: usize) {
        self.spend(ELEMENT_UNITS + attributes as u64 * ATTRIBUTE_UNITS + value_bytes as u64);
    }

    /// Counts a new formatting element. html5ever compares its tag with all active ones without
    /// calling the sink. `handles` counts the open and the active elements together.
    pub(super) fn spend_formatting(&self, attributes: usize, handles: u64) {
        let many = handles.saturating_sub(FEW_HANDLES);
        let each = TAG_COMPARISON_UNITS * (1 + attributes as u64);
        self.spend(handles.saturating_add(many.saturating_mul(each)));
    }

    /// Counts a comparison of two nodes. If handles disappeared since the last comparison, elements
    /// were removed from the middle of a list, which moves all later ones.
    #[inline]
    pub(super) fn spend_comparison(&self, handles: u64) {
        let gone = self.handles_before.replace(handles).saturating_sub(handles);
        self.spend(1 + gone.saturating_mul(handles));
    }
}

#[cold]
fn stop() {
    // No message: the driver catches this unwinding, which is not an error.
    if cfg!(panic = "unwind") && !std::thread::panicking() {
        std::panic::resume_unwind(Box::new(OutOfWork));
    }
}
