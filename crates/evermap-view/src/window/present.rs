//! Presents frames to the display. The only file that uses `softbuffer`; `x11` implements X11.
//!
//! `softbuffer` is used only on Wayland. Its X11 support would load libX11 at each start of the
//! program, before `main`, even if no window is opened.

mod x11;

use std::num::NonZeroU32;
use std::rc::Rc;

use softbuffer::{Context, Surface};
use winit::event_loop::{ActiveEventLoop, OwnedDisplayHandle};
use winit::raw_window_handle::{HasWindowHandle, RawWindowHandle};
use winit::window::Window;

use self::x11::X11;
use crate::{Result, ViewError};

/// Shows pixels in a window, on X11 or Wayland.
///
/// ```no_run
/// use std::rc::Rc;
///
/// use evermap_view::window::Presenter;
/// use evermap_view::{Result, ViewError};
/// use winit::event_loop::ActiveEventLoop;
/// use winit::window::Window;
///
/// fn show_gray(event_loop: &ActiveEventLoop, window: Rc<Window>) -> Result<()> {
///     let size = window.inner_size();
///     let mut presenter = Presenter::new(event_loop, window)?;
///     presenter.present(size.width, size.height, |pixels| {
///         pixels.fill(0x0080_8080);
///         Ok::<(), ViewError>(())
///     })
/// }
/// ```
pub struct Presenter {
    window: Rc<Window>,
    display: Display,
}

enum Display {
    X11(Box<X11>),
    Other(Surface<OwnedDisplayHandle, Rc<Window>>),
}

impl Presenter {
    /// Creates a presenter for a window of this event loop. On X11 this opens another connection to
    /// the display.
    ///
    /// # Errors
    /// Returns [`ViewError::NoWindow`] if the display uses a colour palette, or the connection is
    /// lost.
    pub fn new(event_loop: &ActiveEventLoop, window: Rc<Window>) -> Result<Presenter> {
        let handle = window.window_handle().map_err(no_window)?.as_raw();
        let display = match handle {
            RawWindowHandle::Xlib(handle) => {
                Display::X11(Box::new(X11::new(handle.window as u32)?))
            }
            _ => {
                let context = Context::new(event_loop.owned_display_handle()).map_err(no_window)?;
                Display::Other(Surface::new(&context, window.clone()).map_err(no_window)?)
            }
        };
        Ok(Presenter { window, display })
    }

    /// Shows a frame of `width` x `height` device pixels in the window's top left corner.
    ///
    /// `paint` receives the pixels row by row, each 0x00RRGGBB, and must write all of them: they
    /// initially hold an older frame or arbitrary values. If it fails, the window's content does
    /// not change. A frame without pixels is ignored.
    ///
    /// Costs no copy of the pixels if the display is on this machine. Waits if the display is still
    /// reading the previous frame.
    ///
    /// # Errors
    /// Returns errors of `paint`. Returns [`ViewError::NoWindow`] if the window or the display is
    /// gone, possibly one frame late.
    pub fn present<E: From<ViewError>>(
        &mut self,
        width: u32,
        height: u32,
        paint: impl FnOnce(&mut [u32]) -> std::result::Result<(), E>,
    ) -> std::result::Result<(), E> {
        let (Some(columns), Some(rows)) = (NonZeroU32::new(width), NonZeroU32::new(height)) else {
            return Ok(());
        };
        match &mut self.display {
            Display::X11(display) => {
                paint(display.pixels(width, height)?)?;
                display.show(width, height)?;
            }
            Display::Other(surface) => {
                surface.resize(columns, rows).map_err(no_window)?;
                let mut buffer = surface.buffer_mut().map_err(no_window)?;
                paint(&mut buffer)?;
                self.window.pre_present_notify();
                buffer.present().map_err(no_window)?;
            }
        }
        Ok(())
    }
}

/// Converts an error of the window system's libraries.
pub(super) fn no_window(error: impl std::fmt::Display) -> ViewError {
    let message = error.to_string();
    // Removes the position in the library's source code from the message.
    let cause = message.strip_prefix("os error at ").and_then(|rest| rest.split_once(": "));
    let cause = cause.map_or(message.as_str(), |(_, cause)| cause);
    ViewError::NoWindow(cause.trim_end_matches('.').to_string())
}
