//! Window of the television: receives keys and shows frames; [`crate::state`] has the logic.

use std::path::PathBuf;
use std::rc::Rc;
use std::time::{Duration, Instant};

use evermap_view::window::Presenter;
use winit::application::ApplicationHandler;
use winit::dpi::PhysicalSize;
use winit::event::{ElementState, WindowEvent};
use winit::event_loop::{ActiveEventLoop, ControlFlow, EventLoop};
use winit::keyboard::{Key as WinitKey, ModifiersState, NamedKey};
use winit::window::{Fullscreen, Window, WindowId};

use crate::error::{Result, TvError};
use crate::start::{StartOptions, Started, start};
use crate::state::{Key, Outcome};

/// Time between frames of an animation.
const FRAME: Duration = Duration::from_millis(16);

/// Shows the user interface until the user leaves it.
///
/// # Errors
/// Fails without a display, and with the errors of [`start`].
pub fn run(options: StartOptions, fullscreen: bool) -> Result<()> {
    let began = Instant::now();
    let started = start(&options)?;
    let event_loop = EventLoop::new().map_err(no_window)?;
    let mut app = App {
        store: options.store,
        started,
        began,
        fullscreen,
        window: None,
        modifiers: ModifiersState::empty(),
        moved: None,
        stale: false,
        presented: false,
        ended: None,
    };
    event_loop.run_app(&mut app).map_err(no_window)?;
    app.ended.map_or(Ok(()), Err)
}

fn no_window(error: impl std::fmt::Display) -> TvError {
    let said = error.to_string();
    // The library's message begins with a position in its source.
    let cause = said.strip_prefix("os error at ").and_then(|rest| rest.split_once(": "));
    let cause = cause.map_or(said.as_str(), |(_, cause)| cause);
    TvError::NoWindow(cause.trim_end_matches('.').to_string())
}

struct App {
    store: PathBuf,
    started: Started,
    began: Instant,
    fullscreen: bool,
    window: Option<(Rc<Window>, Presenter)>,
    modifiers: ModifiersState,
    /// Time of the last animation step.
    moved: Option<Instant>,
    /// True if the pixels are older than the state.
    stale: bool,
    presented: bool,
    ended: Option<TvError>,
}

impl App {
    fn open(&mut self, event_loop: &ActiveEventLoop) -> Result<()> {
        let (width, height) = self.started.interface().size();
        let mut attributes = Window::default_attributes()
            .with_title("Evermap TV")
            .with_inner_size(PhysicalSize::new(width, height));
        if self.fullscreen {
            attributes = attributes.with_fullscreen(Some(Fullscreen::Borderless(None)));
        }
        let window = Rc::new(event_loop.create_window(attributes).map_err(no_window)?);
        let presenter = Presenter::new(event_loop, window.clone())?;
        window.request_redraw();
        self.window = Some((window, presenter));
        Ok(())
    }

    fn draw(&mut self) -> Result<()> {
        if let Some(last) = self.moved {
            let now = Instant::now();
            // Limits the first step after a pause.
            let seconds = now.duration_since(last).as_secs_f32().min(0.05);
            self.moved = self.started.state.advance(seconds).then_some(now);
            self.stale = true;
        }
        if std::mem::take(&mut self.stale) {
            self.started.repaint()?;
        }
        self.present()?;
        if !std::mem::replace(&mut self.presented, true) {
            let ms = self.began.elapsed().as_secs_f64() * 1000.0;
            let way = if self.started.timing.kept { "kept" } else { "parsed" };
            eprintln!("tv: {way}, on the screen after {ms:.1} ms");
            if let Err(error) = self.started.keep(&self.store) {
                eprintln!("tv: cannot store the interface for the next start: {error}");
            }
        }
        Ok(())
    }

    /// Copies the frame into the middle of the window.
    fn present(&mut self) -> Result<()> {
        let (width, height) = self.started.interface().size();
        let Some((window, presenter)) = &mut self.window else { return Ok(()) };
        let size = window.inner_size();
        presenter.present(size.width, size.height, |target| {
            let (columns, rows) = (size.width as usize, size.height as usize);
            let (width, height) = (width as usize, height as usize);
            if (columns, rows) != (width, height) {
                target.fill(0);
            }
            let (left, top) = (columns.saturating_sub(width) / 2, rows.saturating_sub(height) / 2);
            let seen = width.min(columns);
            let lines = self.started.pixels.chunks_exact(width);
            for (target, line) in target.chunks_exact_mut(columns).skip(top).zip(lines) {
                target[left..left + seen].copy_from_slice(&line[..seen]);
            }
            Ok(())
        })
    }

    fn press(&mut self, key: Key, event_loop: &ActiveEventLoop) {
        let state = &mut self.started.state;
        let mut next = state.clone();
        let outcome = next.press(self.started.interface(), key);
        match outcome {
            Outcome::Nothing => (),
            Outcome::Exit => event_loop.exit(),
            Outcome::Changed => {
                self.started.state = next;
                self.stale = true;
                self.moved.get_or_insert_with(Instant::now);
                if let Some((window, _)) = &self.window {
                    window.request_redraw();
                }
            }
        }
    }
}

impl ApplicationHandler for App {
    fn resumed(&mut self, event_loop: &ActiveEventLoop) {
        if self.window.is_none()
            && let Err(error) = self.open(event_loop)
        {
            self.ended = Some(error);
            event_loop.exit();
        }
    }

    fn window_event(&mut self, event_loop: &ActiveEventLoop, _: WindowId, event: WindowEvent) {
        match event {
            WindowEvent::RedrawRequested => {
                if let Err(error) = self.draw() {
                    self.ended = Some(error);
                    event_loop.exit();
                }
            }
            WindowEvent::Resized(_) => {
                if let Some((window, _)) = &self.window {
                    window.request_redraw();
                }
            }
            WindowEvent::Destroyed => {
                self.ended = Some(no_window("the window was closed"));
                event_loop.exit();
            }
            WindowEvent::CloseRequested => event_loop.exit(),
            WindowEvent::ModifiersChanged(modifiers) => self.modifiers = modifiers.state(),
            WindowEvent::KeyboardInput { event, .. } if event.state == ElementState::Pressed => {
                if let Some(key) = key_of(&event.logical_key, self.modifiers.shift_key()) {
                    self.press(key, event_loop);
                }
            }
            _ => (),
        }
    }

    fn about_to_wait(&mut self, event_loop: &ActiveEventLoop) {
        let Some(last) = self.moved else {
            return event_loop.set_control_flow(ControlFlow::Wait);
        };
        if last.elapsed() >= FRAME
            && let Some((window, _)) = &self.window
        {
            window.request_redraw();
        }
        event_loop.set_control_flow(ControlFlow::WaitUntil(last + FRAME));
    }
}

fn key_of(key: &WinitKey, shift: bool) -> Option<Key> {
    let WinitKey::Named(named) = key else { return None };
    Some(match named {
        NamedKey::ArrowLeft => Key::Left,
        NamedKey::ArrowRight => Key::Right,
        NamedKey::ArrowUp => Key::Up,
        NamedKey::ArrowDown => Key::Down,
        NamedKey::Enter => Key::Enter,
        NamedKey::Escape | NamedKey::Backspace | NamedKey::BrowserBack | NamedKey::GoBack => {
            Key::Back
        }
        NamedKey::PageUp if shift => Key::HoursBack,
        NamedKey::PageDown if shift => Key::HoursOn,
        NamedKey::PageUp => Key::PageUp,
        NamedKey::PageDown => Key::PageDown,
        _ => return None,
    })
}
