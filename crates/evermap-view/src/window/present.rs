//! Frames to the display: the one file that knows `softbuffer`, above the one that speaks to an X11 display.
//!
//! `softbuffer` presents on Wayland only. For X11 it would load libX11 at each start of the program, before `main` and
//! whether a window is wanted or not.

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
    /// For a window of this event loop's. On X11 that is one more connection to the display.
    ///
    /// # Errors
    /// [`ViewError::NoWindow`] when the display shows colours in a way of its own (a palette), or is lost.
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
    /// `paint` gets its pixels row by row, each 0x00RRGGBB, and has to write them all: what is in them before is an older
    /// frame or nothing. When it fails, the window goes on showing what it shows. Of a frame without pixels nothing is done.
    ///
    /// Costs no copy of the pixels where the display is on this machine. Waits for the display if that is still reading
    /// the frame before.
    ///
    /// # Errors
    /// What `paint` returns. [`ViewError::NoWindow`] when the window or the display is gone, possibly one frame late.
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

/// What the window system's libraries say, as an error of this crate.
pub(super) fn no_window(error: impl std::fmt::Display) -> ViewError {
    let said = error.to_string();
    // The library begins with where in its source it noticed.
    let cause = said.strip_prefix("os error at ").and_then(|rest| rest.split_once(": "));
    let cause = cause.map_or(said.as_str(), |(_, cause)| cause);
    ViewError::NoWindow(cause.trim_end_matches('.').to_string())
}
