//! The namespace declarations in scope.
//!
//! A stack, innermost last. Ordinary documents have few declarations in scope, and a linear search
//! is fastest. Hostile documents declare a namespace at every level, so above a limit a table finds
//! the innermost declaration of a prefix.

use std::collections::HashMap;
use std::rc::Rc;

use crate::layout::NONE;
use crate::names::NAMESPACE_XML;

/// Up to this number the search is linear.
const FEW: usize = 16;

/// A declaration, and the index of the declaration of the same prefix that it hides.
struct Binding {
    prefix: Rc<str>,
    namespace: u32,
    hidden: u32,
}

pub(super) struct Bindings {
    stack: Vec<Binding>,
    /// Returns the index of the innermost declaration of a prefix.
    innermost: HashMap<Rc<str>, u32>,
}

impl Bindings {
    /// The declarations of every document.
    pub(super) fn new() -> Bindings {
        let mut bindings = Bindings { stack: Vec::new(), innermost: HashMap::new() };
        bindings.push("xml", NAMESPACE_XML);
        bindings
    }

    pub(super) fn len(&self) -> usize {
        self.stack.len()
    }

    /// Adds a declaration.
    pub(super) fn push(&mut self, prefix: &str, namespace: u32) {
        let prefix: Rc<str> = prefix.into();
        let place = self.stack.len() as u32;
        let hidden = self.innermost.insert(Rc::clone(&prefix), place).unwrap_or(NONE);
        self.stack.push(Binding { prefix, namespace, hidden });
    }

    /// Removes all but the first `len` declarations.
    pub(super) fn truncate(&mut self, len: usize) {
        while self.stack.len() > len
            && let Some(binding) = self.stack.pop()
        {
            match binding.hidden {
                NONE => self.innermost.remove(&binding.prefix),
                hidden => self.innermost.insert(binding.prefix, hidden),
            };
        }
    }

    /// Returns the namespace of a prefix.
    pub(super) fn of(&self, prefix: &str) -> Option<u32> {
        if self.stack.len() <= FEW {
            let found = self.stack.iter().rev().find(|binding| *binding.prefix == *prefix);
            return found.map(|binding| binding.namespace);
        }
        let place = *self.innermost.get(prefix)?;
        Some(self.stack[place as usize].namespace)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_innermost_declaration_of_a_prefix_is_used() {
        for around in [0, 2 * FEW] {
            let mut bindings = Bindings::new();
            for number in 0..around {
                bindings.push(&format!("other{number}"), 50);
            }
            let outside = bindings.len();
            bindings.push("a", 10);
            bindings.push("", 11);
            let inside = bindings.len();
            bindings.push("a", 12);
            assert_eq!(
                [bindings.of("a"), bindings.of(""), bindings.of("b")],
                [Some(12), Some(11), None]
            );
            bindings.truncate(inside);
            assert_eq!(bindings.of("a"), Some(10));
            bindings.truncate(outside);
            assert_eq!([bindings.of("a"), bindings.of("xml")], [None, Some(NAMESPACE_XML)]);
        }
    }
}
