//! Measuring on the user's own disk: what a device can do, and what each engine does there.

mod device;
mod engines;

pub use device::{DeviceRates, device_rates};
pub use engines::{Cell, Measure};
