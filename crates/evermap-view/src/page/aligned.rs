//! Memory for a page block.

/// Bytes that are aligned to 8, as a block requires.
#[derive(Clone, Default)]
pub struct AlignedBytes {
    words: Vec<u64>,
    length: usize,
}

impl AlignedBytes {
    /// Returns `length` zero bytes.
    pub fn zeroed(length: usize) -> AlignedBytes {
        AlignedBytes { words: vec![0; length.div_ceil(8)], length }
    }

    /// Returns a copy of `bytes`.
    pub fn copy_of(bytes: &[u8]) -> AlignedBytes {
        let mut copy = AlignedBytes::zeroed(bytes.len());
        copy.as_mut_bytes().copy_from_slice(bytes);
        copy
    }

    /// Returns the bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &bytemuck::cast_slice(&self.words)[..self.length]
    }

    /// Returns the bytes for writing.
    pub fn as_mut_bytes(&mut self) -> &mut [u8] {
        &mut bytemuck::cast_slice_mut(&mut self.words)[..self.length]
    }
}

impl AsRef<[u8]> for AlignedBytes {
    fn as_ref(&self) -> &[u8] {
        self.as_bytes()
    }
}
