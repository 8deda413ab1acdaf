//! The system's clipboard, for the window's own text fields.
//!
//! The clipboard belongs to another program, which may be slow or dead, so a separate thread
//! accesses it. Without a system clipboard (a Wayland session without X), text copied in this
//! window can still be pasted here.

use std::sync::{Arc, Mutex};
use std::thread::Builder;

use super::event::Event;
use super::worker::Outlet;

/// Copies and pastes text.
pub(crate) struct Clipboard {
    outlet: Outlet,
    shared: Arc<Mutex<Shared>>,
}

#[derive(Default)]
struct Shared {
    /// Opened at the first use.
    system: Option<arboard::Clipboard>,
    own: Option<String>,
}

impl Clipboard {
    /// Creates a clipboard that sends pasted text as an event to `outlet`.
    pub(crate) fn new(outlet: Outlet) -> Clipboard {
        Clipboard { outlet, shared: Arc::default() }
    }

    pub(crate) fn set(&self, text: String) {
        self.run_on_thread(move |shared, _| {
            let copied =
                shared.system().is_some_and(|system| system.set_text(text.clone()).is_ok());
            shared.own = (!copied).then_some(text);
        });
    }

    pub(crate) fn get(&self) {
        self.run_on_thread(|shared, outlet| {
            let own = shared.own.clone();
            let text = own.or_else(|| shared.system().and_then(|system| system.get_text().ok()));
            if let Some(text) = text {
                outlet.send(Event::Pasted(text));
            }
        });
    }

    fn run_on_thread(&self, what: impl FnOnce(&mut Shared, &Outlet) + Send + 'static) {
        let (shared, outlet) = (self.shared.clone(), self.outlet.clone());
        let work = move || {
            if let Ok(mut shared) = shared.lock() {
                what(&mut shared, &outlet);
            }
        };
        // If no thread can be started, nothing is copied.
        _ = Builder::new().name("clipboard".to_string()).spawn(work);
    }
}

impl Shared {
    fn system(&mut self) -> Option<&mut arboard::Clipboard> {
        if self.system.is_none() {
            self.system = arboard::Clipboard::new().ok();
        }
        self.system.as_mut()
    }
}
