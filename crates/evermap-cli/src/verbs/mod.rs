//! The verbs, one file each: the arguments, and a few library calls.

mod audit;
mod backup;
mod bench;
mod check;
mod command;
mod completions;
mod copy;
mod demo;
mod export;
mod info;
mod lane;
mod load;
mod ls;
mod map;
mod mv;
mod parse;
mod query;
mod rebase;
mod receive;
mod restore;
mod rm;
mod sandbox;
mod send;
mod stats;
mod transfer;
#[cfg(feature = "view")]
mod view;

pub use audit::Audit;
pub use backup::Backup;
pub use bench::Bench;
pub use check::Check;
pub use completions::Completions;
pub use copy::Copy;
pub use demo::Demo;
pub use export::{Export, Import};
pub use info::Info;
pub use lane::Lane;
pub use load::Load;
pub use ls::Ls;
pub use map::Map;
pub use mv::Mv;
pub use parse::Parse;
pub use query::Query;
pub use rebase::Rebase;
pub use receive::ReceiveFile;
pub use restore::Restore;
pub use rm::Rm;
pub use sandbox::Sandbox;
pub use send::SendFile;
pub use stats::Stats;
#[cfg(feature = "view")]
pub use view::{Prefetch, Render, View};
