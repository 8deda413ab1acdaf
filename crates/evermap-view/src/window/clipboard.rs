//! The system's clipboard, for the window's own lines of text.
//!
//! The other end is another program, which may be slow or dead: it is asked from a thread of its own. Where there is no
//! clipboard (a Wayland session without X), what was copied here can still be pasted here.

use std::sync::{Arc, Mutex};
use std::thread::Builder;

use super::state::Event;
use super::worker::Outlet;

/// Copies and pastes.
pub(crate) struct Clipboard {
    outlet: Outlet,
    shared: Arc<Mutex<Shared>>,
}

#[derive(Default)]
struct Shared {
    /// Opened when it is first needed.
    system: Option<arboard::Clipboard>,
    own: Option<String>,
}

impl Clipboard {
    /// What is pasted comes as an event.
    pub(crate) fn new(outlet: Outlet) -> Clipboard {
        Clipboard { outlet, shared: Arc::default() }
    }

    pub(crate) fn set(&self, text: String) {
        self.do_aside(move |shared, _| {
            let told = shared.system().is_some_and(|system| system.set_text(text.clone()).is_ok());
            shared.own = (!told).then_some(text);
        });
    }

    pub(crate) fn get(&self) {
        self.do_aside(|shared, outlet| {
            let own = shared.own.clone();
            let text = own.or_else(|| shared.system().and_then(|system| system.get_text().ok()));
            if let Some(text) = text {
                outlet.send(Event::Pasted(text));
            }
        });
    }

    fn do_aside(&self, what: impl FnOnce(&mut Shared, &Outlet) + Send + 'static) {
        let (shared, outlet) = (self.shared.clone(), self.outlet.clone());
        let work = move || {
            if let Ok(mut shared) = shared.lock() {
                what(&mut shared, &outlet);
            }
        };
        // Without a thread, nothing is copied: no reason to end the program.
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
