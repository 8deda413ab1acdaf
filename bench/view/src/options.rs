//! Parses the command line.

use std::path::{Path, PathBuf};

use lexopt::{Arg, Parser, ValueExt};

use crate::Outcome;

#[derive(Debug, Default)]
pub struct Options {
    sections: Vec<String>,
    /// Folder for figures.
    pub images: PathBuf,
    /// Folder for the last frame of each peer and page, to check the drawing.
    pub pictures: Option<PathBuf>,
    /// Only pages whose names contain one of these.
    pub filter: Vec<String>,
    /// Only media whose names contain one of these.
    media: Vec<String>,
    rounds: Option<usize>,
}

impl Options {
    /// Reads the command line. Returns `None` if help was requested.
    pub fn read(names: &[&str]) -> Outcome<Option<Options>> {
        Options::parse(Parser::from_env(), names)
    }

    fn parse(mut parser: Parser, names: &[&str]) -> Outcome<Option<Options>> {
        let images = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/images");
        let mut options = Options { images, ..Options::default() };
        while let Some(argument) = parser.next()? {
            match argument {
                Arg::Short('h') | Arg::Long("help") => return Ok(None),
                Arg::Long("images") => options.images = parser.value()?.into(),
                Arg::Long("pictures") => options.pictures = Some(parser.value()?.into()),
                Arg::Long("rounds") => options.rounds = Some(parser.value()?.parse()?),
                Arg::Long("pages") => {
                    let parts = parser.value()?.string()?;
                    options.filter.extend(parts.split(',').map(str::to_string));
                }
                Arg::Long("media") => {
                    let parts = parser.value()?.string()?;
                    options.media.extend(parts.split(',').map(str::to_string));
                }
                Arg::Value(section) => {
                    let section = section.string()?;
                    if !names.contains(&section.as_str()) {
                        let names = names.join(", ");
                        return Err(
                            format!("unknown section `{section}`; choose from: {names}").into()
                        );
                    }
                    options.sections.push(section);
                }
                _ => return Err(argument.unexpected().into()),
            }
        }
        if options.rounds == Some(0) {
            return Err("--rounds 0: at least 1 is needed".into());
        }
        Ok(Some(options))
    }

    pub fn wants(&self, section: &str) -> bool {
        self.sections.is_empty() || self.sections.iter().any(|wanted| wanted == section)
    }

    pub fn wants_medium(&self, name: &str) -> bool {
        self.media.is_empty() || self.media.iter().any(|part| name.contains(part))
    }

    /// Returns the number of rounds, which is `usual` if none was given.
    pub fn rounds(&self, usual: usize) -> usize {
        self.rounds.unwrap_or(usual)
    }
}

pub fn help(names: &[&str]) -> String {
    format!(
        "evermap-view-bench [OPTIONS] [SECTION ...]\n\n\
         Sections: {}\n\n\
         --images DIR     folder for figures (default: docs/images)\n\
         --pictures DIR   keep the last frame of each peer and page\n\
         --pages A,B      only pages whose names contain A or B\n\
         --media A,B      only media whose names contain A or B\n\
         --rounds N       measure everything N times\n\n\
         EVERMAP_COMMAND    the evermap command; `none` measures only the peers\n\
         EVERMAP_CORPUS     folders with pages, separated by `:`\n\
         EVERMAP_BENCH_DIR  folder on the disk to measure\n\
         EVERMAP_BENCH_WAIT=0  do not wait for a quiet moment",
        names.join(", ")
    )
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    const NAMES: [&str; 2] = ["peers", "size"];

    fn parse(arguments: &[&str]) -> Outcome<Option<Options>> {
        Options::parse(Parser::from_args(arguments), &NAMES)
    }

    #[test]
    fn without_sections_all_are_wanted() {
        let options = parse(&[]).unwrap().unwrap();
        assert!(options.wants("peers") && options.wants("size"));
        assert!(options.images.ends_with("docs/images"));
        assert_eq!(options.rounds(7), 7);
    }

    #[test]
    fn options_and_sections_mix() {
        let options = parse(&["size", "--rounds=3", "--pages", "a,b", "--images", "x"]);
        let options = options.unwrap().unwrap();
        assert!(options.wants("size") && !options.wants("peers"));
        assert_eq!((options.rounds(7), options.filter.len()), (3, 2));
        assert_eq!(options.images, Path::new("x"));
        assert!(options.wants_medium("slow disk"));
    }

    #[test]
    fn unknown_names_are_refused_with_a_list_of_choices() {
        let error = parse(&["sizes"]).unwrap_err().to_string();
        assert!(error.contains("`sizes`") && error.contains("peers, size"), "{error}");
        assert!(parse(&["--round", "3"]).is_err());
        assert!(parse(&["--rounds", "0"]).is_err());
        assert!(parse(&["--help"]).unwrap().is_none());
    }
}
