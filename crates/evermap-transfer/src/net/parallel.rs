//! Runs a thread per connection, with one outcome for all.

use std::sync::{Mutex, PoisonError};

use super::report::Connection;
use super::socket::Socket;
use super::watch::{Direction, start};
use crate::error::Result;
use crate::report::NotUsed;

/// Result of one connection, with the engines refused there.
pub(super) type ConnectionResult = (Connection, Vec<NotUsed>);

/// Results of all connections.
pub(super) type AllResults = (Vec<Connection>, Vec<NotUsed>);

/// Runs `one` for each socket, the first one in this thread. The first error shuts down all
/// connections and is returned; later errors are its consequences.
pub(super) fn on_each<E: Send>(
    sockets: &[Socket],
    direction: Direction,
    one: impl Fn(&Socket) -> Result<ConnectionResult, E> + Sync,
) -> Result<Result<AllResults, E>> {
    let failure = Mutex::new(None);
    let end = || sockets.iter().for_each(|socket| direction.shut(socket));
    let guarded = |socket: &Socket| {
        let noted = |error| {
            failure.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
            end();
        };
        one(socket).map_err(noted).ok()
    };
    let guarded = &guarded;
    let carried: Vec<ConnectionResult> = std::thread::scope(|scope| {
        let mut others = Vec::new();
        for socket in sockets.iter().skip(1) {
            let thread = start(scope, move || guarded(socket)).inspect_err(|_| end())?;
            others.push(thread);
        }
        let first = sockets.first().and_then(guarded);
        let others = others.into_iter().filter_map(|thread| thread.join().unwrap_or(None));
        Ok::<_, crate::Error>(first.into_iter().chain(others).collect())
    })?;
    match failure.into_inner().unwrap_or_else(PoisonError::into_inner) {
        Some(error) => Ok(Err(error)),
        None => Ok(Ok(merge(carried))),
    }
}

/// Merges the results. Each refused engine is listed once.
fn merge(carried: Vec<ConnectionResult>) -> AllResults {
    let mut all = AllResults::default();
    for (connection, not_used) in carried {
        all.0.push(connection);
        for not in not_used {
            if !all.1.iter().any(|known| known.engine == not.engine) {
                all.1.push(not);
            }
        }
    }
    all
}
