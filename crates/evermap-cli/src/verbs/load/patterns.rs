//! Rules in the form that the shim needs: one text, with patterns that do not depend on the current
//! directory.
//!
//! The shim knows a file by its kernel name, which is absolute and has no symbolic links. So the
//! part of a pattern without wildcards is resolved here.

use std::path::{Component, Path, PathBuf};

use evermap_load::Rules;
use toml::{Table, Value};

use crate::failure::Failure;

const WILD: [char; 4] = ['*', '?', '[', ']'];

/// Returns the text of rules for these patterns, followed by the rules in a file.
pub fn rules(patterns: &[String], file: Option<&Path>) -> Result<String, Failure> {
    let here = std::env::current_dir().map_err(Failure::source("."))?;
    let mut tables = Vec::new();
    for pattern in patterns {
        tables.push(Value::Table(of_pattern(pattern, &here)?));
    }
    if let Some(path) = file {
        tables.extend(of_file(path)?);
    }
    let text = Table::from_iter([("file".to_string(), Value::Array(tables))]).to_string();
    Rules::parse(&text)?;
    Ok(text)
}

fn of_pattern(pattern: &str, here: &Path) -> Result<Table, Failure> {
    let table = |pattern: &str| Table::from_iter([("pattern".to_string(), pattern.into())]);
    let whole = absolute(pattern, here)?;
    let text = Table::from_iter([("file".to_string(), Value::Array(vec![table(&whole).into()]))]);
    match Rules::parse(&text.to_string()) {
        Ok(_) => Ok(table(&whole)),
        Err(evermap_load::Error::Malformed { what, .. }) => {
            // Remove the line number, which refers to the generated text.
            let what = what.split_once(": ").map_or(what.as_str(), |(_, what)| what);
            Err(Failure::Usage(format!("--map {pattern}: {what}")))
        }
        Err(error) => Err(error.into()),
    }
}

/// Returns the tables of a file of rules, with paths relative to its directory made absolute.
fn of_file(path: &Path) -> Result<Vec<Value>, Failure> {
    Rules::read(path)?;
    let failed = Failure::source(path);
    let text = std::fs::read_to_string(path).map_err(failed)?;
    let directory = std::path::absolute(path).map_err(failed)?;
    let directory = directory.parent().unwrap_or(Path::new("/"));
    // The text was validated above: a table of tables with these keys.
    let whole: Table = text.parse().unwrap_or_default();
    let Some(Value::Array(tables)) = whole.get("file") else { return Ok(Vec::new()) };
    let mut tables = tables.clone();
    for table in tables.iter_mut().filter_map(Value::as_table_mut) {
        if let Some(pattern) = table.get("pattern").and_then(Value::as_str) {
            let pattern = absolute(pattern, directory)?;
            table.insert("pattern".into(), pattern.into());
        }
        if let Some(recording) = table.get("recording").and_then(Value::as_str) {
            let recording = directory.join(recording).to_string_lossy().into_owned();
            table.insert("recording".into(), recording.into());
        }
    }
    Ok(tables)
}

/// Makes a pattern absolute and resolves its links. A pattern without `/` matches names in any
/// directory and stays as it is.
fn absolute(pattern: &str, directory: &Path) -> Result<String, Failure> {
    if !pattern.contains('/') {
        return Ok(pattern.into());
    }
    let mut fixed = PathBuf::new();
    let mut wild = Vec::new();
    for component in Path::new(pattern).components() {
        let text = component.as_os_str().to_string_lossy();
        match component {
            Component::CurDir => {}
            _ if wild.is_empty() && !text.contains(WILD) => fixed.push(component),
            _ => wild.push(text.into_owned()),
        }
    }
    let fixed = directory.join(fixed);
    let real = resolved(&fixed);
    let Some(real) = real.to_str() else {
        return Err(Failure::Usage(format!(
            "`{pattern}` is in a directory whose name is not UTF-8; use a pattern without `/`, which matches file names"
        )));
    };
    let mut whole = escaped(real.trim_end_matches('/'));
    for part in wild {
        whole = whole + "/" + &part;
    }
    Ok(whole)
}

/// Resolves links in the part of a path that exists.
fn resolved(path: &Path) -> PathBuf {
    let mut ancestors = path.ancestors();
    let found = ancestors.find_map(|there| Some((there.canonicalize().ok()?, there)));
    match found {
        Some((real, there)) => match path.strip_prefix(there) {
            Ok(rest) if !rest.as_os_str().is_empty() => real.join(rest),
            _ => real,
        },
        None => path.into(),
    }
}

/// Escapes the wildcards in a path.
fn escaped(path: &str) -> String {
    let mut text = String::with_capacity(path.len());
    for character in path.chars() {
        match WILD.contains(&character) {
            true => text.extend(['[', character, ']']),
            false => text.push(character),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_become_absolute_and_resolved_and_names_stay_names() {
        let place = tempfile::tempdir().unwrap();
        let real = place.path().canonicalize().unwrap();
        std::fs::create_dir(real.join("models [1]")).unwrap();
        std::os::unix::fs::symlink("models [1]", real.join("link")).unwrap();
        let of = |pattern| absolute(pattern, &real).unwrap();
        let real = real.to_str().unwrap();
        assert_eq!(of("*.gguf"), "*.gguf");
        assert_eq!(of("./*.gguf"), format!("{real}/*.gguf"));
        assert_eq!(of("link/**/x?"), format!("{real}/models [[]1[]]/**/x?"));
        assert_eq!(of("nothing/there/*"), format!("{real}/nothing/there/*"));
        assert_eq!(of("/nothing/there"), "/nothing/there");
    }
}
