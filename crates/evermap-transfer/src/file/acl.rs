//! POSIX ACLs: the mode of a file whose ACL cannot be preserved.
//!
//! With an ACL, the group bits of a mode are the ACL's mask, and the owning group may have fewer
//! rights. Setting that mode on a file system without ACLs would give the group rights it never
//! had.

use std::ffi::CStr;

/// Extended attribute with a file's ACL.
pub(crate) const ACCESS: &CStr = c"system.posix_acl_access";
/// Extended attribute with the ACL inherited by files created in a directory.
pub(crate) const DEFAULT: &CStr = c"system.posix_acl_default";

/// Bytes before the first entry: the version.
const HEADER_BYTES: usize = 4;
/// Size of an entry: tag and permissions (2 bytes each) and id (4 bytes), little-endian.
const ENTRY_BYTES: usize = 8;
/// Tag of the owning group's entry.
const GROUP_OBJECT: u16 = 0x04;

/// Returns `mode` for a file without this ACL: the group bits are limited to the group's rights in
/// the ACL.
pub(crate) fn mode_without(acl: &[u8], mode: u32) -> u32 {
    let entries = acl.get(HEADER_BYTES..).unwrap_or_default().chunks_exact(ENTRY_BYTES);
    let group = entries
        .map(|entry| {
            (u16::from_le_bytes([entry[0], entry[1]]), u16::from_le_bytes([entry[2], entry[3]]))
        })
        .find_map(|(tag, permissions)| {
            (tag == GROUP_OBJECT).then_some(u32::from(permissions) & 0o7)
        });
    // An invalid ACL gives the group no rights.
    mode & !0o070 | (mode & group.unwrap_or(0) << 3)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn acl(entries: &[(u16, u16)]) -> Vec<u8> {
        let mut bytes = 2u32.to_le_bytes().to_vec();
        for (tag, permissions) in entries {
            bytes.extend(tag.to_le_bytes());
            bytes.extend(permissions.to_le_bytes());
            bytes.extend(u32::MAX.to_le_bytes());
        }
        bytes
    }

    #[test]
    fn group_gets_no_more_rights_than_its_acl_entry() {
        // user::rw- user:someone:rwx group::r-- mask::rwx other::---
        let acl = acl(&[(0x01, 6), (0x02, 7), (GROUP_OBJECT, 4), (0x10, 7), (0x20, 0)]);
        assert_eq!(mode_without(&acl, 0o670), 0o640);
    }

    #[test]
    fn mask_limits_the_group() {
        let acl = acl(&[(0x01, 6), (GROUP_OBJECT, 7), (0x10, 4), (0x20, 0)]);
        assert_eq!(mode_without(&acl, 0o640), 0o640);
    }

    #[test]
    fn invalid_acl_gives_the_group_no_rights() {
        assert_eq!(mode_without(b"\x02\x00", 0o674), 0o604);
    }
}
