//! Memory for a screen of pixels.

use std::ops::{Deref, DerefMut};

use memmap2::{MmapMut, MmapOptions};

use crate::{Result, ViewError};

/// A picture in memory: rows of pixels, each 0x00RRGGBB, initially black.
///
/// The kernel populates the memory in one call. Writing a screen of 1024 x 768 to unpopulated
/// memory takes 768 page faults, which is longer than unpacking its pixels.
pub struct Pixels {
    memory: MmapMut,
}

impl Pixels {
    /// Allocates a picture of this size.
    ///
    /// # Errors
    /// Returns [`ViewError::BadSize`] if the picture has no pixels or does not fit into memory.
    pub fn new(width: u32, height: u32) -> Result<Pixels> {
        let bad = |why: String| ViewError::BadSize { width, height, why };
        let count = usize::try_from(u64::from(width) * u64::from(height)).ok();
        let bytes = count.and_then(|count| count.checked_mul(size_of::<u32>()));
        let bytes = bytes.filter(|bytes| *bytes > 0);
        let bytes =
            bytes.ok_or_else(|| bad("the size must not be 0 and must fit into memory".into()))?;
        let memory = MmapOptions::new().len(bytes).populate().map_anon();
        memory
            .map(|memory| Pixels { memory })
            .map_err(|error| bad(format!("cannot allocate memory: {error}")))
    }
}

impl Deref for Pixels {
    type Target = [u32];

    fn deref(&self) -> &[u32] {
        // Mappings are page-aligned, so they are aligned for `u32`.
        bytemuck::cast_slice(&self.memory)
    }
}

impl DerefMut for Pixels {
    fn deref_mut(&mut self) -> &mut [u32] {
        bytemuck::cast_slice_mut(&mut self.memory)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_picture_has_the_requested_number_of_pixels() {
        let mut pixels = Pixels::new(1023, 7).unwrap();
        assert_eq!(pixels.len(), 1023 * 7);
        assert!(pixels.iter().all(|pixel| *pixel == 0));
        pixels.fill(0x0012_3456);
        assert!(pixels.iter().all(|pixel| *pixel == 0x0012_3456));
    }

    #[test]
    fn zero_and_too_many_pixels_are_errors() {
        for (width, height) in [(0, 1), (1, 0), (u32::MAX, u32::MAX)] {
            let why = Pixels::new(width, height).err().unwrap().to_string();
            assert!(why.contains("memory"), "{why}");
        }
    }
}
