//! Sends and receives a file between two processes, over one connection or several.
//!
//! Evermap's protocol is specified in `docs/transfer-protocol.md`: bytes, states and guarantees. It
//! preserves holes, mode and times, can use several connections in parallel, and a sender succeeds
//! only when the receiver has published the file. Raw bytes can be exchanged with other programs.
//!
//! Connections are neither encrypted nor authenticated: use them within one machine, in a trusted
//! network, or through a tunnel.

mod address;
mod connect;
mod digest;
mod engine_chain;
mod parallel;
mod receive;
mod report;
mod send;
mod socket;
mod unclaimed;
mod watch;
mod wire;

use std::time::Duration;

pub use address::Address;
pub use receive::{Listener, Receive};
pub use report::{Connection, ReceiveReport, SendReport, Traffic};
pub use send::Send;

/// Timeout for connecting, and for each answer before the first byte.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// Timeout without any byte moving.
const IDLE_TIMEOUT: Duration = Duration::from_secs(60);
