//! Help of the command itself: its verbs in groups, and its exit codes.
//!
//! clap has no headings for subcommands, so [`complete`] writes the list of verbs into the help
//! template. [`GROUPS`] is the only list of verbs by topic, and a test checks that each verb is in
//! one group. It also tells which verbs use a store: the help of the others has no `--store`.

use std::fmt::Write;

use clap::builder::Styles;
use clap::{Arg, Command};

/// The command in one line, for its manual page.
pub const SUMMARY: &str = "store data in memory-mapped files, and query documents without parsing";

/// Text at the top of `--help`.
pub const ABOUT: &str = "\
Evermap stores data in files that programs map into memory, so that a later process uses it at \
once. `evermap parse` stores HTML and XML documents, and `evermap query` searches them in \
microseconds without parsing. Other verbs copy files, load them into memory, and run programs \
that have deadlines or restricted access.";

/// Text after the options of `--help`. `docs/cli.md` has the same table.
pub const EXIT_CODES: &str = "\
Run `evermap VERB --help` for the options and examples of a verb.

Exit codes:
   0  success; also if the reader closes the pipe early (`| head`)
   1  query: nothing matched
   2  wrong usage: arguments, selector or name
   3  store, object, file or process not found
   4  in use by another process; also addresses
   5  damaged, not an Evermap file, newer format, or wrong type
   6  not permitted, or read-only
   7  out of disk space, memory or store addresses; a limit (`ulimit`)
   8  a document, policy, rules file or trace cannot be parsed
   9  the name is taken
  10  other errors
  11  a page cannot be fetched or laid out
  12  the source changed during a copy, or the copy differs; also `--stale fail`
  13  connection broken, or the other end speaks another protocol
  14  lane check: no lane with `SCHED_FIFO` is possible
 130  interrupted";

/// Verbs under one heading of `--help`.
struct Group {
    heading: &'static str,
    uses_store: bool,
    verbs: &'static [&'static str],
}

/// The groups in the order of `--help`. A build without a feature lacks its verbs.
const GROUPS: [Group; 7] = [
    Group {
        heading: "Documents",
        uses_store: true,
        verbs: &["parse", "query", "ls", "info", "mv", "freeze", "rm"],
    },
    Group { heading: "Stores", uses_store: true, verbs: &["store"] },
    Group { heading: "Files", uses_store: false, verbs: &["copy", "send", "receive", "bench"] },
    Group { heading: "Programs", uses_store: false, verbs: &["load", "lane"] },
    Group { heading: "Sandboxes", uses_store: cfg!(feature = "sandbox"), verbs: &["sandbox"] },
    Group { heading: "Pages", uses_store: true, verbs: &["view", "render", "prefetch"] },
    Group { heading: "Other", uses_store: false, verbs: &["demo", "completions"] },
];

/// Verbs that log nothing, by their last word: their help has no `--verbose`.
const SILENT: [&str; 3] = ["demo", "completions", "exec"];

/// Completes the command that clap derives: groups the verbs in its help, hides the old spellings
/// of `store VERB`, and hides global options where they have no effect. Hidden options and verbs
/// are still parsed.
pub fn complete(command: Command) -> Command {
    let moved: Vec<String> = match command.find_subcommand("store") {
        Some(store) => store.get_subcommands().map(|verb| verb.get_name().to_string()).collect(),
        None => Vec::new(),
    };
    let list = list_of_verbs(&command);
    let header = Styles::default().get_header().to_owned();
    let template = format!(
        "{{about-with-newline}}\n{{usage-heading}} {{usage}}\n\n{list}{header}Options:{header:#}\n\
         {{options}}{{after-help}}"
    );
    let globals: Vec<Arg> = command.get_arguments().cloned().collect();
    command.help_template(template).mut_subcommands(|verb| {
        let has_store = group_of(verb.get_name()).is_none_or(|group| group.uses_store);
        let verb = if has_store { verb } else { hide_global(verb, &globals, "store") };
        let is_moved = moved.iter().any(|name| name == verb.get_name());
        let is_hidden = is_moved || verb.is_hide_set();
        hide_verbose(verb, &globals).hide(is_hidden)
    })
}

/// Returns the group of a verb. The old spellings of `store VERB` have none.
fn group_of(verb: &str) -> Option<&'static Group> {
    GROUPS.iter().find(|group| group.verbs.contains(&verb))
}

/// Hides a global option in the help of a verb and its subcommands: clap adds a global option only
/// to commands that have none of its id.
fn hide_global(verb: Command, globals: &[Arg], option: &str) -> Command {
    let global = globals.iter().find(|argument| argument.get_id() == option);
    let has_own = verb.get_arguments().any(|argument| argument.get_id() == option);
    match (global, has_own) {
        (Some(global), false) => verb.arg(global.clone().hide(true)),
        _ => verb,
    }
}

fn hide_verbose(verb: Command, globals: &[Arg]) -> Command {
    match SILENT.contains(&verb.get_name()) {
        true => hide_global(verb, globals, "verbose"),
        false => verb.mut_subcommands(|inner| hide_verbose(inner, globals)),
    }
}

/// Returns the verbs of this build with their summaries, under the headings of their groups.
fn list_of_verbs(command: &Command) -> String {
    let header = Styles::default().get_header().to_owned();
    let literal = Styles::default().get_literal().to_owned();
    let width = GROUPS.iter().flat_map(|group| group.verbs).map(|verb| verb.len()).max();
    let width = width.unwrap_or_default();
    let mut list = String::new();
    for group in &GROUPS {
        let verbs = group.verbs.iter().filter_map(|verb| command.find_subcommand(verb));
        for (at, verb) in verbs.enumerate() {
            if at == 0 {
                let _ = writeln!(list, "{header}{}:{header:#}", group.heading);
            }
            let about = verb.get_about().map(ToString::to_string).unwrap_or_default();
            let name = verb.get_name();
            let _ = writeln!(list, "  {literal}{name:width$}{literal:#}  {about}");
        }
        if list.ends_with('\n') && !list.ends_with("\n\n") {
            list.push('\n');
        }
    }
    list
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arguments::Arguments;

    #[test]
    fn each_visible_verb_is_in_exactly_one_group() {
        let command = Arguments::full_command();
        for verb in command.get_subcommands().filter(|verb| !verb.is_hide_set()) {
            let name = verb.get_name();
            let groups = GROUPS.iter().filter(|group| group.verbs.contains(&name)).count();
            assert_eq!(groups, 1, "{name}");
        }
        for verb in GROUPS.iter().flat_map(|group| group.verbs) {
            let is_optional =
                cfg!(not(feature = "view")) && ["view", "render", "prefetch"].contains(verb);
            assert!(is_optional || command.find_subcommand(verb).is_some(), "{verb}");
        }
    }

    /// Calls `check` with the path and the command of each visible verb, subcommands included.
    fn for_each_verb(command: &Command, path: &str, check: &mut dyn FnMut(&str, &Command)) {
        let shown = command.get_subcommands().filter(|verb| !verb.is_hide_set());
        for verb in shown.filter(|verb| verb.get_name() != "help") {
            let path = format!("{path} {}", verb.get_name());
            check(&path, verb);
            for_each_verb(verb, &path, check);
        }
    }

    #[test]
    fn help_names_no_old_spelling() {
        let mut command = Arguments::full_command();
        command.build();
        let store = command.find_subcommand("store").unwrap();
        let old: Vec<String> = store
            .get_subcommands()
            .filter(|verb| verb.get_name() != "help")
            .map(|verb| format!("evermap {} ", verb.get_name()))
            .collect();
        for_each_verb(&command, "evermap", &mut |path, verb| {
            let help = verb.clone().render_long_help().to_string();
            let words: Vec<&str> = help.split_whitespace().collect();
            let text = words.join(" ").replace('`', " ");
            assert!(!old.iter().any(|old| text.contains(old.as_str())), "{path}: {help}");
        });
    }

    #[test]
    fn help_lines_have_at_most_100_columns() {
        let mut command = Arguments::full_command();
        command.build();
        let check = |path: &str, command: &Command| {
            for help in [command.clone().render_help(), command.clone().render_long_help()] {
                for line in help.to_string().lines() {
                    assert!(line.chars().count() <= 100, "{path}: {line}");
                }
            }
        };
        check("evermap", &command);
        for_each_verb(&command, "evermap", &mut |path, verb| check(path, verb));
    }

    #[test]
    fn options_are_shown_only_where_they_apply() {
        let mut command = Arguments::full_command();
        command.build();
        for_each_verb(&command, "evermap", &mut |path, verb| {
            let help = verb.clone().render_long_help().to_string();
            let group = path.split(' ').nth(1).and_then(group_of).unwrap();
            let is_exec = path == "evermap sandbox exec";
            assert_eq!(help.contains("--store "), group.uses_store || is_exec, "{path}: {help}");
            let is_silent = SILENT.contains(&verb.get_name());
            assert_eq!(help.contains("--verbose"), !is_silent, "{path}: {help}");
        });
    }

    /// Splits a line of a shell into words. Knows single quotes and the end of a
    /// command.
    fn words_of(line: &str) -> Vec<std::ffi::OsString> {
        let (mut words, mut word, mut quoted) = (Vec::new(), String::new(), false);
        for character in line.chars().chain([' ']) {
            match character {
                '\'' => quoted = !quoted,
                ' ' if !quoted => match word.as_str() {
                    "|" | ">" => return words,
                    _ => words.push(std::mem::take(&mut word).into()),
                },
                _ => word.push(character),
            }
        }
        words
    }

    #[test]
    fn each_verb_has_up_to_three_examples_which_parse() {
        let command = Arguments::full_command();
        for_each_verb(&command, "evermap", &mut |path, verb| {
            if verb.has_subcommands() {
                return;
            }
            let after = verb.get_after_help().map(ToString::to_string).unwrap_or_default();
            let calls =
                after.lines().filter_map(|line| line.find("evermap ").map(|at| &line[at..]));
            let calls: Vec<&str> = calls.filter(|call| call.starts_with(path)).collect();
            assert!((1..=3).contains(&calls.len()), "{path}: {after}");
            for call in calls {
                let call = call.replace("$(pidof mpv)", "7");
                let parsed = Arguments::parse_line(&words_of(&call));
                assert!(parsed.is_ok(), "{call}: {}", parsed.unwrap_err());
            }
        });
    }

    #[test]
    fn old_spellings_parse_like_the_verbs_of_store() {
        let lines = [
            "check --repair --quarantine --json",
            "audit page --samples 3 --strict --pid 7",
            "backup there --no-verify",
            "restore there --force --json",
            "export page file --force",
            "import file page",
            "rebase --to 200000000000 --force --samples 1",
            "map page --svg file --wide --no-color",
            "stats a b --watch=2 --json",
        ];
        let command = Arguments::full_command();
        let store = command.find_subcommand("store").unwrap();
        for verb in store.get_subcommands() {
            let name = verb.get_name();
            assert!(command.find_subcommand(name).unwrap().is_hide_set(), "{name}");
            assert!(lines.iter().any(|line| line.starts_with(name)), "{name}");
        }
        for line in lines {
            let parse = |prefix: &str| {
                let line = format!("evermap {prefix}{line} -v --store place");
                let words: Vec<_> = line.split(' ').map(Into::into).collect();
                Arguments::parse_line(&words).unwrap()
            };
            use crate::arguments::Verb;
            let (new, old) = (parse("store "), parse(""));
            assert_eq!(format!("{:?}", new.common), format!("{:?}", old.common), "{line}");
            match (new.verb, old.verb) {
                (Verb::Store(new), Verb::OldSpelling(old)) => {
                    assert_eq!(format!("{:?}", new.verb), format!("{old:?}"), "{line}");
                }
                other => panic!("{line}: {other:?}"),
            }
        }
    }
}
