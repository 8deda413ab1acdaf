//! `evermap generate`: writes the help of all verbs as manual pages or as one Markdown page.
//!
//! Both are made from the command that parses the line, so they cannot differ from `--help`. The
//! Markdown has a table of options for each verb; `clap-markdown` would make lists without the
//! examples, and its page would repeat each default and each value on lines of their own.

use std::fmt::Write;
use std::io;
use std::path::{Path, PathBuf};

use clap::builder::{Resettable, StyledStr};
use clap::{Arg, Command, Subcommand};

use crate::failure::Failure;
use crate::help;
use crate::output::Output;
use crate::result_file;

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
    /// Write a reference of all verbs to FILE, in Markdown; `-` is standard output
    Reference {
        #[arg(value_name = "FILE")]
        file: PathBuf,
    },
}

impl Generate {
    /// Runs the verb. `command` is the command with all verbs.
    pub fn run(&self, command: Command) -> Result<(), Failure> {
        match &self.what {
            What::Man { directory } if directory.as_os_str() == "-" => Err(Failure::Usage(
                "cannot write manual pages to `-`: there is one for each verb; name a directory"
                    .to_string(),
            )),
            What::Man { directory } if directory.exists() && !directory.is_dir() => {
                let why = io::Error::other(
                    "it is not a directory; name one, which is made if it does not exist",
                );
                Err(Failure::target(directory)(why))
            }
            What::Man { directory } => std::fs::create_dir_all(directory)
                .and_then(|()| write_manual(command, directory))
                .map_err(Failure::target(directory)),
            What::Reference { file } => {
                let mut command = command.disable_help_subcommand(true);
                command.build();
                let mut page = "# Verbs of the `evermap` command\n".to_string();
                add_verbs(&command, &mut page);
                if file.as_os_str() == "-" {
                    let mut output = Output::new();
                    output.raw().write_all(page.as_bytes())?;
                    return output.finish();
                }
                result_file::write(file, page)
            }
        }
    }
}

/// Writes a manual page for the command and each of its visible verbs.
///
/// The section SYNOPSIS has the usage of `--help`: clap_mangen's own lists the options without
/// their values. Value names are in italics, without the angle brackets of the help.
fn write_manual(command: Command, directory: &Path) -> io::Result<()> {
    // The section NAME is the short text, and DESCRIPTION the long one.
    let mut command = command.about(help::SUMMARY).long_about(help::ABOUT);
    command = command.disable_help_subcommand(true);
    command.build();
    write_page(&command, directory)
}

fn write_page(command: &Command, directory: &Path) -> io::Result<()> {
    for verb in command.get_subcommands().filter(|verb| !verb.is_hide_set()) {
        write_page(verb, directory)?;
    }
    let after = command.get_after_long_help().or(command.get_after_help());
    let after = after.map(ToString::to_string).unwrap_or_default();
    let bare = command.clone().after_help(Resettable::Reset).after_long_help(Resettable::Reset);
    let man = clap_mangen::Man::new(bare);
    let mut page = Vec::new();
    man.render(&mut page)?;
    let page = String::from_utf8(page).map_err(io::Error::other)?;
    let page = with_synopsis(&without_brackets(&page), command);
    std::fs::write(directory.join(man.get_filename()), page + &sections(&after))
}

/// Removes the angle brackets around value names, which are in italics.
fn without_brackets(page: &str) -> String {
    const BRACKETS: [(&str, &str); 5] = [
        ("<\\fI", "\\fI"),
        ("\\fI<", "\\fI"),
        ("\\fR>", "\\fR"),
        (">\\fR", "\\fR"),
        (">...\\fR", "\\fR..."),
    ];
    BRACKETS.iter().fold(page.to_string(), |page, (from, to)| page.replace(from, to))
}

/// Returns the page with the usage of the command in the section SYNOPSIS.
fn with_synopsis(page: &str, command: &Command) -> String {
    const BEGIN: &str = ".SH SYNOPSIS\n";
    const END: &str = ".SH DESCRIPTION\n";
    let parts = page
        .split_once(BEGIN)
        .and_then(|(before, rest)| rest.split_once(END).map(|(_, after)| (before, after)));
    match parts {
        Some((before, after)) => format!("{before}{BEGIN}{}{END}{after}", synopsis(command)),
        None => page.to_string(),
    }
}

/// Returns the lines of the usage: the command and its options in bold, names of values in italics.
fn synopsis(command: &Command) -> String {
    let name = command.get_bin_name().unwrap_or(command.get_name());
    let usage = command.clone().render_usage().to_string();
    let lines = usage.trim_start_matches("Usage: ").lines().map(|line| {
        let arguments = line.trim().strip_prefix(name).unwrap_or(line.trim());
        format!("\\fB{}\\fR{}\n", name.replace('-', "\\-"), marked_up(arguments))
    });
    lines.collect::<Vec<_>>().join(".br\n")
}

fn marked_up(arguments: &str) -> String {
    let arguments = arguments.replace("[OPTIONS]", "[OPTION]...");
    let mut text = String::new();
    let mut rest = arguments.as_str();
    while !rest.is_empty() {
        let is_of_word = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '=' | '_');
        let end = rest.find(|c: char| !is_of_word(c)).unwrap_or(rest.len());
        let (word, after) = rest.split_at(end.max(1));
        rest = after;
        text += &match word {
            "<" | ">" => String::new(),
            _ if word.starts_with('-') => format!("\\fB{}\\fR", word.replace('-', "\\-")),
            _ if word.starts_with(is_of_word) => format!("\\fI{word}\\fR"),
            _ => word.to_string(),
        };
    }
    text
}

/// Returns the text after the options as sections of a manual page, line by line.
fn sections(after: &str) -> String {
    let mut text = String::new();
    let mut is_open = false;
    for line in after.lines() {
        let heading = match line {
            "Example:" | "Examples:" => Some("EXAMPLES"),
            "Exit codes:" => Some("EXIT STATUS"),
            _ if !is_open => Some("NOTES"),
            _ => None,
        };
        if let Some(heading) = heading {
            let end = if is_open { ".fi\n" } else { "" };
            let _ = write!(text, "{end}.SH \"{heading}\"\n.nf\n");
            is_open = true;
        }
        if !line.ends_with(':') {
            let escaped = line.replace('\\', "\\e").replace('-', "\\-");
            let _ = writeln!(text, "\\&{escaped}");
        }
    }
    if is_open {
        text.push_str(".fi\n");
    }
    text
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
