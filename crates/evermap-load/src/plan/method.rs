//! The ways to make an image, by name.

/// One way to make an image. `docs/load.md` says what each is best for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
#[non_exhaustive]
pub enum Method {
    /// Reads into private pages of 4 KiB.
    Read,
    /// Reads into private huge pages, by several threads.
    ReadHuge,
    /// The same; what that brings into the page cache is dropped again.
    ReadUncached,
    /// A private mapping.
    Mmap,
    /// The same, read ahead and mapped in units of 2 MiB.
    MmapHuge,
    /// The same, with all of it read ahead.
    MmapWillneed,
    /// The same, with all pages mapped beforehand.
    MmapPopulateRead,
    /// The same, with all pages copied beforehand.
    MmapPopulateWrite,
    /// A shared mapping to read; private when it is written to.
    MmapShared,
    /// Direct reads into the image's own huge pages.
    Takeover,
    /// Usable at once: windows that are touched are read first, and moved into place.
    TakeoverOnDemand,
    /// A shared mapping of a clone without a name.
    Clone,
}

impl Method {
    /// All there are.
    pub const ALL: [Method; 12] = [
        Method::Read,
        Method::ReadHuge,
        Method::ReadUncached,
        Method::Mmap,
        Method::MmapHuge,
        Method::MmapWillneed,
        Method::MmapPopulateRead,
        Method::MmapPopulateWrite,
        Method::MmapShared,
        Method::Takeover,
        Method::TakeoverOnDemand,
        Method::Clone,
    ];

    /// Its name, as in `--method`.
    pub fn name(self) -> &'static str {
        match self {
            Method::Read => "read",
            Method::ReadHuge => "read-huge",
            Method::ReadUncached => "read-uncached",
            Method::Mmap => "mmap",
            Method::MmapHuge => "mmap-huge",
            Method::MmapWillneed => "mmap-willneed",
            Method::MmapPopulateRead => "mmap-populate-read",
            Method::MmapPopulateWrite => "mmap-populate-write",
            Method::MmapShared => "mmap-shared",
            Method::Takeover => "takeover",
            Method::TakeoverOnDemand => "takeover-on-demand",
            Method::Clone => "clone",
        }
    }

    /// The method of this name.
    pub fn from_name(name: &str) -> Option<Method> {
        Method::ALL.into_iter().find(|method| method.name() == name)
    }

    /// Whether its image shows the file itself, or pages of the cache that are the file's: takes `may_map`.
    pub fn maps_the_file(self) -> bool {
        matches!(
            self,
            Method::Mmap
                | Method::MmapHuge
                | Method::MmapWillneed
                | Method::MmapPopulateRead
                | Method::MmapPopulateWrite
                | Method::MmapShared
        )
    }

    /// Whether all of its image is memory that only this process has, from the beginning.
    pub fn is_private(self) -> bool {
        !self.maps_the_file() && self != Method::Clone
    }
}

impl std::fmt::Display for Method {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.name())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn every_method_has_a_name_of_its_own() {
        for method in Method::ALL {
            assert_eq!(Method::from_name(method.name()), Some(method));
        }
        assert_eq!(Method::from_name("mnap"), None);
    }
}
