//! Shell completion: the scripts of `evermap completions` start this command on each Tab, with
//! [`VARIABLE`] set to the shell's name, and it prints the candidates.
//!
//! This process's arguments contain the command line that the user types, so object names come from
//! the store on that line. This module reports no errors: a shell would print them into the line.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use clap::Command;
use clap_complete::CompletionCandidate;
use clap_complete::env::{CompleteEnv, Shells};
use evermap::Store;

use crate::names;
use crate::store_path::default_store;

/// Environment variable of the scripts.
const VARIABLE: &str = "EVERMAP_COMPLETE";

/// Prints completions and exits, if a shell's script started this process. `command` makes the
/// command with all verbs.
pub fn answer_shell(command: fn() -> Command) {
    CompleteEnv::with_factory(command).var(VARIABLE).complete();
}

/// Returns the script that makes a shell ask this command.
pub fn script(shell: &str) -> std::io::Result<Vec<u8>> {
    let mut script = Vec::new();
    if let Some(completer) = Shells::builtins().completer(shell) {
        completer.write_registration(VARIABLE, "evermap", "evermap", "evermap", &mut script)?;
    }
    Ok(script)
}

/// Returns the names of stored objects that begin with `typed`, in the spellings that verbs accept:
/// the name, the path of the document's file, and the end of the name.
pub fn objects(typed: &OsStr) -> Vec<CompletionCandidate> {
    candidates(typed, true)
}

/// Like [`objects`], for verbs that do not accept the end of a name.
pub fn whole_names(typed: &OsStr) -> Vec<CompletionCandidate> {
    candidates(typed, false)
}

fn candidates(typed: &OsStr, ends: bool) -> Vec<CompletionCandidate> {
    let words: Vec<OsString> = std::env::args_os().collect();
    let Some(directory) = store_in(&words).or_else(|| default_store().ok()) else {
        return Vec::new();
    };
    let Ok(store) = Store::open(&directory) else { return Vec::new() };
    let typed = typed.to_string_lossy();
    // The directory that `typed` names, as it is spelled: empty for the current one.
    let (folder, _) = typed.split_at(typed.rfind('/').map_or(0, |at| at + 1));
    let here = names::absolute(Path::new(if folder.is_empty() { "." } else { folder }));
    let here = here.unwrap_or_default();
    let objects = store.list().unwrap_or_default();
    let all: Vec<String> =
        objects.iter().map(|object| names::display_name(&store, object)).collect();
    let whole = |name: &String| {
        let file = names::absolute(&names::file_of(&directory, name)).ok();
        let path = file.as_ref().and_then(|file| file.strip_prefix(&here).ok());
        let path = path.and_then(|path| path.to_str()).map(|path| format!("{folder}{path}"));
        path.into_iter().chain([name.clone()]).find(|spelling| spelling.starts_with(&*typed))
    };
    let mut found: Vec<String> = all.iter().filter_map(whole).collect();
    if found.is_empty() && ends && !typed.is_empty() {
        found = ends_of(&all, &typed);
    }
    found.into_iter().map(CompletionCandidate::new).collect()
}

/// Returns the ends of names that begin with `typed` and that only one name has.
fn ends_of(names: &[String], typed: &str) -> Vec<String> {
    let end = |name: &str| {
        let mut starts = name.match_indices('/').map(|(at, _)| &name[at + 1..]);
        starts.find(|end| end.starts_with(typed)).map(str::to_string)
    };
    let mut found: Vec<String> = names.iter().filter_map(|name| end(name)).collect();
    found.retain(|end| {
        let ending = format!("/{end}");
        names.iter().filter(|name| name.ends_with(&ending)).count() == 1
    });
    found
}

/// Returns the store that a command line names. Shells pass `~` unchanged.
fn store_in(words: &[OsString]) -> Option<PathBuf> {
    let option = words.iter().position(|word| word == "--store" || word == "-s");
    let value = option.and_then(|at| words.get(at + 1)).map(OsString::as_os_str);
    let joined = || words.iter().find_map(|word| word.to_str()?.strip_prefix("--store="));
    let value = value.or_else(|| joined().map(OsStr::new))?;
    match value.to_str().and_then(|value| value.strip_prefix("~/")) {
        Some(rest) => Some(PathBuf::from(std::env::var_os("HOME")?).join(rest)),
        None => Some(value.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_store_is_found_in_every_spelling() {
        let store = |line: &str| {
            let words: Vec<OsString> = line.split(' ').map(Into::into).collect();
            store_in(&words).map(|path| path.display().to_string())
        };
        for line in [
            "evermap query --store place x",
            "evermap -s place query",
            "evermap query --store=place x",
        ] {
            assert_eq!(store(line).as_deref(), Some("place"), "{line}");
        }
        assert_eq!(store("evermap query page.html"), None);
    }
}
