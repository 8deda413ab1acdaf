//! The window that a page is laid out for.

/// The window that a page is laid out for.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Layout {
    /// Device pixels across.
    pub width: u32,
    /// Device pixels down.
    pub height: u32,
    /// Device pixels a CSS pixel.
    pub scale: f32,
}

impl Default for Layout {
    fn default() -> Layout {
        Layout { width: 1024, height: 768, scale: 1.0 }
    }
}
