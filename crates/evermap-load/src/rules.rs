//! Rules: options for files by name pattern, in a TOML file.
//!
//! Rules give a policy to a program that loads many kinds of files, or that does not use this crate
//! itself. The installer of a program knows which of its files are written or hardly touched.

use std::path::{Path, PathBuf};

use glob::{MatchOptions, Pattern};
use serde::Deserialize;

use crate::bounded::read_bounded;
use crate::error::{Error, Result};
use crate::loader::Loader;
use crate::plan::{Cache, ForkPolicy, Latency, Method, Order};

/// `*` and `?` do not match `/`; `**` does.
const MATCHING: MatchOptions = MatchOptions {
    case_sensitive: true,
    require_literal_separator: true,
    require_literal_leading_dot: false,
};
/// Maximum size of a file of rules, in bytes.
const BYTES_MAX: u64 = 1 << 20;
/// Name of rules given as text, for errors.
const TEXT: &str = "rules";

/// Ordered rules for files. The first rule whose pattern matches applies.
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

/// Options for the files that match a pattern.
#[derive(Debug, Clone)]
pub struct Rule {
    pattern: Pattern,
    /// True if the pattern has no `/` and matches file names in any directory.
    is_for_names: bool,
    fields: RuleText,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Text {
    #[serde(default)]
    file: Vec<RuleText>,
}

/// Table `[[file]]`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct RuleText {
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
    /// Reads a file of rules of at most 1 MiB. Relative patterns and recordings are relative to its
    /// directory.
    ///
    /// # Errors
    ///
    /// [`Error::Io`], or [`Error::Malformed`] with the problem and its line.
    pub fn read(path: impl AsRef<Path>) -> Result<Rules> {
        let path = path.as_ref();
        let failed = |source| Error::Io { operation: "read", path: path.into(), source };
        let bytes = read_bounded(path, BYTES_MAX).map_err(failed)?;
        let text = String::from_utf8(bytes)
            .map_err(|error| Error::Malformed { path: path.into(), what: error.to_string() })?;
        let path = std::path::absolute(path).map_err(failed)?;
        Rules::new(&text, &path, path.parent().unwrap_or(Path::new("/")))
    }

    /// Parses rules. Relative patterns and recordings are relative to the current directory.
    ///
    /// # Errors
    ///
    /// Same errors as [`read`](Rules::read).
    pub fn parse(text: &str) -> Result<Rules> {
        let directory = std::env::current_dir().unwrap_or("/".into());
        Rules::new(text, Path::new(TEXT), &directory)
    }

    fn new(text: &str, path: &Path, directory: &Path) -> Result<Rules> {
        let malformed = |what: String| Error::Malformed { path: path.into(), what };
        let tables: Text = toml::from_str(text).map_err(|error| malformed(error.to_string()))?;
        let rules = tables.file.into_iter().map(|fields| {
            let line = text[..fields.pattern.span().start].lines().count().max(1);
            Rule::new(fields, directory).map_err(|what| malformed(format!("line {line}: {what}")))
        });
        Ok(Rules { rules: rules.collect::<Result<_>>()? })
    }

    /// Returns the first rule that matches a path. Relative paths are relative to the current
    /// directory. Does not access the file.
    pub fn find(&self, path: impl AsRef<Path>) -> Option<&Rule> {
        let path = std::path::absolute(path).ok()?;
        self.rules.iter().find(|rule| rule.matches(&path))
    }

    /// Returns a loader with the options of the matching rule, or `None` if no rule matches.
    pub fn loader(&self, path: impl AsRef<Path>) -> Option<Loader> {
        let path = path.as_ref();
        Some(self.find(path)?.loader(path))
    }

    /// Iterates over all rules.
    pub fn iter(&self) -> impl Iterator<Item = &Rule> {
        self.rules.iter()
    }

    /// Appends rules, which apply to files without a match in these.
    pub fn then(mut self, others: Rules) -> Rules {
        self.rules.extend(others.rules);
        self
    }
}

impl Rule {
    fn new(mut fields: RuleText, directory: &Path) -> Result<Rule, String> {
        let pattern = fields.pattern.as_ref().as_str();
        let is_for_names = !pattern.contains('/');
        let whole = match is_for_names || pattern.starts_with('/') {
            true => pattern.into(),
            // Escape the directory, because its name may contain pattern characters.
            false => {
                let directory = directory.to_str().ok_or_else(|| {
                    format!("`{pattern}` is relative to a directory whose name is not UTF-8; use an absolute pattern")
                })?;
                let directory = directory.trim_end_matches('/');
                format!("{}/{}", Pattern::escape(directory), pattern.trim_start_matches("./"))
            }
        };
        let pattern = Pattern::new(&whole)
            .map_err(|error| format!("`{pattern}` is not a valid pattern: {}", error.msg))?;
        for (name, share) in [("touched", fields.touched), ("written", fields.written)] {
            if share.is_some_and(|share| !(0.0..=1.0).contains(&share)) {
                return Err(format!("`{name}` must be from 0 to 1"));
            }
        }
        if fields.threads == Some(0) {
            return Err("`threads` must be at least 1".into());
        }
        fields.recording = fields.recording.map(|path| directory.join(path));
        Ok(Rule { pattern, is_for_names, fields })
    }

    fn matches(&self, path: &Path) -> bool {
        let against = match self.is_for_names {
            true => path.file_name().map(Path::new),
            false => Some(path),
        };
        against.is_some_and(|path| self.pattern.matches_path_with(path, MATCHING))
    }

    /// Returns the pattern as given.
    pub fn pattern(&self) -> &str {
        self.fields.pattern.as_ref()
    }

    /// Returns true if the rule states that such files do not change while they are loaded and used
    /// (`unchanging = true`), false if it states that they may. The rule itself does not permit
    /// mapping: a caller that trusts the rules must call [`Loader::may_map`].
    pub fn unchanging(&self) -> Option<bool> {
        self.fields.unchanging
    }

    /// Returns a loader for a file with the options of this rule.
    pub fn loader(&self, path: impl AsRef<Path>) -> Loader {
        let fields = &self.fields;
        let mut loader = Loader::open(path)
            .order(fields.order.unwrap_or_default())
            .latency(fields.latency.unwrap_or_default())
            .cache(fields.cache.unwrap_or_default())
            .fork(fields.fork.unwrap_or_default());
        if let Some(share) = fields.touched {
            loader = loader.touched(share);
        }
        if let Some(share) = fields.written {
            loader = loader.written(share);
        }
        if let Some(bytes) = fields.memory_max_bytes {
            loader = loader.memory_max(bytes);
        }
        if let Some(threads) = fields.threads {
            loader = loader.threads(threads);
        }
        if let Some(method) = fields.method {
            loader = loader.method(method);
        }
        if let Some(path) = &fields.recording {
            loader = loader.recording(path);
        }
        loader
    }
}
