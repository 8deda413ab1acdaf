//! Stores a response as an object, and reads it from a file that may be damaged.
//!
//! A store verifies page checksums only if the program requests that, which would be too expensive
//! for an HTTP cache. So this module checks that all parts of an entry lie in its object before it
//! reads them, and verifies them by the entry's own hashes. A damaged entry counts as missing.

use std::mem::offset_of;
use std::sync::Arc;

use bytes::Bytes;
use evermap::{Build, Built, HeapError, PVec, Persist, Slot, Snapshot, Store};
use http_cache_semantics::CachePolicy;

use crate::stored_object::{self, Unusable};

/// Root of the object of a response. All parts share one vector, because an object with a single
/// block has no slack: a small response takes 16 KiB. With three blocks it took 160 KiB, and large
/// responses twice their size.
#[derive(Persist)]
#[persist(name = "EvermapHttpResponse")]
#[repr(C)]
pub(super) struct CachedResponse {
    /// Time when it was received or confirmed, nanoseconds since 1970.
    stored_ns: u64,
    /// BLAKE3 of the body.
    body_hash: [u8; 32],
    /// BLAKE3 of everything except the body, see [`seal`].
    seal: [u8; 32],
    /// Bytes of the address.
    url_bytes: u64,
    /// Bytes of the policy.
    policy_bytes: u64,
    /// Address without its fragment, then the policy (headers of request and response, as JSON of
    /// `http-cache-semantics` 3), then the decompressed content.
    parts: PVec<u8>,
}

/// Parts from which a [`CachedResponse`] is built.
pub(super) struct NewResponse<'a> {
    pub(super) stored_ns: u64,
    pub(super) hash: [u8; 32],
    pub(super) url: &'a str,
    pub(super) policy: &'a [u8],
    pub(super) body: &'a [u8],
}

impl NewResponse<'_> {
    fn bytes(&self) -> usize {
        self.url.len() + self.policy.len() + self.body.len()
    }
}

impl Build<NewResponse<'_>> for CachedResponse {
    fn expected_bytes(new: &NewResponse<'_>) -> Option<u64> {
        Some(new.bytes() as u64)
    }

    fn build<'a>(new: NewResponse<'_>, slot: Slot<'a, Self>) -> Result<Built<'a, Self>, HeapError> {
        let empty = CachedResponse {
            stored_ns: new.stored_ns,
            body_hash: new.hash,
            seal: seal(new.stored_ns, &new.hash, new.url.as_bytes(), new.policy),
            url_bytes: new.url.len() as u64,
            policy_bytes: new.policy.len() as u64,
            parts: PVec::new(),
        };
        slot.write_with(empty, |mut response| {
            let mut parts = response.fields().parts;
            parts.reserve_exact(new.bytes())?;
            parts.extend_from_slice(new.url.as_bytes())?;
            parts.extend_from_slice(new.policy)?;
            parts.extend_from_slice(new.body)
        })
    }
}

impl CachedResponse {
    /// Returns address, policy and content, or `None` if their lengths exceed the vector.
    fn parts(&self) -> Option<(&[u8], &[u8], &[u8])> {
        let (url, rest) = self.parts.split_at_checked(usize::try_from(self.url_bytes).ok()?)?;
        let (policy, body) = rest.split_at_checked(usize::try_from(self.policy_bytes).ok()?)?;
        Some((url, policy, body))
    }

    /// Returns the content without verifying it.
    pub(super) fn body(&self) -> Bytes {
        self.parts().map_or_else(Bytes::new, |(.., body)| Bytes::copy_from_slice(body))
    }
}

/// Hashes everything except the body, each part preceded by its length.
fn seal(stored_ns: u64, body_hash: &[u8; 32], url: &[u8], policy: &[u8]) -> [u8; 32] {
    let mut hasher = blake3::Hasher::new();
    hasher.update(&stored_ns.to_le_bytes()).update(body_hash);
    for part in [url, policy] {
        hasher.update(&(part.len() as u64).to_le_bytes()).update(part);
    }
    *hasher.finalize().as_bytes()
}

/// A response in the cache.
pub(super) struct Entry {
    pub(super) url: String,
    pub(super) policy: CachePolicy,
    pub(super) hash: [u8; 32],
    pub(super) stored_ns: u64,
    pub(super) body: Body,
}

/// Location of a response's content.
#[derive(Clone)]
pub(super) enum Body {
    /// In this process; not stored yet.
    Memory(Bytes),
    /// In the store.
    Stored(Arc<Snapshot<CachedResponse>>),
}

impl Entry {
    /// Returns the content, or `None` if it is damaged.
    pub(super) fn body(&self) -> Option<Bytes> {
        match &self.body {
            Body::Memory(bytes) => Some(bytes.clone()),
            Body::Stored(response) => {
                let bytes = response.body();
                (*blake3::hash(&bytes).as_bytes() == self.hash).then_some(bytes)
            }
        }
    }

    /// Returns the size of the content, in bytes.
    pub(super) fn body_bytes(&self) -> u64 {
        match &self.body {
            Body::Memory(bytes) => bytes.len() as u64,
            Body::Stored(response) => response.parts.len() as u64,
        }
    }
}

/// Reads an entry without its content. Returns `None` if it does not exist.
///
/// # Errors
/// Returns a description of the damage, or of the store's failure.
pub(super) fn read(store: &Store, name: &str, url: &str) -> Result<Option<Entry>, String> {
    let damaged = |what: &str| {
        Err(format!("the cached response `{name}` is damaged ({what}); it is fetched again"))
    };
    let response =
        match stored_object::open::<CachedResponse>(store, name, offset_of!(CachedResponse, parts))
        {
            Ok(response) => response,
            Err(Unusable::Missing) => return Ok(None),
            Err(Unusable::Damaged(why)) => return damaged(&why),
            Err(Unusable::Store(e)) => return Err(e.to_string()),
        };
    let sealed = response.parts().filter(|(its_url, policy, _)| {
        seal(response.stored_ns, &response.body_hash, its_url, policy) == response.seal
    });
    let Some((its_url, policy, _)) = sealed else { return damaged("its seal") };
    // Another address has the same name. The probability is 2^-128.
    if its_url != url.as_bytes() {
        return Ok(None);
    }
    let Ok(policy) = serde_json::from_slice(policy) else {
        return damaged("its policy, or one of another version");
    };
    let (hash, stored_ns) = (response.body_hash, response.stored_ns);
    let body = Body::Stored(Arc::new(response));
    Ok(Some(Entry { url: url.to_string(), policy, hash, stored_ns, body }))
}
