//! What the files of a store are called.
//!
//! A name says what a file is before anything in it is read: an object's file is named by its id,
//! and the id's first bytes are the token of the process that made it.

/// The catalog object.
pub(crate) const CATALOG: &str = "catalog";
/// Its log, kept for good.
pub(crate) const CATALOG_LOG: &str = "catalog.log";
/// A catalog that is being made.
pub(crate) const NEW_CATALOG: &str = "catalog.new";
/// The file whose byte locks are address leases and makers' tokens.
pub(crate) const ADDRESSES: &str = "addresses";
/// Where the objects are.
pub(crate) const OBJECTS: &str = "objects";
/// Where objects are made.
pub(crate) const BUILDING: &str = "building";

/// What a sandbox's host (the crate `evermap-wasm`) keeps beside the objects: who may use which, at which
/// guest addresses, and by which keys. The library looks into none of it. Whoever copies or moves a
/// store takes them along: without them no guest gets its objects again.
pub(crate) const HOST_TABLES: [&str; 2] = ["sandbox.access", "sandbox.keys"];
/// Locked while one of those is changed; empty.
pub(crate) const HOST_LOCK: &str = "sandbox.lock";

/// Bytes of an object's id that are its maker's token. Tokens as lock offsets stay below every
/// window, so they never meet an address.
pub(crate) const TOKEN_BYTES: usize = 5;

/// The maker's token of an object's id.
pub(crate) fn token_of(uuid: [u8; 16]) -> u64 {
    uuid[..TOKEN_BYTES].iter().fold(0, |token, byte| token << 8 | u64::from(*byte))
}

/// The id that a file is named by; `None` for every other name.
pub(crate) fn parse_uuid(name: &str) -> Option<[u8; 16]> {
    let digits = name.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
    let value = u128::from_str_radix(name, 16).ok()?;
    (name.len() == 32 && digits).then_some(value.to_be_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_32_lower_case_digits_name_an_object() {
        let name = "00ff0102030405060708090a0b0c0d0e";
        let uuid = parse_uuid(name).unwrap();
        assert_eq!(crate::object::hex(&uuid), name);
        assert_eq!(token_of(uuid), 0xff01_0203);
        let others = ["", "catalog", &name[1..], "+0ff0102030405060708090a0b0c0d0e"];
        assert!(others.iter().all(|other| parse_uuid(other).is_none()));
        assert!(parse_uuid(&name.to_uppercase()).is_none());
    }
}
