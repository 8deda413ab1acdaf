//! Verbs for WebAssembly guests: run them, and manage their rights.

mod grant;
mod list;
mod run;
mod watchdog;

use std::io::Read;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use rustix::fs::OFlags;

use evermap_wasm::{ApplicationId, Level, ModuleIdentity, ObjectName};

use crate::failure::Failure;

pub use grant::{Grant, Revoke};
pub use list::List;
pub use run::Run;

/// Reason for a guest that reached its time limit.
const OUT_OF_TIME: &str = "it reached its time limit; set a longer one with --timeout";

/// Module path that stands for the standard input.
const STANDARD_INPUT: &str = "-";

/// `NAME:LEVEL`, or `OWNER:NAME:LEVEL` for another application's object.
#[derive(Clone, Debug)]
struct Allowed {
    object: String,
    level: Level,
}

impl std::str::FromStr for Allowed {
    type Err = String;

    fn from_str(text: &str) -> Result<Allowed, String> {
        let (object, level) = text.rsplit_once(':').ok_or_else(|| {
            format!("`{text}` has no level; add one, for example `{text}:snapshot`")
        })?;
        Ok(Allowed { object: object.to_string(), level: level.parse()? })
    }
}

/// Resolves an object name of an application.
fn object_of(application: &ApplicationId, name: &str) -> Result<ObjectName, Failure> {
    Ok(match name.contains(':') {
        true => name.parse()?,
        false => ObjectName::new(application, name)?,
    })
}

/// Maximum length of a module. Compiling takes about ten times as much memory.
const MODULE_BYTES_MAX: u64 = 256 << 20;

/// Reads a module or a signature from a regular file, or from the standard input for `-`.
fn read_module(path: &Path) -> Result<Vec<u8>, Failure> {
    let of_file = Failure::source(path);
    let refused = |why: &str| of_file(std::io::Error::other(why));
    let source: Box<dyn Read> = if path == Path::new(STANDARD_INPUT) {
        Box::new(std::io::stdin().lock())
    } else {
        // Opening a FIFO would wait for a writer, and a device may have no end.
        let mut options = std::fs::OpenOptions::new();
        let file = options
            .read(true)
            .custom_flags(OFlags::NONBLOCK.bits() as i32)
            .open(path)
            .map_err(of_file)?;
        if !file.metadata().map_err(of_file)?.is_file() {
            return Err(refused(
                "it is not a regular file; name one, or pass `-` to read the module from the standard input",
            ));
        }
        Box::new(file)
    };
    let mut bytes = Vec::new();
    source.take(MODULE_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(of_file)?;
    if bytes.len() as u64 > MODULE_BYTES_MAX {
        let why = format!(
            "it has more than {} MiB, the limit for modules; strip it (-Wl,--strip-all)",
            MODULE_BYTES_MAX >> 20
        );
        return Err(refused(&why));
    }
    Ok(bytes)
}

fn identity_of(path: &Path) -> Result<ModuleIdentity, Failure> {
    Ok(ModuleIdentity::of(&read_module(path)?))
}
