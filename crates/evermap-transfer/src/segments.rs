//! Full segments on TCP connections (`TCP_CORK`).

use std::os::fd::BorrowedFd;

use rustix::net::sockopt;

use crate::end::{Ends, Kind};

/// Sets `TCP_CORK` on a TCP connection while it lives. The connection then sends only full
/// segments; the rest is sent on drop.
///
/// Without it, each acknowledgement sends the incomplete segment, and each segment wakes the
/// receiver. With it, 1 GiB over loopback takes a tenth less processor time, and 40 % less with
/// congestion control that paces segments.
#[derive(Debug)]
pub(crate) struct FullSegments<'a> {
    socket: Option<BorrowedFd<'a>>,
}

impl<'a> FullSegments<'a> {
    /// Sets the option on the target of `ends` if that is a TCP connection and the source is a
    /// file. A source that produces bytes over time may have a reader waiting for each.
    pub(crate) fn of(ends: &Ends<'a>) -> FullSegments<'a> {
        let applies = ends.target.kind() == Kind::Socket && ends.source.kind() == Kind::File;
        // Fails on other sockets. If the caller set the option already, the caller clears it.
        let is_set = |socket: &BorrowedFd<'_>| {
            sockopt::tcp_cork(socket) == Ok(false) && sockopt::set_tcp_cork(socket, true).is_ok()
        };
        FullSegments { socket: applies.then(|| ends.target.fd()).filter(is_set) }
    }
}

impl Drop for FullSegments<'_> {
    fn drop(&mut self) {
        if let Some(socket) = self.socket {
            // A failure means that the connection is broken.
            let _ = sockopt::set_tcp_cork(socket, false);
        }
    }
}
