//! Contents of the access table.

use std::collections::BTreeMap;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::keys::Keys;
use crate::module::ModuleBinding;
use crate::state_file::Contents;

/// Default quota of an application: bytes of guest addresses that its objects may have together.
pub const QUOTA_BYTES_DEFAULT: u64 = 256 << 20;

/// Level of a right to an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// No access.
    None,
    /// Map the last commit as a private copy.
    Snapshot,
    /// Map the last commit read-only if the embedder allows such pages, else as a private copy.
    Read,
    /// Map the last commit in any way, or write the object as its only writer.
    Write,
}

/// A range of guest addresses.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct AddressRange {
    pub(super) base: u64,
    pub(super) bytes: u64,
}

impl AddressRange {
    pub(super) fn end(&self) -> u64 {
        self.base.saturating_add(self.bytes)
    }

    pub(super) fn overlaps(&self, other: &AddressRange) -> bool {
        self.base < other.end() && other.base < self.end()
    }

    pub(super) fn contains(&self, other: &AddressRange) -> bool {
        self.base <= other.base && other.end() <= self.end()
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Application {
    pub(super) key_verifier: String,
    pub(super) quota_bytes: u64,
    /// `None` allows any module: no binding was ever made, or all were removed at once.
    pub(super) modules: Option<Vec<ModuleBinding>>,
    /// Ranges of its removed objects, never assigned to it again.
    pub(super) retired: Vec<AddressRange>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Object {
    pub(super) owner: String,
    pub(super) given: Vec<AddressRange>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Right {
    pub(super) application: String,
    /// The object's name in the store.
    pub(super) object: String,
    pub(super) level: Level,
}

impl Contents for Table {
    const FILE: &'static str = "sandbox.access";
    const MAGIC: &'static str = "evermap-access";
    const DISPLAY_NAME: &'static str = "the access table";

    /// The table is created before the first key. If the key ring exists without the table,
    /// somebody removed the table, and with it the bindings of modules.
    fn check_missing(directory: &Path) -> Result<()> {
        let keys = directory.join(Keys::FILE);
        match std::fs::symlink_metadata(&keys) {
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(()),
            Err(e) => Err(Error::io("inspect", keys)(e)),
            Ok(_) => Err(Error::MissingTable { path: directory.join(Table::FILE), keys }),
        }
    }
}

/// The table as it is stored in its file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Table {
    pub(super) applications: BTreeMap<String, Application>,
    /// Objects by their names in the store.
    pub(super) objects: BTreeMap<String, Object>,
    pub(super) rights: Vec<Right>,
}

impl Table {
    /// Returns the row of an application. A new row gets this verifier.
    pub(super) fn application(&mut self, id: &str, verifier: &str) -> &mut Application {
        self.applications.entry(id.to_string()).or_insert_with(|| Application {
            key_verifier: verifier.to_string(),
            quota_bytes: QUOTA_BYTES_DEFAULT,
            ..Application::default()
        })
    }

    pub(super) fn right(&self, application: &str, object: &str) -> Option<Level> {
        let row =
            self.rights.iter().find(|r| r.application == application && r.object == object)?;
        Some(row.level)
    }

    pub(super) fn set_right(&mut self, application: &str, object: &str, level: Level) {
        self.remove_right(application, object);
        let (application, object) = (application.to_string(), object.to_string());
        self.rights.push(Right { application, object, level });
    }

    pub(super) fn remove_right(&mut self, application: &str, object: &str) -> bool {
        let before = self.rights.len();
        self.rights.retain(|r| !(r.application == application && r.object == object));
        self.rights.len() < before
    }

    /// Returns the bytes of guest addresses that an application's objects have.
    pub(super) fn used_bytes(&self, application: &str) -> u64 {
        let own = self.objects.values().filter(|object| object.owner == application);
        let given = own.flat_map(|object| &object.given);
        // Saturating, because the file can be edited by hand.
        given.fold(0, |sum: u64, given| sum.saturating_add(given.bytes))
    }

    /// Returns the objects that an application can map: its own, and those that it has rights to.
    pub(super) fn reachable<'a>(
        &'a self,
        application: &'a str,
    ) -> impl Iterator<Item = (&'a String, &'a Object)> {
        self.objects.iter().filter(move |(name, object)| {
            object.owner == application
                || self.right(application, name).is_some_and(|level| level > Level::None)
        })
    }

    /// Returns an error if the application already uses addresses of the object for something else.
    pub(super) fn check_overlaps_nothing(&self, application: &str, name: &str) -> Result<()> {
        let Some(object) = self.objects.get(name) else {
            return Err(Error::NoObject {
                application: name.split(':').next().unwrap_or_default().to_string(),
                object: name.to_string(),
            });
        };
        let meets = |other: &[AddressRange]| {
            other.iter().any(|theirs| object.given.iter().any(|given| given.overlaps(theirs)))
        };
        let other = self
            .reachable(application)
            .find(|(other, row)| *other != name && meets(&row.given))
            .map(|(other, _)| other.clone());
        let retired = self.applications.get(application).is_some_and(|row| meets(&row.retired));
        match other.or_else(|| retired.then(|| "a removed object".to_string())) {
            None => Ok(()),
            Some(other) => Err(Error::AddressesOverlap {
                object: name.to_string(),
                application: application.to_string(),
                other,
            }),
        }
    }

    /// Removes the objects that no longer exist, and the rights to them except the level *none*.
    pub(super) fn forget(&mut self, exists: &impl Fn(&str) -> bool) {
        let mut gone = BTreeMap::new();
        self.objects.retain(|name, object| {
            let stays = exists(name);
            if !stays {
                gone.insert(name.clone(), object.clone());
            }
            stays
        });
        for (name, object) in gone {
            // Applications that could map the object may have pointers to it in other objects.
            let with_rights = self.rights.iter().filter(|r| r.object == name);
            let mut affected: Vec<String> = with_rights.map(|r| r.application.clone()).collect();
            affected.push(object.owner);
            for id in affected {
                if let Some(row) = self.applications.get_mut(&id) {
                    row.retired.extend(object.given.iter().cloned());
                }
            }
            self.rights.retain(|r| r.object != name || r.level == Level::None);
        }
    }

    pub(super) fn read(&self) -> Access {
        let applications = self.applications.iter().map(|(id, row)| ApplicationRow {
            application: id.clone(),
            quota_bytes: row.quota_bytes,
            used_bytes: self.used_bytes(id),
            modules: row.modules.clone(),
        });
        let objects = self.objects.iter().map(|(name, object)| ObjectRow {
            object: name.clone(),
            owner: object.owner.clone(),
            addresses: object.given.iter().map(|g| (g.base, g.bytes)).collect(),
        });
        let rights = self.rights.iter().map(|r| RightRow {
            application: r.application.clone(),
            object: r.object.clone(),
            level: r.level,
        });
        Access {
            applications: applications.collect(),
            objects: objects.collect(),
            rights: rights.collect(),
        }
    }
}

/// The access table for display.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Access {
    /// Applications by id.
    pub applications: Vec<ApplicationRow>,
    /// Guest objects by their names in the store.
    pub objects: Vec<ObjectRow>,
    /// Rights to objects of other applications, and limits on owners' rights.
    pub rights: Vec<RightRow>,
}

/// An application.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ApplicationRow {
    /// Its id.
    pub application: String,
    /// Bytes of guest addresses that its objects may have together.
    pub quota_bytes: u64,
    /// Bytes that its objects have.
    pub used_bytes: u64,
    /// Modules that can run as the application; `None` for any.
    pub modules: Option<Vec<ModuleBinding>>,
}

/// A guest object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ObjectRow {
    /// Its name in the store: owner, colon, name.
    pub object: String,
    /// The application that made it.
    pub owner: String,
    /// Guest address ranges: first address and bytes.
    pub addresses: Vec<(u64, u64)>,
}

/// An application's right to an object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RightRow {
    /// The application.
    pub application: String,
    /// The object's name in the store.
    pub object: String,
    /// Level of the right.
    pub level: Level,
}

impl std::fmt::Display for Level {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Level::None => "none",
            Level::Snapshot => "snapshot",
            Level::Read => "read",
            Level::Write => "write",
        })
    }
}

impl std::str::FromStr for Level {
    type Err = String;

    fn from_str(text: &str) -> Result<Level, String> {
        match text {
            "none" => Ok(Level::None),
            "snapshot" => Ok(Level::Snapshot),
            "read" => Ok(Level::Read),
            "write" => Ok(Level::Write),
            other => Err(format!("`{other}` is not a level; use none, snapshot, read or write")),
        }
    }
}
