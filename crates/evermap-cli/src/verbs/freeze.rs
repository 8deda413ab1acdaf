//! `evermap freeze`: separates documents from their source files.

use std::path::Path;

use clap_complete::ArgValueCompleter;
use evermap::Store;
use evermap_dom::Document;

use crate::completion::whole_names;
use crate::failure::Failure;
use crate::names;
use crate::source::STANDARD_INPUT;

/// Keep documents as they are if their sources change
///
/// A document follows its source file, also after `evermap mv`, `evermap store import`, `evermap
/// store restore`, and in a copy of the store: a query parses a changed file again, and the old
/// version is lost. A frozen document forgets the path of its file, as if it came from standard
/// input. Only `evermap parse` of the file, or under the document's name, replaces it.
///
/// A name that cannot be frozen is reported, and the others are frozen.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  evermap freeze page.html
  evermap freeze --all --store restored")]
pub struct Freeze {
    /// Names of the documents, or paths of their files; `evermap ls` lists the names
    #[arg(value_name = "NAME", required_unless_present = "all")]
    #[arg(add = ArgValueCompleter::new(whole_names))]
    names: Vec<String>,
    /// Freeze all documents of the store
    #[arg(long, conflicts_with = "names")]
    all: bool,
}

impl Freeze {
    pub fn run(&self, directory: &Path) -> Result<(), Failure> {
        let store = Store::open(directory)?;
        let mut outcome = Ok(());
        let mut add = |frozen: Result<(), Failure>| {
            if let Err(failure) = frozen
                && let Err(earlier) = std::mem::replace(&mut outcome, Err(failure))
            {
                // The last failure is returned; earlier ones are reported here.
                earlier.report();
            }
        };
        for name in &self.names {
            add(names::resolve_whole(&store, directory, name)
                .and_then(|object| freeze(&store, &object)));
        }
        for object in if self.all { store.list()? } else { Vec::new() } {
            match freeze(&store, &object) {
                Err(Failure::NotADocument { .. }) => {}
                frozen => add(frozen),
            }
        }
        outcome
    }
}

/// Removes the path of the document's source. Does not write a document that is frozen already.
fn freeze(store: &Store, object: &str) -> Result<(), Failure> {
    let failed = |error| names::document_error(object, error);
    if store.read::<Document>(object).map_err(failed)?.source().path == STANDARD_INPUT {
        return Ok(());
    }
    let mut session = store.write::<Document>(object).map_err(failed)?;
    Document::set_source_path(session.root_mut(), STANDARD_INPUT);
    session.commit()?;
    Ok(session.close()?)
}
