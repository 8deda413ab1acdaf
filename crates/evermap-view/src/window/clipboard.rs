//! Copying and pasting between the window's own lines of text.

/// What was copied last.
#[derive(Default)]
pub(crate) struct Clipboard {
    text: Option<String>,
}

impl Clipboard {
    pub(crate) fn set(&mut self, text: String) {
        self.text = Some(text);
    }

    pub(crate) fn get(&mut self) -> Option<String> {
        self.text.clone()
    }
}
