//! The window itself. The only file that uses `winit`, except for [`super::present`].
//!
//! Converts `winit` events to those of `state`, and performs the effects. The first page is
//! requested before the window is created, because creating it takes longer than opening a stored
//! page.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

use winit::application::ApplicationHandler;
use winit::dpi::{LogicalSize, PhysicalPosition};
use winit::event::{
    ElementState, KeyEvent, MouseButton, MouseScrollDelta, Touch, TouchPhase, WindowEvent,
};
use winit::event_loop::{ActiveEventLoop, ControlFlow, EventLoop};
use winit::keyboard::{Key as WinitKey, KeyCode, ModifiersState, NamedKey, PhysicalKey};
use winit::window::{CursorIcon, Window, WindowId};

use super::browse::{Browse, WindowOptions};
use super::clipboard::Clipboard;
use super::event::{Cursor, Effect, Event, Timer};
use super::first_frame::{FirstFrame, Prepared};
use super::frame::Frame;
use super::keys::{Key, Modifiers};
use super::pointer::NOTCH;
use super::present::{Presenter, no_window};
use super::state::State;
use super::worker::{Outlet, Workers};
use crate::{Result, ViewError};

/// Minimum window size, in CSS pixels.
const SIZE_MIN: (u32, u32) = (360, 160);

/// Opens a window, shows `start` in it (or the home page, if `start` is empty), and returns when
/// the user closes it. Waits for running [`Visit::after`](super::Visit::after) work, while the
/// window is already closed.
///
/// Must be called once, from the program's main thread.
///
/// # Errors
/// Returns [`ViewError::NoWindow`] if there is no display, or the connection is lost.
pub fn run(browser: Arc<dyn Browse>, start: &str, options: WindowOptions) -> Result<()> {
    let began = Instant::now();
    let (outlet, events) = Outlet::new();
    let (state, effects) = State::new(&options, start);
    let mut workers = Workers::new(browser, outlet.clone());
    for effect in &effects {
        if let Effect::Visit { number, address, layout, reuse } = effect {
            workers.visit(*number, address.clone(), *layout, *reuse);
        }
    }
    let first_frame = FirstFrame::begin(state, events)?;
    let opened = open_display();
    tracing::debug!(us = began.elapsed().as_micros() as u64, "display opened");
    outlet.send(Event::Opened);
    let prepared = first_frame.end()?;
    let event_loop = opened?;
    let proxy = event_loop.create_proxy();
    outlet.set_wake(move || _ = proxy.send_event(()));
    App::new(prepared, effects, workers, outlet, options, began).run(event_loop)
}

fn open_display() -> Result<EventLoop<()>> {
    // `winit` panics if a library is missing.
    let opened = catch_unwind(|| EventLoop::<()>::with_user_event().build());
    opened.map_err(|_| no_window("a library of the window system is missing"))?.map_err(no_window)
}

struct App {
    state: State,
    frame: Frame,
    workers: Workers,
    events: Receiver<Event>,
    options: WindowOptions,
    /// Title of the window.
    title: String,
    window: Option<Windowed>,
    clipboard: Clipboard,
    /// Visits whose pages the next frame shows.
    shown: Vec<u64>,
    timers: [Option<Instant>; 2],
    began: Instant,
    presented: bool,
    /// Error that ended the window.
    fatal_error: Option<ViewError>,
}

struct Windowed {
    window: Rc<Window>,
    presenter: Presenter,
}

impl App {
    fn new(
        prepared: Prepared,
        started: Vec<Effect>,
        workers: Workers,
        outlet: Outlet,
        options: WindowOptions,
        began: Instant,
    ) -> App {
        let Prepared { state, frame, events, effects } = prepared;
        let mut app = App {
            state,
            frame,
            workers,
            events,
            options,
            title: "Evermap".to_string(),
            window: None,
            clipboard: Clipboard::new(outlet),
            shown: Vec::new(),
            timers: [None; 2],
            began,
            presented: false,
            fatal_error: None,
        };
        // The first visit has been started already.
        let is_visit = |effect: &Effect| matches!(effect, Effect::Visit { .. });
        app.perform(started.into_iter().filter(|effect| !is_visit(effect)).collect(), None);
        app.perform(effects, None);
        app
    }

    fn run(mut self, event_loop: EventLoop<()>) -> Result<()> {
        let ran = catch_unwind(AssertUnwindSafe(|| event_loop.run_app(&mut self)));
        let App { fatal_error, workers, window, options, state, .. } = self;
        // The window is closed before any remaining work.
        if window.is_some() {
            drop(window);
            workers.browse().closed(&state.as_options(options));
        }
        workers.finish();
        let ran = ran.map_err(|_| no_window("the window system's library failed"))?;
        match fatal_error {
            Some(error) => Err(error),
            None => ran.map_err(no_window),
        }
    }

    fn handle(&mut self, event: Event, event_loop: &ActiveEventLoop) {
        let effects = self.state.handle(event);
        self.perform(effects, Some(event_loop));
    }

    fn perform(&mut self, effects: Vec<Effect>, event_loop: Option<&ActiveEventLoop>) {
        let window = self.window.as_ref().map(|windowed| windowed.window.clone());
        for effect in effects {
            match (effect, &window) {
                (Effect::Visit { number, address, layout, reuse }, _) => {
                    self.workers.visit(number, address, layout, reuse);
                }
                (Effect::Cancel(number), _) => self.workers.cancel(number),
                (Effect::Shown(number), _) => self.shown.push(number),
                (Effect::Start(timer), _) => {
                    self.timers[timer as usize] = Some(Instant::now() + duration(timer));
                }
                (Effect::Redraw, Some(window)) => window.request_redraw(),
                (Effect::Title(title), window) => {
                    if let Some(window) = window {
                        window.set_title(&title);
                    }
                    self.title = title;
                }
                (Effect::Cursor(cursor), Some(window)) => window.set_cursor(cursor_icon(cursor)),
                (Effect::Redraw | Effect::Cursor(_), None) => (),
                (Effect::Copy(text), _) => self.clipboard.set(text),
                (Effect::Paste, _) => self.clipboard.get(),
                (Effect::Exit, _) => {
                    if let Some(event_loop) = event_loop {
                        event_loop.exit();
                    }
                }
            }
        }
    }

    fn make_window(&mut self, event_loop: &ActiveEventLoop) -> Result<()> {
        let size = LogicalSize::new(self.options.width.max(1), self.options.height.max(1));
        let attributes = Window::default_attributes()
            .with_title(self.title.as_str())
            .with_inner_size(size)
            .with_min_inner_size(LogicalSize::new(SIZE_MIN.0, SIZE_MIN.1));
        let window = Rc::new(event_loop.create_window(attributes).map_err(no_window)?);
        let presenter = Presenter::new(event_loop, window.clone())?;
        tracing::debug!(us = self.began.elapsed().as_micros() as u64, "window made");
        self.window = Some(Windowed { window, presenter });
        Ok(())
    }

    /// Sends the window's size to the state.
    fn sized(&mut self, made: bool, event_loop: &ActiveEventLoop) {
        let Some(windowed) = &self.window else { return };
        let (size, scale) = (windowed.window.inner_size(), windowed.window.scale_factor());
        let (width, height) = (size.width.max(1), size.height.max(1));
        self.handle(Event::Sized { width, height, scale, made }, event_loop);
    }

    fn draw(&mut self, event_loop: &ActiveEventLoop) {
        match self.draw_frame() {
            Ok(true) => {
                if !std::mem::replace(&mut self.presented, true) {
                    let us = self.began.elapsed().as_micros() as u64;
                    tracing::debug!(us, page = !self.shown.is_empty(), "first frame presented");
                }
                for number in std::mem::take(&mut self.shown) {
                    self.workers.shown(number);
                }
            }
            Ok(false) => (),
            Err(DrawError::Page(error)) => {
                // A page that can't be painted must not be stored either.
                self.shown.drain(..).for_each(|number| self.workers.cancel(number));
                self.handle(Event::Unpaintable(error), event_loop);
            }
            Err(DrawError::Window(error)) => {
                self.fatal_error = Some(error);
                event_loop.exit();
            }
        }
    }

    /// Draws a frame. Returns false if there is no window or it has no pixels.
    fn draw_frame(&mut self) -> std::result::Result<bool, DrawError> {
        let Some(windowed) = &mut self.window else { return Ok(false) };
        let (width, height) = self.state.geometry.window;
        if width == 0 || height == 0 {
            return Ok(false);
        }
        windowed.presenter.present(width, height, |pixels| {
            self.frame.compose(&self.state, pixels).map_err(DrawError::Page)
        })?;
        Ok(true)
    }

    fn drain(&mut self, event_loop: &ActiveEventLoop) {
        while let Ok(event) = self.events.try_recv() {
            self.handle(event, event_loop);
        }
    }

    fn fire_timers(&mut self, event_loop: &ActiveEventLoop) {
        let now = Instant::now();
        for timer in [Timer::Resize, Timer::Loading] {
            if self.timers[timer as usize].is_some_and(|at| at <= now) {
                self.timers[timer as usize] = None;
                self.handle(Event::TimeUp(timer), event_loop);
            }
        }
    }

    fn pointer(&mut self, at: PhysicalPosition<f64>, event_loop: &ActiveEventLoop) {
        self.handle(Event::PointerMoved(at.x, at.y), event_loop);
    }
}

/// Errors of drawing a frame.
enum DrawError {
    Page(ViewError),
    Window(ViewError),
}

impl From<ViewError> for DrawError {
    fn from(error: ViewError) -> DrawError {
        DrawError::Window(error)
    }
}

impl ApplicationHandler<()> for App {
    fn resumed(&mut self, event_loop: &ActiveEventLoop) {
        if self.window.is_some() {
            return;
        }
        if let Err(error) = self.make_window(event_loop) {
            self.fatal_error = Some(error);
            event_loop.exit();
            return;
        }
        self.sized(true, event_loop);
        self.drain(event_loop);
    }

    fn user_event(&mut self, event_loop: &ActiveEventLoop, _: ()) {
        self.drain(event_loop);
    }

    fn window_event(&mut self, event_loop: &ActiveEventLoop, _: WindowId, event: WindowEvent) {
        match event {
            WindowEvent::RedrawRequested => {
                self.drain(event_loop);
                self.draw(event_loop);
            }
            WindowEvent::Resized(_) | WindowEvent::ScaleFactorChanged { .. } => {
                self.sized(false, event_loop);
            }
            WindowEvent::Destroyed => {
                self.fatal_error = Some(no_window("the window is gone"));
                event_loop.exit();
            }
            WindowEvent::CloseRequested => self.handle(Event::Close, event_loop),
            WindowEvent::ModifiersChanged(modifiers) => {
                self.handle(Event::Modifiers(modifiers_of(modifiers.state())), event_loop);
            }
            WindowEvent::KeyboardInput { event, .. } if event.state == ElementState::Pressed => {
                let (key, text) = key_of(&event);
                self.handle(Event::Key { key, text }, event_loop);
            }
            WindowEvent::CursorMoved { position, .. } => self.pointer(position, event_loop),
            WindowEvent::CursorLeft { .. } => self.handle(Event::PointerLeft, event_loop),
            WindowEvent::MouseInput { state, button, .. } => {
                if let Some(event) = button_event(state, button) {
                    self.handle(event, event_loop);
                }
            }
            WindowEvent::MouseWheel { delta, .. } => {
                let (x, y) = match delta {
                    MouseScrollDelta::LineDelta(x, y) => {
                        let notch = NOTCH * self.state.geometry.scale;
                        (f64::from(x) * notch, f64::from(y) * notch)
                    }
                    MouseScrollDelta::PixelDelta(by) => (by.x, by.y),
                };
                self.handle(Event::Wheel { x: -x, y: -y }, event_loop);
            }
            WindowEvent::Touch(touch) => {
                if let Some(event) = touch_event(&touch) {
                    self.handle(event, event_loop);
                }
            }
            _ => (),
        }
    }

    fn about_to_wait(&mut self, event_loop: &ActiveEventLoop) {
        self.drain(event_loop);
        self.fire_timers(event_loop);
        let next = self.timers.iter().flatten().min();
        event_loop
            .set_control_flow(next.map_or(ControlFlow::Wait, |at| ControlFlow::WaitUntil(*at)));
    }
}

fn duration(timer: Timer) -> Duration {
    match timer {
        Timer::Resize => Duration::from_millis(150),
        Timer::Loading => Duration::from_millis(100),
    }
}

fn cursor_icon(cursor: Cursor) -> CursorIcon {
    match cursor {
        Cursor::Arrow => CursorIcon::Default,
        Cursor::Hand => CursorIcon::Pointer,
        Cursor::Text => CursorIcon::Text,
    }
}

fn modifiers_of(state: ModifiersState) -> Modifiers {
    Modifiers { shift: state.shift_key(), control: state.control_key(), alt: state.alt_key() }
}

fn button_event(state: ElementState, button: MouseButton) -> Option<Event> {
    match (state, button) {
        (ElementState::Pressed, MouseButton::Left) => Some(Event::Pressed),
        (ElementState::Released, MouseButton::Left) => Some(Event::Released),
        (ElementState::Pressed, MouseButton::Back) => Some(Event::Travel(-1)),
        (ElementState::Pressed, MouseButton::Forward) => Some(Event::Travel(1)),
        _ => None,
    }
}

fn touch_event(touch: &Touch) -> Option<Event> {
    let PhysicalPosition { x, y } = touch.location;
    match touch.phase {
        TouchPhase::Started => Some(Event::Touched(x, y)),
        TouchPhase::Moved => Some(Event::TouchMoved(x, y)),
        TouchPhase::Ended => Some(Event::TouchEnded),
        TouchPhase::Cancelled => None,
    }
}

fn key_of(event: &KeyEvent) -> (Key, Option<String>) {
    let text = event.text.as_ref().map(|text| text.to_string());
    let key = match &event.logical_key {
        // Shortcuts work on keyboards with other alphabets too.
        WinitKey::Character(character) if !character.is_ascii() => {
            match latin(event.physical_key) {
                Some(letter) => Key::Character(letter.to_string()),
                None => Key::Character(character.to_lowercase()),
            }
        }
        WinitKey::Character(character) => Key::Character(character.to_lowercase()),
        WinitKey::Named(named) => named_key(*named),
        _ => Key::Other,
    };
    (key, text)
}

/// Returns the Latin letter of a shortcut key.
fn latin(key: PhysicalKey) -> Option<&'static str> {
    let PhysicalKey::Code(code) = key else { return None };
    Some(match code {
        KeyCode::KeyA => "a",
        KeyCode::KeyC => "c",
        KeyCode::KeyF => "f",
        KeyCode::KeyG => "g",
        KeyCode::KeyL => "l",
        KeyCode::KeyQ => "q",
        KeyCode::KeyR => "r",
        KeyCode::KeyV => "v",
        KeyCode::KeyW => "w",
        KeyCode::KeyX => "x",
        KeyCode::Digit0 => "0",
        KeyCode::Minus => "-",
        KeyCode::Equal => "=",
        _ => return None,
    })
}

fn named_key(named: NamedKey) -> Key {
    match named {
        NamedKey::Enter => Key::Enter,
        NamedKey::Escape => Key::Escape,
        NamedKey::Tab => Key::Tab,
        NamedKey::Space => Key::Space,
        NamedKey::Backspace => Key::Backspace,
        NamedKey::Delete => Key::Delete,
        NamedKey::ArrowLeft => Key::Left,
        NamedKey::ArrowRight => Key::Right,
        NamedKey::ArrowUp => Key::Up,
        NamedKey::ArrowDown => Key::Down,
        NamedKey::PageUp => Key::PageUp,
        NamedKey::PageDown => Key::PageDown,
        NamedKey::Home => Key::Home,
        NamedKey::End => Key::End,
        NamedKey::F3 => Key::F3,
        NamedKey::F5 => Key::F5,
        NamedKey::BrowserBack => Key::Back,
        NamedKey::BrowserForward => Key::Forward,
        NamedKey::BrowserRefresh => Key::Reload,
        _ => Key::Other,
    }
}
