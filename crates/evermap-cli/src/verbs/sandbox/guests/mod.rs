//! WebAssembly guests: run them, and say what they may use.

mod grant;
mod list;
mod run;
mod watchdog;

use std::path::{Path, PathBuf};

use evermap_wasm::{AccessTable, ApplicationId, KeyRing, Level, ModuleIdentity, ObjectName};

use crate::failure::Failure;

pub use grant::{Grant, Revoke};
pub use list::List;
pub use run::Run;

/// Why a guest ended, when it took too long.
const OUT_OF_TIME: &str = "its time is over; give more with --timeout";

/// `NAME:LEVEL`, or `OWNER:NAME:LEVEL` for another application's object.
#[derive(Clone, Debug)]
struct Allowed {
    object: String,
    level: Level,
}

impl std::str::FromStr for Allowed {
    type Err = String;

    fn from_str(text: &str) -> Result<Allowed, String> {
        let (object, level) = text
            .rsplit_once(':')
            .ok_or_else(|| format!("`{text}` has no level; write `{text}:snapshot`, say"))?;
        Ok(Allowed { object: object.to_string(), level: level.parse()? })
    }
}

/// The object that a name means to an application.
fn object_of(application: &ApplicationId, name: &str) -> Result<ObjectName, Failure> {
    Ok(match name.contains(':') {
        true => name.parse()?,
        false => ObjectName::new(application, name)?,
    })
}

/// Reads a module's bytes.
fn read_module(path: &Path) -> Result<Vec<u8>, Failure> {
    std::fs::read(path).map_err(|source| Failure::Source { path: path.to_path_buf(), source })
}

fn identity_of(path: &Path) -> Result<ModuleIdentity, Failure> {
    Ok(ModuleIdentity::of(&read_module(path)?))
}

/// An application's row in the access table, made with a new key where there is none.
fn enter(store: &Path, id: &ApplicationId) -> Result<AccessTable, Failure> {
    let table = AccessTable::of_store(store);
    table.enter(id, &KeyRing::of_store(store).find_or_make(id)?)?;
    Ok(table)
}

/// The directory as the store itself calls it; it is made when it is not there.
fn made_store(directory: &Path) -> Result<PathBuf, Failure> {
    Ok(evermap::Store::open_or_create(directory)?.path().to_path_buf())
}
