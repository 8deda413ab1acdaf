//! Measures transfers: every engine of `evermap copy`, `send` and `receive`, and widely used
//! copying programs, each step a new process in the same run.
//!
//! The head of each file in `sections` says what it measures and how. From the bottom, above
//! the harness: `corpus` (data to copy), `subjects` (copying programs), `compete` (runs subjects
//! in turns and checks their copies), `network` (transfers through sockets), and the sections with
//! their tables and plots.

pub mod bench;
pub mod check;
pub mod compete;
pub mod corpus;
pub mod in_process;
pub mod network;
pub mod nginx;
pub mod sections;
pub mod subjects;

use harness::area::{Area, unknown_child};
use harness::options::{Choices, Filter, SUBJECTS};
use harness::units::{GIB, KIB, MIB};

use crate::bench::Own;

/// `goals` is last, because it uses results of the others.
pub const AREA: Area<Own> = Area {
    name: "transfer",
    choices: Choices {
        filters: &[
            SUBJECTS,
            Filter {
                name: "file-systems",
                known: &["ext4", "xfs", "btrfs", "tmpfs"],
                what: "file systems",
            },
            Filter {
                name: "states",
                known: &["warm", "cold", "unsynced", "synced"],
                what: "states",
            },
        ],
        sizes_quick_bytes: &[4 * KIB, 64 * MIB, GIB],
        command: true,
        ..Choices::NONE
    },
    sections: &[
        ("files", sections::files::report),
        ("pipes", sections::pipes::report),
        ("copies", sections::copies::report),
        ("sockets", sections::sockets::report),
        ("goals", sections::goals::report),
    ],
    start: bench::start,
    child: |_, arguments| unknown_child(arguments),
};
