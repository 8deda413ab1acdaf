//! By what a later process tells whether a resource is still what a kept page was made from. A stamp
//! is small, has no times of validity but the server's, and can be kept as JSON; `check` asks it.

use serde::{Deserialize, Serialize};

use super::request::{Origin, Purpose};

/// What is to be known of a resource to see cheaply whether it is still the same.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "of", rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Stamp {
    /// A file.
    File(FileStamp),
    /// A server's response.
    Http(HttpStamp),
    /// A `data:` address: the content is the address.
    Data,
    /// An object of the store.
    Object(ObjectStamp),
    /// A resource that could not be had.
    Missing(MissingStamp),
}

/// A file, as it was when it was read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileStamp {
    /// Its `file:` address.
    pub url: String,
    /// Device.
    pub device: u64,
    /// Inode.
    pub inode: u64,
    /// Bytes.
    pub size_bytes: u64,
    /// When its content was changed last, nanoseconds since 1970.
    pub modified_ns: i64,
    /// When its inode was changed last, nanoseconds since 1970.
    pub changed_ns: i64,
    /// Had it been left alone for two seconds when it was read? Else its times prove nothing.
    pub settled: bool,
    /// BLAKE3 of its content.
    #[serde(with = "hex")]
    pub hash: [u8; 32],
}

/// An object of the store, at one commit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ObjectStamp {
    /// Its name.
    pub name: String,
    /// Its id. An object that replaces it has another.
    pub uuid: String,
    /// Number of the commit that was read.
    pub sequence: u64,
}

/// A server's response, as it was when it was read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HttpStamp {
    /// What was asked for.
    pub url: String,
    /// What answered, after redirects.
    pub final_url: String,
    /// What it was for: the request depends on it.
    pub purpose: Purpose,
    /// The name of the last response in the HTTP cache.
    pub key: String,
    /// Its status.
    pub status: u16,
    /// When the server was asked, nanoseconds since 1970.
    pub fetched_ns: u64,
    /// Until when nobody needs to ask, nanoseconds since 1970, its redirects included; 0 if always.
    pub fresh_until_ns: u64,
    /// Its `ETag`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub etag: Option<String>,
    /// Its `Last-Modified`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_modified: Option<String>,
    /// BLAKE3 of its content, decompressed.
    #[serde(with = "hex")]
    pub hash: [u8; 32],
}

/// A resource that could not be had, and why: a page made without it is made anew when it is there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MissingStamp {
    /// What was asked for.
    pub url: String,
    /// By whom.
    pub origin: Origin,
    /// What for.
    pub purpose: Purpose,
    /// The kind of the cause, see [`Cause::kind`](super::Cause::kind).
    pub kind: String,
    /// The cause, for people.
    pub why: String,
    /// When it was asked for, nanoseconds since 1970.
    pub fetched_ns: u64,
    /// Until when the server lets its refusal be kept, nanoseconds since 1970; 0 if not at all.
    pub fresh_until_ns: u64,
}

/// What a server refused is not asked for again within this time; what it did not answer is, see `keep::RetryNote`.
const REFUSAL_IS_TRUSTED_NS: u64 = 600 * 1_000_000_000;

impl MissingStamp {
    /// Could asking again bring something? At once if the server could not be reached or was late, else in some minutes, or
    /// when the server says so.
    pub fn is_due(&self, now_ns: u64) -> bool {
        let passing = !matches!(
            self.kind.as_str(),
            "status" | "redirects" | "bad-address" | "refused" | "too-large" | "no-page"
        );
        let trusted_until = self.fetched_ns.saturating_add(REFUSAL_IS_TRUSTED_NS);
        passing || now_ns >= trusted_until.max(self.fresh_until_ns)
    }
}

/// Is a resource still what it was?
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Still {
    /// It is, or nobody needs to ask yet.
    Same,
    /// It is not, for this reason.
    Changed(String),
    /// That could not be found out, for this reason.
    Unknown(String),
}

impl Stamp {
    /// The address that it is of; none for `data:` and objects of the store.
    pub fn url(&self) -> Option<&str> {
        match self {
            Stamp::File(file) => Some(&file.url),
            Stamp::Http(http) => Some(&http.url),
            Stamp::Missing(missing) => Some(&missing.url),
            Stamp::Data | Stamp::Object(_) => None,
        }
    }

    /// The BLAKE3 hash of the content, if there is one that can change.
    pub fn hash(&self) -> Option<&[u8; 32]> {
        match self {
            Stamp::File(file) => Some(&file.hash),
            Stamp::Http(http) => Some(&http.hash),
            Stamp::Data | Stamp::Object(_) | Stamp::Missing(_) => None,
        }
    }
}

/// Hashes as 64 hexadecimal digits.
mod hex {
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    pub(super) fn serialize<S: Serializer>(hash: &[u8; 32], to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(blake3::Hash::from_bytes(*hash).to_hex().as_str())
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<[u8; 32], D::Error> {
        let digits = String::deserialize(from)?;
        let hash = blake3::Hash::from_hex(digits).map_err(D::Error::custom)?;
        Ok(*hash.as_bytes())
    }
}
