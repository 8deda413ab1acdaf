//! The receiver's reason for refusing or giving up a transfer, as an error with a remedy.

use std::time::Duration;

use crate::error::Error;
use crate::net::socket::Socket;
use crate::net::wire::Reason;

/// Creates the error for the receiver's reason.
pub(super) fn refused(socket: &Socket, reason: Reason, text: &str) -> Error {
    let remedy = match reason {
        Reason::NoSpace => "free space there or receive elsewhere",
        Reason::Busy => "try again later",
        Reason::NewerVersion => "update the receiver",
        Reason::Cancelled => "restart the receiver and send again",
        Reason::Malformed | Reason::SourceChanged | Reason::Differs | Reason::Other => {
            "check the receiver's messages"
        }
    };
    Error::PeerRefused {
        address: socket.address().into(),
        why: format!("{text}; nothing was kept: {remedy}"),
    }
}

/// Returns the receiver's reason for giving up, if it arrives within `time`.
pub(super) fn failure_reason(socket: &Socket, time: Duration) -> Option<Error> {
    let (reason, _, text) = socket.read_failure(time)?;
    Some(refused(socket, reason, &text))
}
