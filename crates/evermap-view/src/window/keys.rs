//! Handles keys: global shortcuts, and keys of the page, the address bar and the find bar.

use super::address_bar::{Motion, TextField};
use super::state::{Content, Effect, Focus, State};

/// A key, identified by its meaning instead of its position.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Key {
    /// The character that it types, in lower case.
    Character(String),
    Enter,
    Escape,
    Tab,
    Space,
    Backspace,
    Delete,
    Left,
    Right,
    Up,
    Down,
    PageUp,
    PageDown,
    Home,
    End,
    F3,
    F5,
    Back,
    Forward,
    Reload,
    Other,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Modifiers {
    pub shift: bool,
    pub control: bool,
    pub alt: bool,
}

impl State {
    /// Handles a pressed key. `text` is the text that it types.
    pub(super) fn key(&mut self, key: Key, text: Option<&str>) {
        if self.common_key(&key) {
            return;
        }
        match self.focus {
            Focus::Page => self.page_key(&key),
            Focus::Address => self.address_key(&key, text),
            Focus::Find => self.find_key(&key, text),
        }
    }

    /// Handles keys that have the same effect for every focus.
    fn common_key(&mut self, key: &Key) -> bool {
        let Modifiers { shift, control, alt } = self.modifiers;
        match key {
            Key::Character(character) if control && !alt => {
                return self.control_key(character, shift);
            }
            Key::Left if alt => self.travel(-1),
            Key::Right if alt => self.travel(1),
            Key::Home if alt => self.go_home(),
            Key::Back => self.travel(-1),
            Key::Forward => self.travel(1),
            Key::F5 | Key::Reload => self.reload(shift || control),
            Key::F3 => self.find_step(if shift { -1 } else { 1 }),
            _ => return false,
        }
        true
    }

    fn control_key(&mut self, character: &str, shift: bool) -> bool {
        match character {
            "l" => self.focus_address(),
            "r" => self.reload(shift),
            "f" => self.open_find(),
            "g" => self.find_step(if shift { -1 } else { 1 }),
            "w" | "q" => self.effects.push(Effect::Exit),
            "+" | "=" => self.zoom_by(1),
            "-" | "_" => self.zoom_by(-1),
            "0" => self.zoom_by(0),
            "a" | "c" | "x" | "v" => return self.edit_key(character),
            _ => return false,
        }
        true
    }

    /// Selects, copies, cuts or pastes in the focused field.
    fn edit_key(&mut self, character: &str) -> bool {
        let Some(field) = self.focused_field() else { return false };
        match character {
            "a" => field.select_all(),
            "v" => self.effects.push(Effect::Paste),
            _ if field.selection().is_empty() => (),
            _ => {
                let copied = field.selected().to_string();
                if character == "x" {
                    field.insert("");
                    self.field_changed();
                }
                self.effects.push(Effect::Copy(copied));
            }
        }
        self.redraw();
        true
    }

    pub(super) fn pasted(&mut self, text: &str) {
        if let Some(field) = self.focused_field() {
            field.insert(text);
            self.field_changed();
        }
    }

    pub(super) fn focused_field(&mut self) -> Option<&mut TextField> {
        match self.focus {
            Focus::Page => None,
            Focus::Address => Some(&mut self.address),
            Focus::Find => Some(&mut self.find.field),
        }
    }

    fn field_changed(&mut self) {
        match self.focus {
            Focus::Page => (),
            Focus::Address => self.edited = true,
            Focus::Find => self.find_typed(),
        }
        self.redraw();
    }

    pub(super) fn focus_address(&mut self) {
        self.focus = Focus::Address;
        self.address.select_all();
        self.redraw();
    }

    fn focus_page(&mut self) {
        self.focus = Focus::Page;
        self.redraw();
    }

    fn page_key(&mut self, key: &Key) {
        let shift = self.modifiers.shift;
        match key {
            Key::Left => self.scroll_by(-self.line(), 0),
            Key::Right => self.scroll_by(self.line(), 0),
            Key::Home => self.scroll_to(self.left, 0),
            Key::End => self.scroll_to(self.left, u32::MAX),
            Key::Space if shift => self.scroll_by(0, -self.screen()),
            Key::Space => self.scroll_by(0, self.screen()),
            Key::Tab => self.move_ring(if shift { -1 } else { 1 }),
            Key::Enter if matches!(self.content, Content::Failed(_)) => self.reload(false),
            Key::Enter => {
                if let Some(url) = self.ring_url() {
                    self.open(&url);
                }
            }
            Key::Escape if self.loading.is_some() => self.stop(),
            Key::Escape if self.find.open => self.close_find(),
            Key::Escape => {
                self.ring = None;
                self.message.clear();
                self.redraw();
            }
            _ => self.screen_key(key),
        }
    }

    /// Handles keys that scroll the page even while a field has the focus.
    fn screen_key(&mut self, key: &Key) {
        match key {
            Key::Up => self.scroll_by(0, -self.line()),
            Key::Down => self.scroll_by(0, self.line()),
            Key::PageUp => self.scroll_by(0, -self.screen()),
            Key::PageDown => self.scroll_by(0, self.screen()),
            _ => (),
        }
    }

    fn address_key(&mut self, key: &Key, text: Option<&str>) {
        match key {
            Key::Enter => {
                let address = self.address.text().to_string();
                self.focus_page();
                self.open(&address);
            }
            Key::Escape if self.loading.is_some() && !self.edited => self.stop(),
            Key::Escape => {
                self.restore_address();
                self.focus_page();
            }
            Key::Tab => self.focus_page(),
            _ => self.field_key(key, text),
        }
    }

    fn find_key(&mut self, key: &Key, text: Option<&str>) {
        match key {
            Key::Enter if self.modifiers.shift => self.find_step(-1),
            Key::Enter => self.find_step(1),
            Key::Escape => self.close_find(),
            Key::Tab => self.focus_page(),
            _ => self.field_key(key, text),
        }
    }

    /// Edits a line of text.
    fn field_key(&mut self, key: &Key, text: Option<&str>) {
        let Modifiers { shift, control, alt } = self.modifiers;
        let Some(field) = self.focused_field() else { return };
        let by_word = |word: Motion, character: Motion| if control { word } else { character };
        match key {
            Key::Left => field.move_cursor(by_word(Motion::WordLeft, Motion::Left), shift),
            Key::Right => field.move_cursor(by_word(Motion::WordRight, Motion::Right), shift),
            Key::Home => field.move_cursor(Motion::Start, shift),
            Key::End => field.move_cursor(Motion::End, shift),
            Key::Backspace => {
                field.erase(by_word(Motion::WordLeft, Motion::Left));
                return self.field_changed();
            }
            Key::Delete => {
                field.erase(by_word(Motion::WordRight, Motion::Right));
                return self.field_changed();
            }
            _ => match text.filter(|text| !text.chars().all(char::is_control)) {
                Some(text) if !control && !alt => {
                    field.insert(text);
                    return self.field_changed();
                }
                _ => return self.screen_key(key),
            },
        }
        self.redraw();
    }
}
