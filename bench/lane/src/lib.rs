//! Benchmark of lanes: the benefit of each part of a lane for programs with deadlines, and its cost
//! for other programs.
//!
//! From the bottom: `stress` (the load), `ffmpeg` (a real decoder), `watched` (takes a decoder's
//! frames and their times), `child` (runs this program as one of the measured programs), `sections`
//! (questions and tables).

pub mod bench;
pub mod child;
pub mod ffmpeg;
pub mod sections;
pub mod stress;
pub mod watched;

use harness::area::{Area, unknown_child};
use harness::options::{Choices, SUBJECTS};

use crate::bench::Own;

pub const AREA: Area<Own> = Area {
    name: "lane",
    choices: Choices { filters: &[SUBJECTS], command: true, ..Choices::NONE },
    sections: &[
        ("ladder", sections::ladder::report),
        ("cost", sections::cost::report),
        ("hogs", sections::hogs::report),
        ("latency", sections::latency::report),
        ("decoder", sections::decoder::report),
    ],
    start: bench::start,
    child: |_, arguments| match *arguments {
        ["serve"] => evermap_lane::bench::serve().map_err(Into::into),
        ["play", policy, play] => child::play(policy, play),
        ["watch", request] => child::watch(request),
        _ => unknown_child(arguments),
    },
};
