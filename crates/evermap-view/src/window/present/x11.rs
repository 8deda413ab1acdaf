//! Sends frames to an X11 display over its own connection, implemented in Rust without system
//! libraries.
//!
//! The display reads a frame from shared memory (MIT-SHM 1.2). The frame is sent over the
//! connection instead if the display is on another machine, lacks the extension, or has a different
//! pixel format.

use std::borrow::Cow;
use std::error::Error;
use std::fs::File;
use std::os::fd::OwnedFd;

use memmap2::MmapMut;
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};
use x11rb::connection::{Connection, RequestConnection};
use x11rb::errors::ReplyError;
use x11rb::image::{BitsPerPixel, ColorComponent, Image, ImageOrder, PixelLayout, ScanlinePad};
use x11rb::protocol::shm::{self, ConnectionExt as _};
use x11rb::protocol::xproto::{
    ConnectionExt as _, CreateGCAux, Gcontext, ImageFormat, Setup, Visualid, Window,
};
use x11rb::protocol::{ErrorKind, Event};
use x11rb::rust_connection::RustConnection;
use x11rb::x11_utils::X11Error;

use super::no_window;
use crate::{Result, ViewError};

/// Maximum side of a window. X11 coordinates are signed 16-bit numbers.
const SIDE_MAX: u32 = i16::MAX as u32;

/// Byte order of this machine.
const BYTE_ORDER: ImageOrder =
    if cfg!(target_endian = "little") { ImageOrder::LsbFirst } else { ImageOrder::MsbFirst };

/// A window on an X11 display, and the pixels of its next frame.
pub(super) struct X11 {
    connection: RustConnection,
    window: Window,
    context: Gcontext,
    depth: u8,
    layout: PixelLayout,
    /// True while sharing frames may be possible.
    shares: bool,
    /// The frame, if it is shared.
    segment: Option<Segment>,
    /// The frame, if it is sent.
    sent: Vec<u32>,
}

/// Memory shared with the display.
struct Segment {
    id: shm::Seg,
    memory: MmapMut,
    /// True from the request to show the frame until the display reports its completion.
    pending: bool,
}

impl X11 {
    /// Connects to a window of the display that `DISPLAY` names.
    pub fn new(window: Window) -> Result<X11> {
        let (connection, _) = RustConnection::connect(None).map_err(no_window)?;
        // Sends all requests before waiting for the first reply, which takes one round trip.
        connection.prefetch_extension_information(shm::X11_EXTENSION_NAME).map_err(no_window)?;
        let attributes = connection.get_window_attributes(window).map_err(no_window)?;
        let context = connection.generate_id().map_err(no_window)?;
        let values = CreateGCAux::new().graphics_exposures(0);
        connection.create_gc(context, window, &values).map_err(no_window)?;
        let visual = attributes.reply().map_err(reply_error)?.visual;
        let (depth, layout) = format_of(connection.setup(), visual)
            .ok_or_else(|| no_window("the display uses a colour palette"))?;
        let shares = has_rgb_layout(connection.setup(), depth, layout)?;
        let (segment, sent) = (None, Vec::new());
        Ok(X11 { connection, window, context, depth, layout, shares, segment, sent })
    }

    /// Returns the pixels of the next frame. Waits until the display has read the previous one.
    pub fn pixels(&mut self, width: u32, height: u32) -> Result<&mut [u32]> {
        if width > SIDE_MAX || height > SIDE_MAX {
            return Err(no_window(format!("{width} x {height} pixels exceed X11's maximum")));
        }
        self.wait_for_completion()?;
        let length = width as usize * height as usize;
        if self.shares {
            self.allocate_segment(length * size_of::<u32>())?;
        }
        let Some(segment) = &mut self.segment else {
            self.sent.resize(length, 0);
            return Ok(&mut self.sent);
        };
        Ok(&mut bytemuck::cast_slice_mut(&mut segment.memory)[..length])
    }

    /// Requests the display to show the frame. Errors are reported at the next frame.
    pub fn show(&mut self, width: u32, height: u32) -> Result<()> {
        let (width, height) = (width as u16, height as u16);
        let (window, context) = (self.window, self.context);
        if let Some(segment) = &mut self.segment {
            let format = ImageFormat::Z_PIXMAP.into();
            let put = self.connection.shm_put_image(
                window, context, width, height, 0, 0, width, height, 0, 0, self.depth, format,
                true, segment.id, 0,
            );
            put.map_err(no_window)?;
            segment.pending = true;
        } else {
            let (pad, bits) = (ScanlinePad::Pad32, BitsPerPixel::B32);
            let bytes = Cow::Borrowed(bytemuck::cast_slice(&self.sent));
            let image = Image::new(width, height, pad, self.depth, bits, BYTE_ORDER, bytes);
            let image = image.map_err(no_window)?;
            let setup = self.connection.setup();
            let image = image.reencode(rgb_layout()?, self.layout, setup).map_err(no_window)?;
            // Splits the image into requests of the display's maximum length.
            image.put(&self.connection, window, context, 0, 0).map_err(no_window)?;
        }
        self.connection.flush().map_err(no_window)
    }

    /// Waits until the display has read the last frame.
    fn wait_for_completion(&mut self) -> Result<()> {
        loop {
            let awaited = self.segment.as_mut().map(|segment| &mut segment.pending);
            let event = match &awaited {
                Some(true) => Some(self.connection.wait_for_event().map_err(no_window)?),
                _ => self.connection.poll_for_event().map_err(no_window)?,
            };
            match (event, awaited) {
                (None, _) => return Ok(()),
                (Some(Event::ShmCompletion(_)), Some(awaited)) => *awaited = false,
                // An error may arrive instead of a completion.
                (Some(Event::Error(error)), _) => return Err(refused(&error)),
                _ => (),
            }
        }
    }

    /// Allocates shared memory for a frame of `bytes`, if the display supports it.
    fn allocate_segment(&mut self, bytes: usize) -> Result<()> {
        if self.segment.as_ref().is_some_and(|segment| segment.memory.len() >= bytes) {
            return Ok(());
        }
        if let Some(segment) = self.segment.take() {
            self.connection.shm_detach(segment.id).map_err(no_window)?;
        }
        match Segment::new(&self.connection, bytes) {
            Ok(segment) => self.segment = Some(segment),
            Err(error) => {
                tracing::debug!(error, "cannot share frames with the display; sending them");
                self.shares = false;
            }
        }
        Ok(())
    }
}

impl Segment {
    fn new(
        connection: &RustConnection,
        bytes: usize,
    ) -> std::result::Result<Segment, Box<dyn Error>> {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let file = File::from(memfd_create("evermap-frame", flags)?);
        // Leaves room for growth while a window is enlarged step by step. Unwritten pages take no
        // memory.
        file.set_len(bytes.next_power_of_two() as u64)?;
        fcntl_add_seals(&file, SealFlags::SHRINK)?;
        // SAFETY: the file is shared only with the display, which maps it for reading. The seal
        // prevents shrinking, so the mapping stays valid. No reference to the bytes exists while
        // the display reads: `pixels` returns one only after `wait_for_completion` has returned.
        let memory = unsafe { MmapMut::map_mut(&file)? };
        let id = connection.generate_id()?;
        // Fails if the file can't be passed: the display is on another machine, or its extension is
        // older than 1.2.
        connection.shm_attach_fd(id, OwnedFd::from(file), true)?.check()?;
        Ok(Segment { id, memory, pending: false })
    }
}

/// Returns the depth and the colour layout of a window's pixels.
fn format_of(setup: &Setup, visual: Visualid) -> Option<(u8, PixelLayout)> {
    let depths = setup.roots.iter().flat_map(|screen| &screen.allowed_depths);
    let mut visuals = depths.flat_map(|depth| depth.visuals.iter().map(|v| (depth.depth, *v)));
    let (depth, visual) = visuals.find(|(_, known)| known.visual_id == visual)?;
    Some((depth, PixelLayout::from_visual_type(visual).ok()?))
}

/// Returns the layout of 0x00RRGGBB.
fn rgb_layout() -> Result<PixelLayout> {
    let color = |shift| ColorComponent::new(8, shift).map_err(no_window);
    Ok(PixelLayout::new(color(16)?, color(8)?, color(0)?))
}

/// Returns true if the window's pixel format equals 0x00RRGGBB in memory.
fn has_rgb_layout(setup: &Setup, depth: u8, layout: PixelLayout) -> Result<bool> {
    let order = ImageOrder::try_from(setup.image_byte_order).map_err(no_window)?;
    let format = setup.pixmap_formats.iter().find(|format| format.depth == depth);
    let is_word = format.is_some_and(|format| format.bits_per_pixel == 32);
    Ok(is_word && order == BYTE_ORDER && layout == rgb_layout()?)
}

fn reply_error(error: ReplyError) -> ViewError {
    match error {
        ReplyError::X11Error(error) => refused(&error),
        ReplyError::ConnectionError(error) => no_window(error),
    }
}

fn refused(error: &X11Error) -> ViewError {
    match error.error_kind {
        ErrorKind::Window | ErrorKind::Drawable => no_window("the window is gone"),
        kind => no_window(format!("the display refused a frame ({kind:?})")),
    }
}
