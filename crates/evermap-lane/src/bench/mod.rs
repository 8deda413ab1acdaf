//! Measures the effect of each part of a lane: a clip, a player, and a ladder of rungs under the
//! same load.
//!
//! The benchmark starts its own program again for players and load, so `main` must call [`serve`]
//! when it gets the [`Launcher`]'s arguments. Nothing remains afterwards: files are unnamed, and
//! all processes end with the one that started them.

mod background;
mod child;
pub mod clip;
mod drawing;
mod ladder;
mod player;
mod results;
mod rung;

pub use background::{Load, Units};
pub use child::{Launcher, serve};
pub use clip::Clip;
pub use ladder::Ladder;
pub use player::{PRESETS, Play, Played, Preset, play, play_until};
pub use results::{Cell, Results};
pub use rung::{Rung, Subject, Turn};
