//! Stamps identify the version of a resource that a stored page was made from. A stamp is small and
//! can be stored as JSON. It expires only when the server says so. `check` compares it with the
//! resource's current state.

use serde::{Deserialize, Serialize};

use super::request::{Origin, Purpose};

/// Identifies a version of a resource, so that a later process can check cheaply whether it has
/// changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "of", rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Stamp {
    /// A file.
    File(FileStamp),
    /// A server's response.
    Http(HttpStamp),
    /// A `data:` address, which contains its content.
    Data,
    /// An object of the store.
    Object(ObjectStamp),
    /// A resource that was not available.
    Missing(MissingStamp),
}

/// State of a file when it was read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileStamp {
    /// `file:` address.
    pub url: String,
    /// Device number.
    pub device: u64,
    /// Inode number.
    pub inode: u64,
    /// Size in bytes.
    pub size_bytes: u64,
    /// Last change of the content, nanoseconds since 1970.
    pub modified_ns: i64,
    /// Last change of the inode, nanoseconds since 1970.
    pub changed_ns: i64,
    /// True if the file had not changed for two seconds when it was read. Otherwise its times are
    /// not reliable.
    pub settled: bool,
    /// BLAKE3 of the content.
    #[serde(with = "hex")]
    pub hash: [u8; 32],
}

/// An object of the store, at one commit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ObjectStamp {
    /// Name of the object.
    pub name: String,
    /// Id of the object. A replacement has a different id.
    pub uuid: String,
    /// Number of the commit that was read.
    pub sequence: u64,
}

/// A server's response when it was read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HttpStamp {
    /// Requested address.
    pub url: String,
    /// Address after redirects.
    pub final_url: String,
    /// Purpose; the request headers depend on it.
    pub purpose: Purpose,
    /// Name of the final response in the HTTP cache.
    pub key: String,
    /// Status code.
    pub status: u16,
    /// Time of the request, nanoseconds since 1970.
    pub fetched_ns: u64,
    /// End of the freshness of the response and its redirects, nanoseconds since 1970; 0 if any
    /// must always be revalidated.
    pub fresh_until_ns: u64,
    /// `ETag` header.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub etag: Option<String>,
    /// `Last-Modified` header.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_modified: Option<String>,
    /// BLAKE3 of the decompressed content.
    #[serde(with = "hex")]
    pub hash: [u8; 32],
}

/// A resource that was not available, with the reason. A page made without it is made again once it
/// is available.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MissingStamp {
    /// Requested address.
    pub url: String,
    /// Origin of the page that requested it.
    pub origin: Origin,
    /// Purpose of the resource.
    pub purpose: Purpose,
    /// Kind of the cause, see [`Cause::kind`](super::Cause::kind).
    pub kind: String,
    /// Cause, for people.
    pub why: String,
    /// Time of the request, nanoseconds since 1970.
    pub fetched_ns: u64,
    /// End of the time for which the server allows its error to be cached, nanoseconds since 1970;
    /// 0 if it does not.
    pub fresh_until_ns: u64,
}

/// Time before a resource that a server refused is requested again. Unanswered requests are retried
/// as `RetryNote` says.
const REFUSAL_LIFETIME_NS: u64 = 600 * 1_000_000_000;

impl MissingStamp {
    /// Returns true if another request may succeed: immediately if the server was unreachable or
    /// late, else after a few minutes or when the server's error expires.
    pub fn is_due(&self, now_ns: u64) -> bool {
        let passing = !matches!(
            self.kind.as_str(),
            "status" | "redirects" | "bad-address" | "refused" | "too-large" | "no-page"
        );
        let trusted_until = self.fetched_ns.saturating_add(REFUSAL_LIFETIME_NS);
        passing || now_ns >= trusted_until.max(self.fresh_until_ns)
    }
}

/// Result of checking a stamp.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StampCheck {
    /// The resource is unchanged, or still fresh.
    Same,
    /// The resource has changed, with the reason.
    Changed(String),
    /// The check was not possible, with the reason.
    Unknown(String),
}

impl Stamp {
    /// Returns the address; `None` for `data:` and objects of the store.
    pub fn url(&self) -> Option<&str> {
        match self {
            Stamp::File(file) => Some(&file.url),
            Stamp::Http(http) => Some(&http.url),
            Stamp::Missing(missing) => Some(&missing.url),
            Stamp::Data | Stamp::Object(_) => None,
        }
    }

    /// Returns the BLAKE3 hash of the content, if the content can change.
    pub fn hash(&self) -> Option<&[u8; 32]> {
        match self {
            Stamp::File(file) => Some(&file.hash),
            Stamp::Http(http) => Some(&http.hash),
            Stamp::Data | Stamp::Object(_) | Stamp::Missing(_) => None,
        }
    }
}

/// Serializes hashes as 64 hexadecimal digits.
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
