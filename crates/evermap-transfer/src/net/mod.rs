//! Between two ends over a network: sending and receiving one file, over one connection or several.
//!
//! Two Evermap ends speak a protocol, of which `docs/transfer-protocol.md` has the bytes, the states and the promises: holes,
//! mode and times arrive as well, spans may go over several connections at a time, and a sender's success means that the
//! receiver has published the file. To other programs raw bytes are sent, and from them received.
//!
//! Nothing is encrypted, and nobody is asked who they are: for this machine, for networks that are trusted, or through a
//! tunnel.

mod account;
mod address;
mod carrier;
mod connect;
mod digest;
mod parallel;
mod receive;
mod report;
mod send;
mod socket;
mod watch;
mod wire;

use std::time::Duration;

use rustix::io::Errno;

pub use address::Address;
pub use receive::{Listening, Receive};
pub use report::{Connection, ReceiveReport, SendReport, Traffic};
pub use send::Send;

/// How long connecting may take, and each answer before the first byte.
const HANDSHAKE: Duration = Duration::from_secs(10);

/// How long nothing may move.
const IDLE: Duration = Duration::from_secs(60);

/// Makes a call until no signal interrupts it.
fn again<T>(mut call: impl FnMut() -> Result<T, Errno>) -> Result<T, Errno> {
    loop {
        match call() {
            Err(Errno::INTR) => {}
            other => return other,
        }
    }
}
