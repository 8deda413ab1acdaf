//! Verifies the bytes of a page at their first use.
//!
//! A stored page lies in a file that may be damaged, and most visits use a small part of it. So
//! opening a page verifies nothing. Each part is verified before its first use. A damaged part
//! reads as empty, and the page records the damage, so that pixels painted from it are not shown.

use std::ops::Range;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};

use super::aligned::AlignedBytes;

/// Bytes of a page, in memory or mapped from a file.
pub trait PageBytes: Send + Sync {
    /// Returns the bytes, which must be the same at every call.
    fn bytes(&self) -> &[u8];

    /// Verifies a range of [`bytes`](PageBytes::bytes). Called often, so an implementation should
    /// verify the same bytes only once. The default is for bytes in memory, which need no
    /// verification.
    ///
    /// # Errors
    /// Returns a description of the damage.
    fn verify(&self, range: Range<usize>) -> Result<(), String> {
        let _ = range;
        Ok(())
    }
}

impl PageBytes for AlignedBytes {
    fn bytes(&self) -> &[u8] {
        self.as_bytes()
    }
}

/// Bytes with a record of the verified sections and of the first damage.
pub(crate) struct Guarded {
    bytes: Arc<dyn PageBytes>,
    /// One bit per section that was verified as a whole.
    sections: AtomicU32,
    damage: OnceLock<String>,
}

impl Guarded {
    pub fn new(bytes: Arc<dyn PageBytes>) -> Guarded {
        Guarded { bytes, sections: AtomicU32::new(0), damage: OnceLock::new() }
    }

    pub fn bytes(&self) -> &[u8] {
        self.bytes.bytes()
    }

    /// Verifies a range. Records the damage if it is not intact.
    pub fn verify(&self, range: Range<usize>) -> bool {
        match self.bytes.verify(range) {
            Ok(()) => true,
            Err(why) => {
                self.damage.get_or_init(|| why);
                false
            }
        }
    }

    /// Like [`verify`](Guarded::verify) for a whole section. Its number must be below 32. A second
    /// call costs one load.
    pub fn verify_section(&self, number: usize, range: Range<usize>) -> bool {
        if self.is_section_verified(number) {
            return true;
        }
        let good = self.verify(range);
        if good {
            // Relaxed is sufficient: the bit does not publish any other memory.
            self.sections.fetch_or(1 << number, Ordering::Relaxed);
        }
        good
    }

    /// Returns true if the section was verified as a whole.
    pub fn is_section_verified(&self, number: usize) -> bool {
        self.sections.load(Ordering::Relaxed) & 1 << number != 0
    }

    /// Returns the first damage found.
    pub fn damage(&self) -> Option<&str> {
        self.damage.get().map(String::as_str)
    }
}
