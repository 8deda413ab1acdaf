//! Power cuts and kills of a whole machine: a Debian kernel in QEMU, whose disk is recorded.
//!
//! The same program runs outside and inside. Outside, `machine` boots the kernel, kills it, and reads
//! what it says; inside, `guest` commits or copies numbered states, replays the recorded disk up to a cut and
//! judges what is left of them. `scripts/test-vm.sh` (`make test-vm`) gets the machine's parts;
//! without them only the tests of the log's parser run.
#![allow(clippy::unwrap_used)]

mod copies;
mod disk_log;
mod guest;
mod layout;
mod machine;
mod random;
mod states;
