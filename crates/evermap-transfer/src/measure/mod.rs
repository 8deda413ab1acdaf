//! Measuring on the user's own disk: what each engine does there.

mod engines;

pub use engines::{Cell, Measure};
