//! Choices: from the struct that C gives to what builders take. A choice that a function has no use for is refused:
//! who makes one expects something of it.

use evermap_transfer::engines::EngineKind;
use evermap_transfer::{Durability, Preserve, Reflink};

use super::types::em_transfer_options;
use super::watch::Watch;
use crate::arguments::{options, text};
use crate::failure::{Failure, Result};
use crate::types::*;

/// A field that some functions have a use for: its name, and what was chosen.
type Field = (&'static str, u64);

/// What was chosen.
pub struct Choices {
    given: Option<em_transfer_options>,
    pub engine: Option<EngineKind>,
}

impl Choices {
    /// # Safety
    /// `given` is null or what the header says.
    pub unsafe fn new(given: *const em_transfer_options) -> Result<Choices> {
        // SAFETY: passed on from the caller.
        let given = unsafe { options(given) }?;
        let engine = match given.filter(|given| !given.engine.is_null()) {
            // SAFETY: not null, so a text, by the caller's promise.
            Some(given) => Some(engine_of(unsafe { text(given.engine, "the engine") }?)?),
            None => None,
        };
        Ok(Choices { given, engine })
    }

    /// What was chosen in a field; 0 if nothing was.
    pub fn of(&self, field: impl Fn(&em_transfer_options) -> u64) -> u64 {
        self.given.as_ref().map_or(0, field)
    }

    pub fn is(&self, field: impl Fn(&em_transfer_options) -> u32) -> bool {
        self.given.as_ref().is_some_and(|given| field(given) != 0)
    }

    pub fn durability(&self) -> Result<Durability> {
        match self.given.map_or(COPY_DURABILITY_NONE, |given| given.durability) {
            COPY_DURABILITY_NONE => Ok(Durability::None),
            COPY_DURABILITY_DATA => Ok(Durability::Data),
            COPY_DURABILITY_FULL => Ok(Durability::Full),
            other => Err(unknown("durability", other)),
        }
    }

    pub fn reflink(&self) -> Result<Reflink> {
        match self.given.map_or(REFLINK_AUTO, |given| given.reflink) {
            REFLINK_AUTO => Ok(Reflink::Auto),
            REFLINK_NEVER => Ok(Reflink::Never),
            REFLINK_ALWAYS => Ok(Reflink::Always),
            other => Err(unknown("reflink", other)),
        }
    }

    /// What is kept beside the bytes.
    pub fn preserve(&self) -> Result<Preserve> {
        let without = self.given.map_or(0, |given| given.without);
        let keeps = |what: u32| without & what == 0;
        match without & !(WITHOUT_MODE | WITHOUT_OWNER | WITHOUT_TIMES | WITHOUT_XATTRS) {
            0 => Ok(Preserve {
                mode: keeps(WITHOUT_MODE),
                owner: keeps(WITHOUT_OWNER),
                times: keeps(WITHOUT_TIMES),
                xattrs: keeps(WITHOUT_XATTRS),
            }),
            _ => Err(unknown("without", without)),
        }
    }

    /// Who is told, and who may end it.
    pub fn watch(&self) -> Watch {
        Watch::new(self.given.as_ref())
    }

    /// Of the fields that not every function has a use for, refuses those that `function` has none for.
    pub fn refuse_others(&self, function: &str, used: &[&str]) -> Result<()> {
        let Some(given) = &self.given else { return Ok(()) };
        let fields: [Field; 16] = [
            ("durability", given.durability.into()),
            ("reflink", given.reflink.into()),
            ("verify", given.verify.into()),
            ("resume", given.resume.into()),
            ("keep_going", given.keep_going.into()),
            ("one_file_system", given.one_file_system.into()),
            ("threads", given.threads.into()),
            ("sparse", given.sparse.into()),
            ("begin_bytes", given.begin_bytes),
            ("length_bytes", given.length_bytes),
            ("without", given.without.into()),
            ("connections", given.connections.into()),
            ("raw", given.raw.into()),
            ("discard", given.discard.into()),
            ("wait_ms", given.wait_ms.into()),
            ("idle_ms", given.idle_ms.into()),
        ];
        match fields.iter().find(|(name, chosen)| *chosen != 0 && !used.contains(name)) {
            None => Ok(()),
            Some((name, _)) => {
                Err(Failure::argument(format!("{function}() has no use for `{name}`; leave it 0")))
            }
        }
    }
}

fn engine_of(name: &str) -> Result<EngineKind> {
    EngineKind::from_name(name).ok_or_else(|| {
        let names: Vec<_> = EngineKind::ALL.iter().map(|kind| kind.name()).collect();
        let names = names.join(", ");
        Failure::argument(format!("no engine is called `{name}`; there are {names}"))
    })
}

fn unknown(field: &str, number: u32) -> Failure {
    Failure::argument(format!("{number} is no choice of `{field}`; see evermap_transfer.h"))
}
