//! Bytes of a page that are verified when they are first used.
//!
//! A kept page lies in a file that may be damaged, and most visits touch a small part of it. So nothing is
//! verified when a page is opened; each part is, before its first byte is used. A part that is damaged reads
//! as empty, and the page remembers that: what was painted from it is not shown.

use std::ops::Range;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};

use super::tables::AlignedBytes;

/// Bytes of a page: in memory, or mapped from a file.
pub trait PageBytes: Send + Sync {
    /// The bytes, the same at every call.
    fn bytes(&self) -> &[u8];

    /// Verifies a range of them, which lies in [`bytes`](PageBytes::bytes). Called often: the same bytes should
    /// cost something only once. Bytes in memory need no verification, which is the default.
    ///
    /// # Errors
    /// When they are not what was written: what was found.
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

/// Bytes with a note of which sections were verified, and of the first damage that was found.
pub(crate) struct Guarded {
    bytes: Arc<dyn PageBytes>,
    /// A bit a section: it was verified as a whole.
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

    /// Is this range what was written? If not, that is noted.
    pub fn is_good(&self, range: Range<usize>) -> bool {
        match self.bytes.verify(range) {
            Ok(()) => true,
            Err(why) => {
                self.damage.get_or_init(|| why);
                false
            }
        }
    }

    /// Like [`is_good`](Guarded::is_good) for a section as a whole, by its number, which is below 32: the second
    /// call costs a look at a bit.
    pub fn is_section_good(&self, number: usize, range: Range<usize>) -> bool {
        if self.has_section(number) {
            return true;
        }
        let good = self.is_good(range);
        if good {
            // The bit stands for itself only: the bytes were there before.
            self.sections.fetch_or(1 << number, Ordering::Relaxed);
        }
        good
    }

    /// Was this section verified as a whole?
    pub fn has_section(&self, number: usize) -> bool {
        self.sections.load(Ordering::Relaxed) & 1 << number != 0
    }

    /// The first damage that was found.
    pub fn damage(&self) -> Option<&str> {
        self.damage.get().map(String::as_str)
    }
}
