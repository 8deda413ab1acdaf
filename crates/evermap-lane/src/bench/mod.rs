//! What each part of a lane brings, measured: a clip, a player, and a ladder of rungs beside the same load.
//!
//! A program that measures starts itself again for the players and for the load, so its own `main` has to call [`serve`] when it is started with the
//! [`Launcher`]'s arguments. Nothing is left behind: the files have no names, and all processes end with the one that started them.

mod background;
mod child;
pub mod clip;
#[cfg(feature = "plots")]
mod drawing;
mod ladder;
mod player;
mod results;
mod rung;

pub use background::{Load, Units};
pub use child::{Launcher, serve};
pub use clip::Clip;
pub use ladder::{Ladder, Subject, Turn};
pub use player::{PRESETS, Play, Played, Preset, play, play_until};
pub use results::{Cell, Results};
pub use rung::Rung;
