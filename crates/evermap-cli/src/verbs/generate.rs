//! `evermap generate`: writes the help of all verbs as manual pages or as one Markdown page.
//!
//! Both are made from the command that parses the line, so they cannot differ from `--help`. The
//! Markdown has a table of options for each verb; `clap-markdown` would make lists without the
//! examples, and its page would repeat each default and each value on lines of their own.

use std::fmt::Write;
use std::path::PathBuf;

use clap::builder::StyledStr;
use clap::{Arg, Command, Subcommand};

use crate::arguments::Arguments;
use crate::failure::Failure;

/// Write the help of all verbs as manual pages, or as one page of Markdown
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  evermap generate man target/man
  evermap generate reference reference.md")]
pub struct Generate {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Write a manual page for each verb into DIR, which is made if missing
    Man {
        #[arg(value_name = "DIR")]
        directory: PathBuf,
    },
    /// Write a reference of all verbs to FILE, in Markdown
    Reference {
        #[arg(value_name = "FILE")]
        file: PathBuf,
    },
}

impl Generate {
    pub fn run(&self) -> Result<(), Failure> {
        let command = Arguments::full_command();
        match &self.what {
            What::Man { directory } => std::fs::create_dir_all(directory)
                .and_then(|()| clap_mangen::generate_to(command, directory))
                .map_err(|source| Failure::Target { path: directory.clone(), source }),
            What::Reference { file } => {
                let mut command = command.disable_help_subcommand(true);
                command.build();
                let mut page = "# Verbs of the `evermap` command\n".to_string();
                add_verbs(&command, &mut page);
                std::fs::write(file, page)
                    .map_err(|source| Failure::Target { path: file.clone(), source })
            }
        }
    }
}

/// Adds a section for each verb without subcommands.
fn add_verbs(command: &Command, page: &mut String) {
    for verb in command.get_subcommands().filter(|verb| !verb.is_hide_set()) {
        match verb.has_subcommands() {
            true => add_verbs(verb, page),
            false => add_verb(verb, page),
        }
    }
}

fn add_verb(verb: &Command, page: &mut String) {
    let text = |text: Option<&StyledStr>| text.map(ToString::to_string).unwrap_or_default();
    let name = verb.get_bin_name().unwrap_or(verb.get_name());
    let usage = verb.clone().render_usage().to_string();
    let usage = usage.trim_start_matches("Usage: ");
    let about = text(verb.get_long_about().or(verb.get_about()));
    let _ = write!(page, "\n## {name}\n\n{about}\n\n```text\n{usage}\n```\n\n");
    let _ = writeln!(page, "| argument | |\n|---|---|");
    let hidden = ["help", "version"];
    let arguments = verb.get_arguments().filter(|argument| !argument.is_hide_set());
    for argument in arguments.filter(|argument| !hidden.contains(&argument.get_id().as_str())) {
        let _ =
            writeln!(page, "| `{}` | {} |", cell(&spelling(argument)), cell(&meaning(argument)));
    }
    let _ = write!(page, "\n```text\n{}\n```\n", text(verb.get_after_help()));
}

/// Returns an argument as on the command line: `-s, --store <DIR>` or `<FILE>...`.
fn spelling(argument: &Arg) -> String {
    match (argument.get_short(), argument.get_long()) {
        (Some(short), Some(_)) => format!("-{short}, {argument}"),
        _ => argument.to_string(),
    }
}

/// Returns the help of an argument, with its values and its default.
fn meaning(argument: &Arg) -> String {
    let help = argument.get_long_help().or(argument.get_help());
    let mut meaning = help.map(ToString::to_string).unwrap_or_default();
    let takes_value = argument.get_action().takes_values();
    let values = argument.get_possible_values();
    let values = values.iter().filter(|value| !value.is_hide_set() && takes_value);
    let values: Vec<String> = values.map(|value| format!("`{}`", value.get_name())).collect();
    if !values.is_empty() {
        let _ = write!(meaning, " [{}]", values.join(", "));
    }
    let defaults = argument.get_default_values().iter().filter(|_| takes_value);
    let defaults: Vec<_> = defaults.map(|value| value.to_string_lossy()).collect();
    if !defaults.is_empty() {
        let _ = write!(meaning, " [default: `{}`]", defaults.join(","));
    }
    meaning
}

/// Escapes a text for a cell of a table.
fn cell(text: &str) -> String {
    text.replace('|', "\\|").replace('\n', " ")
}
