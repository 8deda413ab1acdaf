//! Changes to one application, all of them or none.

use super::table::{Level, Table};
use crate::error::{Error, Result};
use crate::module::ModuleBinding;
use crate::names::{ApplicationId, ObjectName};

/// A change to what an application may do. See [`AccessTable::apply`](super::AccessTable::apply).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Change {
    /// Binds modules: from then on only bound modules run as the application.
    Bind(ModuleBinding),
    /// Removes a binding. Without the last one, no module may be run as the application.
    Unbind(ModuleBinding),
    /// Removes all bindings: any module may be run as the application.
    UnbindAll,
    /// Sets the bytes of guest addresses that its objects may have together. Existing objects keep
    /// what they have.
    Quota(u64),
    /// Grants a right to an object and replaces an earlier one.
    Grant(ObjectName, Level),
    /// Removes the right to an object.
    Revoke(ObjectName),
}

impl Table {
    /// Makes the changes in order. The caller discards the table after an error.
    pub(super) fn apply(&mut self, id: &ApplicationId, changes: &[Change]) -> Result<()> {
        changes.iter().try_for_each(|change| self.apply_one(id, change))
    }

    fn apply_one(&mut self, id: &ApplicationId, change: &Change) -> Result<()> {
        let application = id.as_str();
        let row = self.applications.entry(application.to_string()).or_default();
        match change {
            Change::Bind(module) => {
                let modules = row.modules.get_or_insert_default();
                if !modules.contains(module) {
                    modules.push(module.clone());
                }
            }
            Change::Unbind(module) => {
                let modules = row.modules.as_mut();
                let at = modules.as_ref().and_then(|all| all.iter().position(|m| m == module));
                let (Some(modules), Some(at)) = (modules, at) else {
                    return Err(Error::NoBinding {
                        application: application.to_string(),
                        module: module.to_string(),
                    });
                };
                modules.remove(at);
            }
            Change::UnbindAll => row.modules = None,
            Change::Quota(quota_bytes) => row.quota_bytes = *quota_bytes,
            Change::Grant(object, level) => {
                if object.owner() != id {
                    self.check_overlaps_nothing(application, object.in_store())?;
                }
                self.set_right(application, object.in_store(), *level);
            }
            Change::Revoke(object) => {
                if !self.remove_right(application, object.in_store()) {
                    return Err(Error::NoRight {
                        application: application.to_string(),
                        object: object.to_string(),
                    });
                }
            }
        }
        Ok(())
    }

    /// Returns an error if the application has objects among these names of the store.
    pub(super) fn check_removable(&self, id: &ApplicationId, in_store: &[String]) -> Result<()> {
        let objects: Vec<String> = own(id, in_store).cloned().collect();
        match objects.is_empty() {
            true => Ok(()),
            false => Err(Error::HasObjects { application: id.to_string(), objects }),
        }
    }

    /// Removes the row and the rights of an application without objects, and the rows of its
    /// removed objects.
    pub(super) fn remove(&mut self, id: &ApplicationId, in_store: &[String]) -> Result<()> {
        self.check_removable(id, in_store)?;
        let prefix = prefix(id);
        self.forget(&|name: &str| !name.starts_with(&prefix));
        self.rights
            .retain(|right| right.application != id.as_str() && !right.object.starts_with(&prefix));
        self.applications.remove(id.as_str());
        Ok(())
    }
}

/// Prefix of the names of an application's objects in the store.
fn prefix(id: &ApplicationId) -> String {
    format!("{id}:")
}

fn own<'a>(id: &ApplicationId, in_store: &'a [String]) -> impl Iterator<Item = &'a String> {
    let prefix = prefix(id);
    in_store.iter().filter(move |name| name.starts_with(&prefix))
}
