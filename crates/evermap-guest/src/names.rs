//! Object names: their rule, and the names of the objects that this program has open.

use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::error::{Code, Error, Result};

/// Maximum length of a name in bytes.
const NAME_BYTES_MAX: usize = 64;

static OPEN: Mutex<Vec<String>> = Mutex::new(Vec::new());

fn open_names() -> MutexGuard<'static, Vec<String>> {
    OPEN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The name of an object that this program has open. It is a copy in the program's own memory,
/// because hosts refuse names that lie in an object.
#[derive(Debug)]
pub(crate) struct OpenName(String);

impl OpenName {
    /// # Errors
    /// `InvalidName`; `Busy` if it is already open.
    pub(crate) fn claim(name: &str) -> Result<OpenName> {
        check(name)?;
        let mut open = open_names();
        if open.iter().any(|other| other == name) {
            let why = "this program already has it open; close it first";
            return Err(Error::new(Code::Busy, name, why));
        }
        open.push(name.to_string());
        Ok(OpenName(name.to_string()))
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

impl Drop for OpenName {
    fn drop(&mut self) {
        open_names().retain(|other| *other != self.0);
    }
}

/// Checks a name by the host's rule, also in native programs. Only guests can use objects of other
/// applications, by `OWNER:NAME`.
fn check(name: &str) -> Result<()> {
    let valid = match name.split_once(':') {
        Some((owner, name)) => cfg!(target_family = "wasm") && is_part(owner) && is_part(name),
        None => is_part(name),
    };
    if valid {
        return Ok(());
    }
    let why = "the name is not valid; use 1 to 64 ASCII letters, digits, `.`, `_` and `-`, and \
               no `.` at the beginning (in a guest, another application's object is OWNER:NAME)";
    Err(Error::new(Code::InvalidName, name, why))
}

fn is_part(name: &str) -> bool {
    let letter = |b: u8| b.is_ascii_alphanumeric() || b"._-".contains(&b);
    let length = (1..=NAME_BYTES_MAX).contains(&name.len());
    length && !name.starts_with('.') && name.bytes().all(letter)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_follow_the_hosts_rule() {
        let long = "n".repeat(NAME_BYTES_MAX);
        assert!(["a", "Notes-2.old_", &long].iter().all(|name| check(name).is_ok()));
        let longer = "n".repeat(NAME_BYTES_MAX + 1);
        let others = ["", ".a", "a/b", "ä", "a b", &longer, ":", "a:", ":a", "a:.b", "a:b:c"];
        assert!(others.iter().all(|name| check(name).is_err()));
        assert_eq!(check("owner:name").is_ok(), cfg!(target_family = "wasm"));
    }

    #[test]
    fn a_name_is_free_again_when_its_object_is_closed() {
        let name = OpenName::claim("names-test").unwrap();
        assert_eq!(OpenName::claim("names-test").unwrap_err().code(), Code::Busy);
        drop(name);
        OpenName::claim("names-test").unwrap();
    }
}
