//! `evermap sandbox`: runs programs with restricted access.

mod exec;
#[cfg(feature = "sandbox")]
mod guests;

use std::path::Path;

use crate::failure::Failure;

use exec::Exec;
#[cfg(feature = "sandbox")]
use guests::{Grant, List, Revoke, Run};

/// Run programs with restricted access
#[derive(Debug, clap::Args)]
pub struct Sandbox {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, clap::Subcommand)]
enum Verb {
    #[cfg(feature = "sandbox")]
    Run(Run),
    #[cfg(feature = "sandbox")]
    Grant(Grant),
    #[cfg(feature = "sandbox")]
    Revoke(Revoke),
    #[cfg(feature = "sandbox")]
    List(List),
    Exec(Exec),
}

impl Sandbox {
    /// Runs the verb. `store` is called only by verbs that need a store.
    pub fn run(
        &self,
        store: impl FnOnce() -> Result<std::path::PathBuf, Failure>,
    ) -> Result<(), Failure> {
        #[cfg(feature = "sandbox")]
        let with_store = |run: &dyn Fn(&Path) -> Result<(), Failure>| run(&store()?);
        #[cfg(not(feature = "sandbox"))]
        let _ = (store, Path::new(""));
        match &self.verb {
            #[cfg(feature = "sandbox")]
            Verb::Run(run) => with_store(&|store| run.run(store)),
            #[cfg(feature = "sandbox")]
            Verb::Grant(grant) => with_store(&|store| grant.run(store)),
            #[cfg(feature = "sandbox")]
            Verb::Revoke(revoke) => with_store(&|store| revoke.run(store)),
            #[cfg(feature = "sandbox")]
            Verb::List(list) => with_store(&|store| list.run(store)),
            Verb::Exec(exec) => exec.run(),
        }
    }
}
