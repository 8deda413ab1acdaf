//! The verbs, one file each: the arguments, and a few library calls.

mod bench;
mod command;
mod completions;
mod copy;
mod demo;
mod freeze;
mod generate;
mod info;
mod lane;
mod load;
mod ls;
mod mv;
mod parse;
mod query;
mod receive;
mod rm;
mod sandbox;
mod send;
mod store;
mod transfer;
#[cfg(feature = "view")]
mod view;

pub use bench::Bench;
pub use completions::Completions;
pub use copy::Copy;
pub use demo::Demo;
pub use freeze::Freeze;
pub use generate::Generate;
pub use info::Info;
pub use lane::Lane;
pub use load::Load;
pub use ls::Ls;
pub use mv::Mv;
pub use parse::Parse;
pub use query::Query;
pub use receive::ReceiveFile;
pub use rm::Rm;
pub use sandbox::Sandbox;
pub use send::SendFile;
pub use store::{Store, Verb as StoreVerb};
#[cfg(feature = "view")]
pub use view::{Prefetch, Render, View};
