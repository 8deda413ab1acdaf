//! Power failures and kills of a whole machine: a Debian kernel in QEMU with a recorded disk.
//!
//! The same program runs outside and inside. Outside, `machine` boots the kernel, kills it, and
//! reads its output. Inside, `guest` commits or copies numbered states, replays the recorded disk
//! up to a crash point and judges the remaining states. `scripts/test-vm.sh` (`make test-vm`)
//! prepares the machine's parts; without them only the tests of the log's parser run.
#![allow(clippy::unwrap_used)]

mod copies;
mod disk_log;
mod guest;
mod layout;
mod machine;
mod random;
mod states;
