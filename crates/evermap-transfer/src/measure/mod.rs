//! Measurement of engines on the user's disks.

mod engines;

pub use engines::{Measure, Measurement};
