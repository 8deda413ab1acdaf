//! Size of a page, and its limits.

/// Maximum width of a page that can be painted. The rasterizer counts columns in 16 bits.
pub const WIDTH_MAX: u32 = 16_384;
/// Maximum height of a page that can be painted. Vertical positions are exact in `f32` up to here.
pub const HEIGHT_MAX: u32 = 1 << 24;
/// Maximum number of device pixels per CSS pixel.
pub(super) const SCALE_MAX: f32 = 1_024.0;

/// Size of a recorded page.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PageSize {
    /// Width of the page in device pixels.
    pub width: u32,
    /// Height of the page in device pixels.
    pub height: u32,
    /// Size of the window that the page was laid out for, in device pixels.
    pub window: (u32, u32),
    /// Device pixels per CSS pixel.
    pub scale: f32,
}
