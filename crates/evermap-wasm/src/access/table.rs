//! What the access table holds.

use std::collections::BTreeMap;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::QUOTA_BYTES_DEFAULT;
use crate::error::{Error, Result};
use crate::kept::Kept;
use crate::key_ring::Keys;

/// What an application may do with an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// Nothing.
    None,
    /// Map the last commit as a private copy.
    Snapshot,
    /// Map the last commit read-only, where the embedder allows such pages; a copy elsewhere.
    Read,
    /// All that, and write it, one at a time.
    Write,
}

/// Which modules may be run as an application.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ModuleBinding {
    /// The one with this SHA-256, in hexadecimal digits.
    Sha256(String),
    /// Those that are signed by this Ed25519 public key, in hexadecimal digits.
    Signer(String),
}

/// A range of guest addresses that was given, for good.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Given {
    pub(super) base: u64,
    pub(super) bytes: u64,
}

impl Given {
    pub(super) fn end(&self) -> u64 {
        self.base.saturating_add(self.bytes)
    }

    pub(super) fn meets(&self, other: &Given) -> bool {
        self.base < other.end() && other.base < self.end()
    }

    pub(super) fn holds(&self, other: &Given) -> bool {
        self.base <= other.base && other.end() <= self.end()
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Application {
    pub(super) key_verifier: String,
    pub(super) quota_bytes: u64,
    /// None for any: no binding was ever made, or all were given up at once.
    pub(super) modules: Option<Vec<ModuleBinding>>,
    /// Ranges of its objects that are gone: never to be given to it again.
    pub(super) retired: Vec<Given>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Object {
    pub(super) owner: String,
    pub(super) given: Vec<Given>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Right {
    pub(super) application: String,
    /// The object's name in the store.
    pub(super) object: String,
    pub(super) level: Level,
}

impl Kept for Table {
    const FILE: &'static str = "sandbox.access";
    const MAGIC: &'static str = "evermap-access";
    const CALLED: &'static str = "the access table";

    /// The table is made before the first key. If the key ring exists and the table does not, somebody
    /// removed the table, and with it the bindings of modules.
    fn check_missing(directory: &Path) -> Result<()> {
        let keys = directory.join(Keys::FILE);
        match std::fs::symlink_metadata(&keys) {
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(()),
            Err(e) => Err(Error::io("look at", keys)(e)),
            Ok(_) => Err(Error::MissingTable { path: directory.join(Table::FILE), keys }),
        }
    }
}

/// The table, as its file has it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Table {
    pub(super) applications: BTreeMap<String, Application>,
    /// By their names in the store.
    pub(super) objects: BTreeMap<String, Object>,
    pub(super) rights: Vec<Right>,
}

impl Table {
    /// The row of an application; a new one has this verifier.
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

    /// Bytes of guest addresses that the objects of an application have.
    pub(super) fn used_bytes(&self, application: &str) -> u64 {
        let own = self.objects.values().filter(|object| object.owner == application);
        let given = own.flat_map(|object| &object.given);
        // Somebody may have edited the file.
        given.fold(0, |sum: u64, given| sum.saturating_add(given.bytes))
    }

    /// The objects that an application may have mapped: its own, and those it has rights to.
    pub(super) fn reachable<'a>(
        &'a self,
        application: &'a str,
    ) -> impl Iterator<Item = (&'a String, &'a Object)> {
        self.objects.iter().filter(move |(name, object)| {
            object.owner == application
                || self.right(application, name).is_some_and(|level| level > Level::None)
        })
    }

    /// Refuses to share an object with an application that has something else at its addresses.
    pub(super) fn check_meets_nothing(&self, application: &str, name: &str) -> Result<()> {
        let Some(object) = self.objects.get(name) else {
            return Err(Error::NoObject {
                application: name.split(':').next().unwrap_or_default().to_string(),
                object: name.to_string(),
            });
        };
        let meets = |other: &[Given]| {
            other.iter().any(|theirs| object.given.iter().any(|given| given.meets(theirs)))
        };
        let other = self
            .reachable(application)
            .find(|(other, row)| *other != name && meets(&row.given))
            .map(|(other, _)| other.clone());
        let retired = self.applications.get(application).is_some_and(|row| meets(&row.retired));
        match other.or_else(|| retired.then(|| "an object that is gone".to_string())) {
            None => Ok(()),
            Some(other) => Err(Error::AddressesMeet {
                object: name.to_string(),
                application: application.to_string(),
                other,
            }),
        }
    }

    /// Takes out the objects that are gone, and the rights to them.
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
            // Whoever could have it mapped may have pointers to it elsewhere.
            let with_rights = self.rights.iter().filter(|r| r.object == name);
            let mut concerned: Vec<String> = with_rights.map(|r| r.application.clone()).collect();
            concerned.push(object.owner);
            for id in concerned {
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

/// The access table, for people.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Access {
    /// Applications, by their ids.
    pub applications: Vec<ApplicationRow>,
    /// Guest objects, by their names in the store.
    pub objects: Vec<ObjectRow>,
    /// Rights beyond those of owners, and limits of these.
    pub rights: Vec<RightRow>,
}

/// An application.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ApplicationRow {
    /// Its id.
    pub application: String,
    /// Bytes of guest addresses that its objects may have together.
    pub quota_bytes: u64,
    /// Bytes that they have.
    pub used_bytes: u64,
    /// Which modules may be run as it; `None` for any.
    pub modules: Option<Vec<ModuleBinding>>,
}

/// A guest object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ObjectRow {
    /// Its name in the store: owner, colon, name.
    pub object: String,
    /// The application that made it.
    pub owner: String,
    /// Guest addresses: first, and bytes.
    pub addresses: Vec<(u64, u64)>,
}

/// What an application may do with an object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RightRow {
    /// The application.
    pub application: String,
    /// The object's name in the store.
    pub object: String,
    /// At which level.
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
            other => Err(format!("`{other}` is no level; use none, snapshot, read or write")),
        }
    }
}

impl std::fmt::Display for ModuleBinding {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            ModuleBinding::Sha256(hash) => write!(f, "sha256:{hash}"),
            ModuleBinding::Signer(key) => write!(f, "signer:{key}"),
        }
    }
}
