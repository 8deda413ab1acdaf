//! State of this benchmark's sections beyond the shared state: the peers, and the results of
//! `files`.

use harness::Outcome;
use harness::machine::{self, Fact, Remarks};
use harness::options::Options;

use crate::compete::Standings;
use crate::subjects::{self, Subject};

/// Bench that a section receives.
pub type Bench = harness::bench::Bench<Own>;

pub struct Own {
    pub peers: Vec<Subject>,
    /// Results of `files`, for `goals`.
    pub standings: Vec<Standings>,
}

/// Finds the peers and prints the description of the machine.
pub fn start(options: Options) -> Outcome<Bench> {
    let (peers, missing) = subjects::find_peers(options.own_folder());
    let peers = peers.into_iter().filter(|peer| options.wants_subject(&peer.name)).collect();
    let mut bench = Bench::new(options, Own { peers, standings: Vec::new() })?;
    let congestion = Fact {
        key: "congestion_control",
        name: "TCP's congestion control",
        value: machine::text_of("/proc/sys/net/ipv4/tcp_congestion_control"),
    };
    let each = "a new process";
    let cold = "the page cache was emptied, then programs and their libraries were read again";
    let notes = machine::notes(&bench, each, cold);
    machine::describe(&mut bench, &Remarks { facts: &[congestion], notes, missing: &missing })?;
    Ok(bench)
}

/// Returns Evermap with its engines, as far as they are selected, and the peers.
pub fn all_subjects(bench: &Bench) -> Vec<Subject> {
    let engines = bench.options.evermap.as_deref().map(subjects::engines).unwrap_or_default();
    let wanted = engines.into_iter().filter(|subject| bench.options.wants_subject(&subject.name));
    wanted.chain(bench.own.peers.iter().cloned()).collect()
}
