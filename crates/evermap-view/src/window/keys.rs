//! Keys: assigns a command to each key, depending on the modifiers and the focus.

use super::address_bar::Motion;

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

/// Target of key presses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Focus {
    Page,
    Address,
    Find,
}

/// Commands of keys.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Command<'a> {
    /// Goes back (-1) or forward (1).
    Travel(isize),
    Home,
    /// With `fresh`, ignores stored data.
    Reload {
        fresh: bool,
    },
    Find,
    FindStep(isize),
    FocusAddress,
    FocusPage,
    Zoom(i32),
    Exit,
    SelectAll,
    Copy,
    Cut,
    Paste,
    Insert(&'a str),
    Move {
        motion: Motion,
        selecting: bool,
    },
    Erase(Motion),
    /// Scrolls by steps of an arrow key, to the right and down.
    ScrollLines(i64, i64),
    ScrollScreens(i64),
    ScrollToTop,
    ScrollToBottom,
    /// Moves the focus ring to another link.
    MoveRing(isize),
    /// Enter: opens the address or the link with the focus.
    Accept,
    /// Escape: ends what is in progress.
    Dismiss,
}

/// Returns the command of a pressed key. `text` is the text that it types.
pub(crate) fn command<'a>(
    key: &Key,
    text: Option<&'a str>,
    modifiers: Modifiers,
    focus: Focus,
) -> Option<Command<'a>> {
    common(key, modifiers, focus).or_else(|| match focus {
        Focus::Page => of_page(key, modifiers),
        Focus::Address => of_address(key).or_else(|| of_field(key, text, modifiers)),
        Focus::Find => of_find(key, modifiers).or_else(|| of_field(key, text, modifiers)),
    })
}

/// Returns -1 if Shift is pressed, else 1.
fn direction(modifiers: Modifiers) -> isize {
    if modifiers.shift { -1 } else { 1 }
}

/// Keys that have the same effect for every focus.
fn common(key: &Key, modifiers: Modifiers, focus: Focus) -> Option<Command<'static>> {
    let Modifiers { shift, control, alt } = modifiers;
    Some(match key {
        Key::Character(character) if control && !alt => match character.as_str() {
            "l" => Command::FocusAddress,
            "r" => Command::Reload { fresh: shift },
            "f" => Command::Find,
            "g" => Command::FindStep(direction(modifiers)),
            "w" | "q" => Command::Exit,
            "+" | "=" => Command::Zoom(1),
            "-" | "_" => Command::Zoom(-1),
            "0" => Command::Zoom(0),
            _ if focus == Focus::Page => return None,
            "a" => Command::SelectAll,
            "c" => Command::Copy,
            "x" => Command::Cut,
            "v" => Command::Paste,
            _ => return None,
        },
        Key::Left if alt => Command::Travel(-1),
        Key::Right if alt => Command::Travel(1),
        Key::Home if alt => Command::Home,
        Key::Back => Command::Travel(-1),
        Key::Forward => Command::Travel(1),
        Key::F5 | Key::Reload => Command::Reload { fresh: shift || control },
        Key::F3 => Command::FindStep(direction(modifiers)),
        _ => return None,
    })
}

fn of_page(key: &Key, modifiers: Modifiers) -> Option<Command<'static>> {
    Some(match key {
        Key::Left => Command::ScrollLines(-1, 0),
        Key::Right => Command::ScrollLines(1, 0),
        Key::Home => Command::ScrollToTop,
        Key::End => Command::ScrollToBottom,
        Key::Space => Command::ScrollScreens(direction(modifiers) as i64),
        Key::Tab => Command::MoveRing(direction(modifiers)),
        Key::Enter => Command::Accept,
        Key::Escape => Command::Dismiss,
        _ => return scrolling(key),
    })
}

/// Keys that scroll the page even while a field has the focus.
fn scrolling(key: &Key) -> Option<Command<'static>> {
    Some(match key {
        Key::Up => Command::ScrollLines(0, -1),
        Key::Down => Command::ScrollLines(0, 1),
        Key::PageUp => Command::ScrollScreens(-1),
        Key::PageDown => Command::ScrollScreens(1),
        _ => return None,
    })
}

fn of_address(key: &Key) -> Option<Command<'static>> {
    match key {
        Key::Enter => Some(Command::Accept),
        Key::Escape => Some(Command::Dismiss),
        Key::Tab => Some(Command::FocusPage),
        _ => None,
    }
}

fn of_find(key: &Key, modifiers: Modifiers) -> Option<Command<'static>> {
    match key {
        Key::Enter => Some(Command::FindStep(direction(modifiers))),
        _ => of_address(key),
    }
}

/// Keys that edit a line of text.
fn of_field<'a>(key: &Key, text: Option<&'a str>, modifiers: Modifiers) -> Option<Command<'a>> {
    let Modifiers { shift: selecting, control, alt } = modifiers;
    let by_word = |word: Motion, character: Motion| if control { word } else { character };
    let to = |motion| Command::Move { motion, selecting };
    Some(match key {
        Key::Left => to(by_word(Motion::WordLeft, Motion::Left)),
        Key::Right => to(by_word(Motion::WordRight, Motion::Right)),
        Key::Home => to(Motion::Start),
        Key::End => to(Motion::End),
        Key::Backspace => Command::Erase(by_word(Motion::WordLeft, Motion::Left)),
        Key::Delete => Command::Erase(by_word(Motion::WordRight, Motion::Right)),
        _ => match text.filter(|text| !text.chars().all(char::is_control)) {
            Some(text) if !control && !alt => Command::Insert(text),
            _ => return scrolling(key),
        },
    })
}
