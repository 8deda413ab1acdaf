//! Load methods and their names.

/// Method of loading an image. `docs/load.md` explains when each is best.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
#[non_exhaustive]
pub enum Method {
    /// Reads into private pages of 4 KiB.
    Read,
    /// Reads into private huge pages, with several threads.
    ReadHuge,
    /// Like `ReadHuge`, but evicts the pages it brought into the page cache, in each window of 2
    /// MiB that was not cached before.
    ReadUncached,
    /// Private mapping.
    Mmap,
    /// Private mapping, read ahead and mapped in units of 2 MiB.
    MmapHuge,
    /// Private mapping, with the whole file read ahead.
    MmapWillneed,
    /// Private mapping, with all pages mapped in advance.
    MmapPopulateRead,
    /// Private mapping, with all pages copied in advance.
    MmapPopulateWrite,
    /// Shared read-only mapping. [`Image::bytes_mut`](crate::Image::bytes_mut) makes it private.
    MmapShared,
    /// Direct reads into private huge pages.
    Takeover,
    /// Usable at once. Windows are loaded in the background, accessed windows first, and moved into
    /// place.
    TakeoverOnDemand,
    /// Shared mapping of an unnamed clone.
    Clone,
}

impl Method {
    /// All methods.
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

    /// Returns the name, as in `--method`.
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

    /// Returns the method with this name.
    pub fn from_name(name: &str) -> Option<Method> {
        Method::ALL.into_iter().find(|method| method.name() == name)
    }

    /// Returns true if the image maps the file or its page cache. Such methods require `may_map`.
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

    /// Returns true if the image is private memory of this process from the start.
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
    fn every_method_has_a_unique_name() {
        for method in Method::ALL {
            assert_eq!(Method::from_name(method.name()), Some(method));
        }
        assert_eq!(Method::from_name("mnap"), None);
    }
}
