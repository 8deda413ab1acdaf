//! What is known of files by their names: wishes for each, in a TOML file.
//!
//! A program that loads many kinds of files, or one that was never told of loading, has its policy here: whoever installs it
//! knows which of its files are written, and which are hardly touched.

use std::path::{Path, PathBuf};

use glob::{MatchOptions, Pattern};
use serde::Deserialize;

use crate::bounded::read_bounded;
use crate::error::{Error, Result};
use crate::loader::Loader;
use crate::plan::{Cache, ForkPolicy, Latency, Method, Order};

/// `*` and `?` stand for no `/`, `**` does.
const MATCHING: MatchOptions = MatchOptions {
    case_sensitive: true,
    require_literal_separator: true,
    require_literal_leading_dot: false,
};
/// Bytes of the longest file of rules.
const BYTES_MAX: u64 = 1 << 20;
/// What rules that came as text are called in errors.
const TEXT: &str = "rules";

/// Rules for files, in their order: the first whose pattern matches counts.
///
/// ```
/// let rules = evermap_load::Rules::parse(r#"
///     [[file]]
///     pattern = "*.idx"
///     touched = 0.05
///     written = 0
///     order = "random"
///
///     [[file]]
///     pattern = "/srv/models/**"
///     latency = "finish"
/// "#)?;
/// assert_eq!(rules.find("/srv/words.idx").map(|rule| rule.pattern()), Some("*.idx"));
/// assert!(rules.loader("/srv/words.txt").is_none());
/// # Ok::<(), evermap_load::Error>(())
/// ```
#[derive(Debug, Clone, Default)]
pub struct Rules {
    rules: Vec<Rule>,
}

/// What is known of the files that a pattern matches.
#[derive(Debug, Clone)]
pub struct Rule {
    pattern: Pattern,
    /// The pattern has no `/`: it is for names, wherever they are.
    is_for_names: bool,
    said: Said,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Text {
    #[serde(default)]
    file: Vec<Said>,
}

/// A table `[[file]]`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Said {
    pattern: toml::Spanned<String>,
    touched: Option<f64>,
    written: Option<f64>,
    order: Option<Order>,
    latency: Option<Latency>,
    cache: Option<Cache>,
    fork: Option<ForkPolicy>,
    memory_max_bytes: Option<u64>,
    threads: Option<usize>,
    method: Option<Method>,
    unchanging: Option<bool>,
    recording: Option<PathBuf>,
}

impl Rules {
    /// Reads a file of rules, of 1 MiB at most. Patterns and recordings that are relative are so to its directory.
    ///
    /// # Errors
    ///
    /// [`Error::Io`]; [`Error::Malformed`] says what is wrong in which line.
    pub fn read(path: impl AsRef<Path>) -> Result<Rules> {
        let path = path.as_ref();
        let failed = |source| Error::Io { operation: "read", path: path.into(), source };
        let bytes = read_bounded(path, BYTES_MAX).map_err(failed)?;
        let text = String::from_utf8(bytes)
            .map_err(|error| Error::Malformed { path: path.into(), what: error.to_string() })?;
        let path = std::path::absolute(path).map_err(failed)?;
        Rules::new(&text, &path, path.parent().unwrap_or(Path::new("/")))
    }

    /// Rules from their text. What is relative is so to the current directory.
    ///
    /// # Errors
    ///
    /// As [`read`](Rules::read).
    pub fn parse(text: &str) -> Result<Rules> {
        let directory = std::env::current_dir().unwrap_or("/".into());
        Rules::new(text, Path::new(TEXT), &directory)
    }

    fn new(text: &str, path: &Path, directory: &Path) -> Result<Rules> {
        let malformed = |what: String| Error::Malformed { path: path.into(), what };
        let tables: Text = toml::from_str(text).map_err(|error| malformed(error.to_string()))?;
        let rules = tables.file.into_iter().map(|said| {
            let line = text[..said.pattern.span().start].lines().count().max(1);
            Rule::new(said, directory).map_err(|what| malformed(format!("line {line}: {what}")))
        });
        Ok(Rules { rules: rules.collect::<Result<_>>()? })
    }

    /// The rule for a file: the first that matches. A relative path is relative to the current directory. Asks nothing of the file.
    pub fn find(&self, path: impl AsRef<Path>) -> Option<&Rule> {
        let path = std::path::absolute(path).ok()?;
        self.rules.iter().find(|rule| rule.matches(&path))
    }

    /// A loader of a file, as its rule says; `None` if there is none for it.
    pub fn loader(&self, path: impl AsRef<Path>) -> Option<Loader> {
        let path = path.as_ref();
        Some(self.find(path)?.loader(path))
    }

    /// All rules.
    pub fn iter(&self) -> impl Iterator<Item = &Rule> {
        self.rules.iter()
    }

    /// Asks these first, then those.
    pub fn then(mut self, others: Rules) -> Rules {
        self.rules.extend(others.rules);
        self
    }
}

impl Rule {
    fn new(mut said: Said, directory: &Path) -> Result<Rule, String> {
        let pattern = said.pattern.as_ref().as_str();
        let is_for_names = !pattern.contains('/');
        let whole = match is_for_names || pattern.starts_with('/') {
            true => pattern.into(),
            // The directory is a name, whatever characters are in it.
            false => {
                let directory = directory.to_str().ok_or_else(|| {
                    format!("`{pattern}` is relative to a directory whose name is not UTF-8: give it from `/` on")
                })?;
                let directory = directory.trim_end_matches('/');
                format!("{}/{}", Pattern::escape(directory), pattern.trim_start_matches("./"))
            }
        };
        let pattern = Pattern::new(&whole)
            .map_err(|error| format!("`{pattern}` is no pattern: {}", error.msg))?;
        for (name, share) in [("touched", said.touched), ("written", said.written)] {
            if share.is_some_and(|share| !(0.0..=1.0).contains(&share)) {
                return Err(format!("`{name}` is a share: from 0 to 1"));
            }
        }
        if said.threads == Some(0) {
            return Err("`threads` is 1 at least".into());
        }
        said.recording = said.recording.map(|path| directory.join(path));
        Ok(Rule { pattern, is_for_names, said })
    }

    fn matches(&self, path: &Path) -> bool {
        let against = match self.is_for_names {
            true => path.file_name().map(Path::new),
            false => Some(path),
        };
        against.is_some_and(|path| self.pattern.matches_path_with(path, MATCHING))
    }

    /// The pattern, as it was given.
    pub fn pattern(&self) -> &str {
        self.said.pattern.as_ref()
    }

    /// Whether somebody vouches for it that nobody changes such files while they are loaded and used (`unchanging = true`), or knows that somebody
    /// does (`false`). A rule allows no mapping by itself: whoever trusts the file of rules calls [`Loader::may_map`].
    pub fn unchanging(&self) -> Option<bool> {
        self.said.unchanging
    }

    /// A loader of a file, as the rule says.
    pub fn loader(&self, path: impl AsRef<Path>) -> Loader {
        let said = &self.said;
        let mut loader = Loader::open(path)
            .order(said.order.unwrap_or_default())
            .latency(said.latency.unwrap_or_default())
            .cache(said.cache.unwrap_or_default())
            .fork(said.fork.unwrap_or_default());
        if let Some(share) = said.touched {
            loader = loader.touched(share);
        }
        if let Some(share) = said.written {
            loader = loader.written(share);
        }
        if let Some(bytes) = said.memory_max_bytes {
            loader = loader.memory_max(bytes);
        }
        if let Some(threads) = said.threads {
            loader = loader.threads(threads);
        }
        if let Some(method) = said.method {
            loader = loader.method(method);
        }
        if let Some(path) = &said.recording {
            loader = loader.recording(path);
        }
        loader
    }
}
