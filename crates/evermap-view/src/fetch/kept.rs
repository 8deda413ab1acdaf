//! A response as an object of the store, and how it is read from a file that may be damaged.
//!
//! A store's pages are compared with their checksums only if the program asks for that, and an HTTP
//! cache is not worth it. So nothing of an entry is followed before it is known to lie in the
//! object, and nothing is believed that its own hashes don't confirm: a damaged entry is none.

use std::mem::offset_of;
use std::sync::Arc;

use bytes::Bytes;
use evermap::{Build, Built, Error, PVec, Persist, Slot, Snapshot, Store};
use http_cache_semantics::CachePolicy;

use crate::kept_object::{self, Unusable};

/// A response, as the root of an object. One block for everything: an object of one block is made to
/// measure (16 KiB for a small response); of three, it took 160 KiB, and twice the size of large ones.
#[derive(Persist)]
#[persist(name = "EvermapHttpResponse")]
#[repr(C)]
pub(super) struct KeptResponse {
    /// When it was received or confirmed, nanoseconds since 1970.
    stored_ns: u64,
    /// BLAKE3 of the body.
    body_hash: [u8; 32],
    /// BLAKE3 of all but the body, see [`seal`].
    seal: [u8; 32],
    /// Bytes of the address.
    url_bytes: u64,
    /// Bytes of the policy.
    policy_bytes: u64,
    /// The address without its fragment; the headers of request and response, as JSON of
    /// `http-cache-semantics` 3; the content, decompressed.
    parts: PVec<u8>,
}

/// What a [`KeptResponse`] is built from.
pub(super) struct NewKept<'a> {
    pub(super) stored_ns: u64,
    pub(super) hash: [u8; 32],
    pub(super) url: &'a str,
    pub(super) policy: &'a [u8],
    pub(super) body: &'a [u8],
}

impl NewKept<'_> {
    fn bytes(&self) -> usize {
        self.url.len() + self.policy.len() + self.body.len()
    }
}

impl Build<NewKept<'_>> for KeptResponse {
    fn expected_bytes(new: &NewKept<'_>) -> Option<u64> {
        Some(new.bytes() as u64)
    }

    fn build<'a>(new: NewKept<'_>, slot: Slot<'a, Self>) -> Result<Built<'a, Self>, Error> {
        let empty = KeptResponse {
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

impl KeptResponse {
    /// Address, policy and content; nothing if their lengths are not those of the whole.
    fn parts(&self) -> Option<(&[u8], &[u8], &[u8])> {
        let (url, rest) = self.parts.split_at_checked(usize::try_from(self.url_bytes).ok()?)?;
        let (policy, body) = rest.split_at_checked(usize::try_from(self.policy_bytes).ok()?)?;
        Some((url, policy, body))
    }

    /// The content, whole or damaged.
    pub(super) fn body(&self) -> Bytes {
        self.parts().map_or_else(Bytes::new, |(.., body)| Bytes::copy_from_slice(body))
    }
}

/// BLAKE3 of everything but the body, each part with its length before it.
fn seal(stored_ns: u64, body_hash: &[u8; 32], url: &[u8], policy: &[u8]) -> [u8; 32] {
    let mut hasher = blake3::Hasher::new();
    hasher.update(&stored_ns.to_le_bytes()).update(body_hash);
    for part in [url, policy] {
        hasher.update(&(part.len() as u64).to_le_bytes()).update(part);
    }
    *hasher.finalize().as_bytes()
}

/// A response of the cache, wherever it is.
pub(super) struct Entry {
    pub(super) url: String,
    pub(super) policy: CachePolicy,
    pub(super) hash: [u8; 32],
    pub(super) stored_ns: u64,
    pub(super) body: KeptBody,
}

/// Where a response's content is.
#[derive(Clone)]
pub(super) enum KeptBody {
    /// In this process: it is not in the store yet.
    Here(Bytes),
    /// In the store.
    There(Arc<Snapshot<KeptResponse>>),
}

impl Entry {
    /// The content; nothing if it is damaged.
    pub(super) fn body(&self) -> Option<Bytes> {
        match &self.body {
            KeptBody::Here(bytes) => Some(bytes.clone()),
            KeptBody::There(kept) => {
                let bytes = kept.body();
                (*blake3::hash(&bytes).as_bytes() == self.hash).then_some(bytes)
            }
        }
    }

    /// Bytes of the content.
    pub(super) fn body_bytes(&self) -> u64 {
        match &self.body {
            KeptBody::Here(bytes) => bytes.len() as u64,
            KeptBody::There(kept) => kept.parts.len() as u64,
        }
    }
}

/// Reads an entry but for its content; nothing if there is none.
///
/// # Errors
/// What is wrong with it, or with the store.
pub(super) fn read(store: &Store, name: &str, url: &str) -> Result<Option<Entry>, String> {
    let damaged =
        |what: &str| Err(format!("the kept response `{name}` is damaged ({what}); it is replaced"));
    let kept = match kept_object::open::<KeptResponse>(store, name, offset_of!(KeptResponse, parts))
    {
        Ok(kept) => kept,
        Err(Unusable::Missing) => return Ok(None),
        Err(Unusable::Damaged(why)) => return damaged(&why),
        Err(Unusable::Store(e)) => return Err(e.to_string()),
    };
    let sealed = kept.parts().filter(|(its_url, policy, _)| {
        seal(kept.stored_ns, &kept.body_hash, its_url, policy) == kept.seal
    });
    let Some((its_url, policy, _)) = sealed else { return damaged("its seal") };
    // Another address of the same name: one in 2^128.
    if its_url != url.as_bytes() {
        return Ok(None);
    }
    let Ok(policy) = serde_json::from_slice(policy) else {
        return damaged("its policy, or one of another version");
    };
    let (hash, stored_ns) = (kept.body_hash, kept.stored_ns);
    let body = KeptBody::There(Arc::new(kept));
    Ok(Some(Entry { url: url.to_string(), policy, hash, stored_ns, body }))
}
