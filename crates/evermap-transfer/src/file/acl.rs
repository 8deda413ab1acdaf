//! POSIX ACLs, as far as a copy has to understand them: what a mode means when its ACL cannot be kept.
//!
//! With an ACL, the group's bits of a mode are the ACL's mask, and the owning group may well have less. A mode that is
//! brought to a file system without ACLs as it is would give that group what it never had.

use std::ffi::CStr;

/// The extended attribute that is a file's ACL.
pub(crate) const ACCESS: &CStr = c"system.posix_acl_access";
/// The one that a directory gives to what is made in it.
pub(crate) const DEFAULT: &CStr = c"system.posix_acl_default";

/// Bytes before the first entry: the version.
const HEADER_BYTES: usize = 4;
/// Tag, permissions (2 bytes each) and id (4 bytes), little-endian.
const ENTRY_BYTES: usize = 8;
/// The tag of the owning group's entry.
const GROUP_OBJECT: u16 = 0x04;

/// `mode` for a file that cannot have this ACL: the group's bits are those that the ACL leaves the group.
pub(crate) fn mode_without(acl: &[u8], mode: u32) -> u32 {
    let entries = acl.get(HEADER_BYTES..).unwrap_or_default().chunks_exact(ENTRY_BYTES);
    let group = entries
        .map(|entry| {
            (u16::from_le_bytes([entry[0], entry[1]]), u16::from_le_bytes([entry[2], entry[3]]))
        })
        .find_map(|(tag, permissions)| {
            (tag == GROUP_OBJECT).then_some(u32::from(permissions) & 0o7)
        });
    // What can't be understood gives the group nothing.
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
    fn a_group_gets_no_more_than_its_acl_gave_it() {
        // user::rw- user:someone:rwx group::r-- mask::rwx other::---
        let acl = acl(&[(0x01, 6), (0x02, 7), (GROUP_OBJECT, 4), (0x10, 7), (0x20, 0)]);
        assert_eq!(mode_without(&acl, 0o670), 0o640);
    }

    #[test]
    fn the_mask_still_bounds_the_group() {
        let acl = acl(&[(0x01, 6), (GROUP_OBJECT, 7), (0x10, 4), (0x20, 0)]);
        assert_eq!(mode_without(&acl, 0o640), 0o640);
    }

    #[test]
    fn an_acl_that_is_none_gives_the_group_nothing() {
        assert_eq!(mode_without(b"\x02\x00", 0o674), 0o604);
    }
}
