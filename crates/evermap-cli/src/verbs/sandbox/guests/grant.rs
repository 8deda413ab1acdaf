//! `evermap sandbox grant` and `revoke`: what an application may use, and which modules it is.

use std::path::{Path, PathBuf};

use evermap_wasm::{AccessTable, ApplicationId, Error, KeyRing, ModuleBinding};

use super::{Allowed, enter, identity_of, made_store, object_of};
use crate::failure::Failure;

/// Give an application rights, a quota, or modules that are it
///
/// An application may write the objects that it makes itself. With a right to an object of another one
/// (OWNER:NAME:LEVEL) it may use that, too; with a right to one of its own it is held to that level. Once a
/// module or a signer is bound to an application, no other module is run as it.
#[derive(Debug, clap::Args)]
pub struct Grant {
    /// The application; it is made when there is none
    #[arg(value_name = "ID")]
    app: String,
    /// Rights: NAME is an object of the application's, or OWNER:NAME; LEVEL is none, snapshot, read or
    /// write
    #[arg(value_name = "NAME:LEVEL")]
    rights: Vec<Allowed>,
    /// Bind this module: its SHA-256
    #[arg(long, value_name = "APP.wasm")]
    module: Vec<PathBuf>,
    /// Bind all modules that are signed with this key: the 64 hexadecimal digits of an Ed25519 public key
    #[arg(long, value_name = "KEY")]
    signer: Vec<String>,
    /// Let any module be run as it, whatever was bound before
    #[arg(long, conflicts_with_all = ["module", "signer"])]
    any_module: bool,
    /// How much of the window its objects may take [default of new ones: 256]
    #[arg(long, value_name = "MIB")]
    quota: Option<u64>,
}

impl Grant {
    pub fn run(&self, directory: &Path) -> Result<(), Failure> {
        let id: ApplicationId = self.app.parse()?;
        let bindings = bindings(&self.module, &self.signer)?;
        let table = enter(&made_store(directory)?, &id)?;
        for binding in bindings {
            table.bind(&id, binding)?;
        }
        if self.any_module {
            table.unbind_all(&id)?;
        }
        if let Some(mib) = self.quota {
            table.set_quota(&id, mib.saturating_mul(1 << 20))?;
        }
        for right in &self.rights {
            table.grant(&id, &object_of(&id, &right.object)?, right.level)?;
        }
        Ok(())
    }
}

/// Take rights back, or modules
///
/// Of another application's object nothing is left; of one of its own, what an owner has (to take that,
/// grant NAME:none).
#[derive(Debug, clap::Args)]
pub struct Revoke {
    /// The application
    #[arg(value_name = "ID")]
    app: String,
    /// Objects: NAME of the application's own, or OWNER:NAME
    #[arg(value_name = "NAME")]
    objects: Vec<String>,
    /// Bind this module no longer. After the last one, no module may be run as the application (`grant
    /// --any-module` lets any)
    #[arg(long, value_name = "APP.wasm")]
    module: Vec<PathBuf>,
    /// Bind this signer's modules no longer
    #[arg(long, value_name = "KEY")]
    signer: Vec<String>,
}

impl Revoke {
    pub fn run(&self, directory: &Path) -> Result<(), Failure> {
        let id: ApplicationId = self.app.parse()?;
        let store = evermap::Store::open(directory)?.path().to_path_buf();
        if KeyRing::of_store(&store).find(&id)?.is_none() {
            return Err(Error::NoApplication { store, application: id.to_string() }.into());
        }
        let table = AccessTable::of_store(&store);
        for binding in bindings(&self.module, &self.signer)? {
            table.unbind(&id, &binding)?;
        }
        for object in &self.objects {
            table.revoke(&id, &object_of(&id, object)?)?;
        }
        Ok(())
    }
}

fn bindings(modules: &[PathBuf], signers: &[String]) -> Result<Vec<ModuleBinding>, Failure> {
    let mut bindings = Vec::new();
    for path in modules {
        bindings.push(ModuleBinding::module(&identity_of(path)?));
    }
    for signer in signers {
        let key = evermap_wasm::public_key_of(signer).ok_or_else(|| {
            Failure::Usage(format!(
                "`{signer}` is no Ed25519 public key; give its 64 hexadecimal digits"
            ))
        })?;
        bindings.push(ModuleBinding::signer(&key)?);
    }
    Ok(bindings)
}
