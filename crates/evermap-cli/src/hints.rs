//! Hints of clap's error messages that would mislead, and those that it lacks.
//!
//! clap suggests verbs with similar letters, hidden ones included. Users type the words of other
//! programs, which mean a verb with other letters.

use clap::Command;
use clap::builder::StyledStr;
use clap::error::{ContextKind, ContextValue, ErrorKind};

/// Words of other programs, and the verbs that do the same.
const SYNONYMS: [(&[&str], &str); 10] = [
    (&["delete", "remove", "del", "erase", "unlink"], "rm"),
    (&["list", "dir"], "ls"),
    (&["rename", "move"], "mv"),
    (&["pin", "detach"], "freeze"),
    (&["show", "stat", "describe", "inspect"], "info"),
    (&["get", "search", "find", "select", "grep", "cat"], "query"),
    (&["add", "put", "insert", "index", "ingest"], "parse"),
    (&["cp"], "copy"),
    (&["verify", "fsck"], "store check"),
    (&["dump"], "store export"),
];

/// Options of `cp` and `scp` for directories, which `copy` and `send` handle without any.
const RECURSIVE: [&str; 5] = ["-r", "-R", "-a", "--recursive", "--archive"];

/// Corrects the hints of an error. `words` are the words after the command's name, and `command` is
/// the command with all verbs.
pub fn correct(error: &mut clap::Error, words: &[String], command: &Command) {
    match error.kind() {
        ErrorKind::InvalidSubcommand => correct_verb(error, words, command),
        ErrorKind::UnknownArgument => explain_recursion(error, words),
        _ => {}
    }
}

fn correct_verb(error: &mut clap::Error, words: &[String], command: &Command) {
    let Some(ContextValue::String(asked)) = error.get(ContextKind::InvalidSubcommand) else {
        return;
    };
    let mut before = words.iter().take_while(|word| *word != asked);
    if before.any(|word| command.find_subcommand(word).is_some()) {
        // A verb of another verb, of which none is hidden.
        return;
    }
    let synonym = SYNONYMS.iter().find(|(words, _)| words.contains(&asked.as_str()));
    let verbs = match (synonym, error.get(ContextKind::SuggestedSubcommand)) {
        (Some((_, verb)), _) => vec![verb.to_string()],
        (None, Some(ContextValue::Strings(similar))) => {
            similar.iter().filter_map(|name| shown_name(command, name)).collect()
        }
        (None, _) => return,
    };
    match verbs.is_empty() {
        true => error.remove(ContextKind::SuggestedSubcommand),
        false => error.insert(ContextKind::SuggestedSubcommand, ContextValue::Strings(verbs)),
    };
}

/// Returns the spelling of a verb that the help shows, if there is one.
fn shown_name(command: &Command, name: &str) -> Option<String> {
    let is_hidden = command.find_subcommand(name).is_some_and(Command::is_hide_set);
    let is_of_store = || command.find_subcommand("store")?.find_subcommand(name);
    match is_hidden {
        false => Some(name.to_string()),
        true => is_of_store().map(|_| format!("store {name}")),
    }
}

fn explain_recursion(error: &mut clap::Error, words: &[String]) {
    let Some(ContextValue::String(option)) = error.get(ContextKind::InvalidArg) else { return };
    let verb = words.iter().find(|word| ["copy", "send"].contains(&word.as_str()));
    if let (true, Some(verb)) = (RECURSIVE.contains(&option.as_str()), verb) {
        let hint = format!("`{verb}` copies directories with their contents: leave '{option}' out");
        let hints = vec![StyledStr::from(hint)];
        error.remove(ContextKind::SuggestedArg);
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(hints));
    }
}
