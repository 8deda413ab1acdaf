//! Benchmark of loading a file. Each measured load is a new process: this program itself as a child
//! (`child`), or Python.
//!
//! From the bottom: `work` (touches a loaded file), `corpus` (the files), `child` (one load,
//! measured from inside), `subjects` (the ways to load), `compete` (subjects in turns) and
//! `together` (several loads at once), `group` (a memory limit), `sections` (questions and tables).

pub mod bench;
pub mod child;
pub mod compete;
pub mod corpus;
pub mod group;
pub mod sections;
pub mod subjects;
pub mod together;
pub mod work;

use harness::area::{Area, unknown_child};
use harness::options::{Choices, Filter, SUBJECTS};
use harness::units::MIB;

use crate::bench::Own;

/// `finish` is last, because its goals use results of the others.
pub const AREA: Area<Own> = Area {
    name: "load",
    choices: Choices {
        filters: &[
            SUBJECTS,
            Filter {
                name: "file-systems",
                known: &["ext4", "xfs", "btrfs", "squashfs", "erofs", "erofs-lz4hc", "tmpfs"],
                what: "file systems",
            },
            Filter {
                name: "states",
                known: &["cold", "warm", "read", "written", "sequential", "random"],
                what: "states",
            },
            Filter {
                name: "shares",
                known: &["10", "25", "50", "100"],
                what: "shares of a file, in percent",
            },
        ],
        sizes_quick_bytes: &[4 * MIB],
        full: Some("`systems` with files of 1 GiB, too"),
        ..Choices::NONE
    },
    sections: &[
        ("cells", sections::cells::report),
        ("systems", sections::systems::report),
        ("study", sections::study::report),
        ("loaders", sections::loaders::report),
        ("finish", sections::finish::report),
    ],
    start: bench::start,
    child: |_, arguments| match *arguments {
        ["load", ..] => child::load(arguments),
        ["rate", file] => child::rate::print(file.as_ref()),
        _ => unknown_child(arguments),
    },
};
