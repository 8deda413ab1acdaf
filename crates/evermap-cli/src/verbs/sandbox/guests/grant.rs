//! `evermap sandbox grant` and `revoke`: rights, quotas and module bindings of applications.

use std::path::{Path, PathBuf};

use evermap_wasm::{AccessTable, ApplicationId, Change, Error, KeyRing, ModuleBinding};

use super::{Allowed, identity_of, object_of};
use crate::failure::Failure;

/// Grant an application rights or a quota, or bind modules to it
///
/// An application may write the objects that it creates. A right to another application's object
/// (OWNER:NAME:LEVEL) allows its use; a right to its own object limits it to that level. Once a
/// module or a signer is bound to an application, no other module runs as it.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  evermap sandbox grant reader writer:index:read
  evermap sandbox grant writer --module writer.wasm --quota 512")]
pub struct Grant {
    /// The application; created if it does not exist
    #[arg(value_name = "ID")]
    app: String,
    /// Rights: NAME is an object of the application, or OWNER:NAME; LEVEL is none, snapshot, read
    /// or write
    #[arg(value_name = "NAME:LEVEL")]
    rights: Vec<Allowed>,
    /// Bind this module by its SHA-256
    #[arg(long, value_name = "APP.wasm")]
    module: Vec<PathBuf>,
    /// Bind all modules signed with this key: the 64 hexadecimal digits of an Ed25519 public key
    #[arg(long, value_name = "KEY")]
    signer: Vec<String>,
    /// Remove all bindings: any module can run as the application
    #[arg(long, conflicts_with_all = ["module", "signer"])]
    any_module: bool,
    /// Part of the window that its objects may use [default of new applications: 256]
    #[arg(long, value_name = "MIB")]
    quota: Option<u64>,
}

impl Grant {
    pub fn run(&self, directory: &Path) -> Result<(), Failure> {
        let id: ApplicationId = self.app.parse()?;
        let changes = self.changes(&id)?;
        let store = match evermap::Store::open(directory) {
            Err(evermap::Error::NoStore { .. }) => create_store(directory, &id, &changes)?,
            store => store?,
        };
        let table = AccessTable::of_store(store.path());
        KeyRing::of_store(store.path()).enter_with(&table, &id, &changes)?;
        Ok(())
    }

    fn changes(&self, id: &ApplicationId) -> Result<Vec<Change>, Failure> {
        let bound = bindings(&self.module, &self.signer)?.into_iter().map(Change::Bind);
        let mut changes: Vec<Change> = bound.collect();
        if self.any_module {
            changes.push(Change::UnbindAll);
        }
        if let Some(mib) = self.quota {
            changes.push(Change::Quota(mib.saturating_mul(1 << 20)));
        }
        for right in &self.rights {
            changes.push(Change::Grant(object_of(id, &right.object)?, right.level));
        }
        Ok(changes)
    }
}

/// Creates the store for a grant that will succeed. A new store has no objects of other
/// applications to share.
fn create_store(
    directory: &Path,
    id: &ApplicationId,
    changes: &[Change],
) -> Result<evermap::Store, Failure> {
    for change in changes {
        if let Change::Grant(object, _) = change
            && object.owner() != id
        {
            let (application, object) = (object.owner().to_string(), object.to_string());
            return Err(Error::NoObject { application, object }.into());
        }
    }
    Ok(evermap::Store::open_or_create(directory)?)
}

/// Revoke rights or module bindings, or remove an application
///
/// After this the application has no right to another application's object, and the owner's right
/// to its own object (to take that away, grant NAME:none). Either all named rights and bindings are
/// revoked, or none.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  evermap sandbox revoke reader writer:index
  evermap sandbox revoke reader --all")]
pub struct Revoke {
    /// The application
    #[arg(value_name = "ID")]
    app: String,
    /// Objects: NAME for the application's own, or OWNER:NAME
    #[arg(value_name = "NAME")]
    objects: Vec<String>,
    /// Remove the binding of this module. After the last one, no module can run as the application
    /// (`grant --any-module` allows any)
    #[arg(long, value_name = "APP.wasm")]
    module: Vec<PathBuf>,
    /// Remove the binding of this signer
    #[arg(long, value_name = "KEY")]
    signer: Vec<String>,
    /// Remove the application: its rights, its bindings and its key. It must have no objects, and
    /// none of its guests may be running
    #[arg(long, conflicts_with_all = ["objects", "module", "signer"])]
    all: bool,
}

impl Revoke {
    pub fn run(&self, directory: &Path) -> Result<(), Failure> {
        let id: ApplicationId = self.app.parse()?;
        if !self.all && self.objects.is_empty() && self.module.is_empty() && self.signer.is_empty()
        {
            return Err(Failure::Usage(format!(
                "nothing to revoke; name an object that `{id}` may use, `--module` or `--signer`, or remove the application with `--all`"
            )));
        }
        let store = evermap::Store::open(directory)?;
        let (table, ring) = (AccessTable::of_store(store.path()), KeyRing::of_store(store.path()));
        if self.all {
            return Ok(ring.remove(&table, &id, &store.list()?)?);
        }
        if ring.find(&id)?.is_none() {
            let store = store.path().to_path_buf();
            return Err(Error::NoApplication { store, application: id.to_string() }.into());
        }
        let bound = bindings(&self.module, &self.signer)?.into_iter().map(Change::Unbind);
        let mut changes: Vec<Change> = bound.collect();
        for object in &self.objects {
            changes.push(Change::Revoke(object_of(&id, object)?));
        }
        Ok(table.apply(&id, &changes)?)
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
                "`{signer}` is not an Ed25519 public key; pass its 64 hexadecimal digits"
            ))
        })?;
        bindings.push(ModuleBinding::signer(&key)?);
    }
    Ok(bindings)
}
