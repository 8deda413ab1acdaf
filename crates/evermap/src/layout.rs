//! Names of the files of a store.
//!
//! A name identifies a file before its contents are read: an object's file is named by the object's
//! id, and the first bytes of the id are the token of the process that created it.

use std::path::Path;

/// The catalog object.
pub(crate) const CATALOG: &str = "catalog";
/// The catalog's log, which is never removed.
pub(crate) const CATALOG_LOG: &str = "catalog.log";
/// A catalog under construction.
pub(crate) const NEW_CATALOG: &str = "catalog.new";
/// File whose byte locks are address leases and makers' tokens.
pub(crate) const ADDRESSES: &str = "addresses";
/// Directory of the objects.
pub(crate) const OBJECTS: &str = "objects";
/// Directory in which objects are built.
pub(crate) const BUILDING: &str = "building";

/// File that marks the store as a backup and contains the path of the original.
pub(crate) const BACKUP_MARK: &str = "backup-of";

/// Files that a sandbox's host (the crate `evermap-wasm`) keeps next to the objects: permissions,
/// guest addresses and keys. The library does not read them. A copy or a move of a store must
/// include them: without them, no guest can open its objects again.
pub(crate) const HOST_TABLES: [&str; 2] = ["sandbox.access", "sandbox.keys"];
/// Lock file for changes of the host's tables. Always empty.
pub(crate) const HOST_LOCK: &str = "sandbox.lock";

/// Bytes of an object's id that hold its maker's token. Tokens used as lock offsets stay below
/// every window, so they never collide with an address.
pub(crate) const TOKEN_BYTES: usize = 5;

/// Byte of the lock file that each guest object open for writing holds locked, as its addresses are
/// not the store's. It follows the tokens and lies below every window.
pub(crate) const GUESTS_BYTE: u64 = 1 << (8 * TOKEN_BYTES);

/// Returns the maker's token in an object's id.
pub(crate) fn token_of(uuid: [u8; 16]) -> u64 {
    uuid[..TOKEN_BYTES].iter().fold(0, |token, byte| token << 8 | u64::from(*byte))
}

/// Parses the id that a file is named by. Returns `None` for any other name.
pub(crate) fn parse_uuid(name: &str) -> Option<[u8; 16]> {
    let digits = name.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
    let value = u128::from_str_radix(name, 16).ok()?;
    (name.len() == 32 && digits).then_some(value.to_be_bytes())
}

/// Returns the directory of an object's file or log, according to the names. `None` for any other
/// path.
pub(crate) fn directory_of_object(path: &Path) -> Option<&Path> {
    let directory = path.parent()?;
    let is_of_store = [OBJECTS, BUILDING].iter().any(|name| directory.ends_with(name));
    let uuid = path.file_stem()?.to_str().and_then(parse_uuid);
    Some(directory).filter(|_| is_of_store && uuid.is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_32_lower_case_hex_digits_name_an_object() {
        let name = "00ff0102030405060708090a0b0c0d0e";
        let uuid = parse_uuid(name).unwrap();
        assert_eq!(crate::object::hex(&uuid), name);
        assert_eq!(token_of(uuid), 0xff01_0203);
        let others = ["", "catalog", &name[1..], "+0ff0102030405060708090a0b0c0d0e"];
        assert!(others.iter().all(|other| parse_uuid(other).is_none()));
        assert!(parse_uuid(&name.to_uppercase()).is_none());
    }
}
