//! Size and scale of the window that a page is laid out for.

/// Size and scale of the window that a page is laid out for.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Layout {
    /// Width in device pixels.
    pub width: u32,
    /// Height in device pixels.
    pub height: u32,
    /// Device pixels per CSS pixel.
    pub scale: f32,
}

impl Default for Layout {
    fn default() -> Layout {
        Layout { width: 1024, height: 768, scale: 1.0 }
    }
}
