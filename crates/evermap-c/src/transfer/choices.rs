//! Converts transfer options from the C struct to builders. An option that a function does not use
//! is refused, because its caller expects an effect.

use evermap_transfer::engines::EngineKind;
use evermap_transfer::{Durability, Preserve, Reflink};

use super::types::em_transfer_options;
use super::watch::Watch;
use crate::abi::arguments::{options, text};
use crate::abi::failure::{Failure, Result};
use crate::abi::types::*;

/// A field that only some functions use: its name and its value.
type Field = (&'static str, u64);

/// Options given by the caller.
pub struct Choices {
    given: Option<em_transfer_options>,
    pub engine: Option<EngineKind>,
}

impl Choices {
    /// # Safety
    /// `given` is null or as the header requires.
    pub unsafe fn new(given: *const em_transfer_options) -> Result<Choices> {
        // SAFETY: the caller guarantees null or a struct as the header requires.
        let given = unsafe { options(given) }?;
        let engine = match given.filter(|given| !given.engine.is_null()) {
            // SAFETY: not null, so the caller guarantees a text.
            Some(given) => Some(engine_of(unsafe { text(given.engine, "the engine") }?)?),
            None => None,
        };
        Ok(Choices { given, engine })
    }

    /// Returns the value of a field, 0 if no options were given.
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

    /// Returns the attributes to preserve in addition to the bytes.
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

    /// Returns the progress callback and the cancel flag.
    pub fn watch(&self) -> Watch {
        Watch::new(self.given.as_ref())
    }

    /// Refuses fields that only some functions use, unless `function` uses them.
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
                Err(Failure::argument(format!("{function}() does not use `{name}`; leave it 0")))
            }
        }
    }
}

fn engine_of(name: &str) -> Result<EngineKind> {
    EngineKind::from_name(name).ok_or_else(|| {
        let names: Vec<_> = EngineKind::ALL.iter().map(|kind| kind.name()).collect();
        let names = names.join(", ");
        Failure::argument(format!("unknown engine `{name}`; the engines are {names}"))
    })
}

fn unknown(field: &str, number: u32) -> Failure {
    Failure::argument(format!("{number} is not a valid `{field}`; see evermap_transfer.h"))
}
