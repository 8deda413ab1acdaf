//! Memory for a screen of pixels.

use std::ops::{Deref, DerefMut};

use memmap2::{MmapMut, MmapOptions};

use crate::{Result, ViewError};

/// A picture in memory: rows of pixels, each 0x00RRGGBB, black at first.
///
/// All of its memory is there from the beginning, given by the kernel in one call: a screen of 1024 x 768 written to memory
/// that is not there yet takes 768 page faults, which is longer than it takes to unpack its pixels.
pub struct Pixels {
    memory: MmapMut,
}

impl Pixels {
    /// For a picture of this size.
    ///
    /// # Errors
    /// [`ViewError::BadSize`] when it has no pixels, or more than there is memory for.
    pub fn new(width: u32, height: u32) -> Result<Pixels> {
        let bad = |why: String| ViewError::BadSize { width, height, why };
        let count = usize::try_from(u64::from(width) * u64::from(height)).ok();
        let bytes = count.and_then(|count| count.checked_mul(size_of::<u32>()));
        let bytes = bytes.filter(|bytes| *bytes > 0);
        let bytes =
            bytes.ok_or_else(|| bad("a picture has pixels, and fits into memory".into()))?;
        let memory = MmapOptions::new().len(bytes).populate().map_anon();
        memory
            .map(|memory| Pixels { memory })
            .map_err(|error| bad(format!("there is no memory for it: {error}")))
    }
}

impl Deref for Pixels {
    type Target = [u32];

    fn deref(&self) -> &[u32] {
        // Mappings begin at a page.
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
    fn there_are_as_many_as_asked_for() {
        let mut pixels = Pixels::new(1023, 7).unwrap();
        assert_eq!(pixels.len(), 1023 * 7);
        assert!(pixels.iter().all(|pixel| *pixel == 0));
        pixels.fill(0x0012_3456);
        assert!(pixels.iter().all(|pixel| *pixel == 0x0012_3456));
    }

    #[test]
    fn too_few_and_too_many_are_errors() {
        for (width, height) in [(0, 1), (1, 0), (u32::MAX, u32::MAX)] {
            let why = Pixels::new(width, height).err().unwrap().to_string();
            assert!(why.contains("memory"), "{why}");
        }
    }
}
