//! Links of the Markdown pages: each relative one leads to a file of the project, and each anchor
//! to a heading.
//!
//! Links to other sites are not checked, so the check needs no network. Code is skipped.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};

const SKIPPED: [&str; 3] = ["target", ".git", "corpus"];

/// Checks all pages of the workspace.
///
/// # Errors
/// All broken links, as FILE:LINE.
pub fn check(root: &Path) -> Result<String, String> {
    let mut pages = Vec::new();
    collect(root, &mut pages)?;
    let mut anchors = HashMap::new();
    let (mut problems, mut count) = (Vec::new(), 0);
    for page in &pages {
        let name = page.strip_prefix(root).unwrap_or(page).display();
        for (line, target) in links(&read(page)?) {
            count += 1;
            if let Some(problem) = problem(page, &target, &mut anchors)? {
                problems.push(format!("{name}:{line}: {target}: {problem}"));
            }
        }
    }
    match problems.is_empty() {
        true => Ok(format!("links: {count} in {} pages: in order", pages.len())),
        false => Err(problems.join("\n")),
    }
}

fn collect(folder: &Path, found: &mut Vec<PathBuf>) -> Result<(), String> {
    let entries = std::fs::read_dir(folder)
        .map_err(|error| format!("cannot read {}: {error}", folder.display()))?;
    for entry in entries.flatten() {
        let (path, name) = (entry.path(), entry.file_name());
        let is_link = entry.file_type().is_ok_and(|kind| kind.is_symlink());
        if SKIPPED.iter().any(|skipped| name == *skipped) || is_link {
            continue;
        }
        if path.is_dir() {
            collect(&path, found)?;
        } else if path.extension().is_some_and(|ending| ending == "md") {
            found.push(path);
        }
    }
    found.sort();
    Ok(())
}

fn read(page: &Path) -> Result<String, String> {
    std::fs::read_to_string(page)
        .map_err(|error| format!("cannot read {}: {error}", page.display()))
}

/// Returns the problem of a link in a page, if it has one. Caches the anchors of pages.
fn problem(
    page: &Path,
    target: &str,
    anchors: &mut HashMap<PathBuf, HashSet<String>>,
) -> Result<Option<&'static str>, String> {
    if target.contains("://") || target.starts_with("mailto:") {
        return Ok(None);
    }
    let (file, anchor) = target.split_once('#').unwrap_or((target, ""));
    let path = match file {
        "" => page.to_path_buf(),
        file => page.with_file_name(file),
    };
    if !path.exists() {
        return Ok(Some("no such file"));
    }
    if anchor.is_empty() || path.extension().is_none_or(|ending| ending != "md") {
        return Ok(None);
    }
    if !anchors.contains_key(&path) {
        anchors.insert(path.clone(), headings(&read(&path)?));
    }
    Ok((!anchors[&path].contains(anchor)).then_some("no such heading"))
}

/// Returns the lines of a page that are not fenced code, with their numbers.
fn prose(page: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut fence = None;
    page.lines().zip(1..).filter_map(move |(line, number)| {
        let start = line.trim_start();
        let ticks = start.len() - start.trim_start_matches('`').len();
        match fence {
            None if ticks >= 3 => fence = Some(ticks),
            None => return Some((number, line)),
            Some(open) if ticks >= open && start.trim_end().len() == ticks => fence = None,
            Some(_) => {}
        }
        None
    })
}

/// Returns the targets of a page's links and pictures, with their lines.
fn links(page: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    for (number, line) in prose(page) {
        let line = without_code(line);
        for rest in line.split("](").skip(1) {
            if let Some((target, _)) = rest.split_once(')') {
                let target = target.split(' ').next().unwrap_or(target);
                found.push((number, target.to_string()));
            }
        }
        // A definition, which links refer to: `[name]: target`.
        if let Some((_, target)) = line.split_once("]: ").filter(|(name, _)| name.starts_with('['))
        {
            found.push((number, target.trim().to_string()));
        }
    }
    found
}

/// Returns a line without its code spans.
fn without_code(line: &str) -> String {
    let parts: Vec<&str> = line.split('`').collect();
    let is_closed = parts.len() % 2 == 1;
    match is_closed {
        true => parts.into_iter().step_by(2).collect(),
        false => line.to_string(),
    }
}

/// Returns the anchors that GitHub and mdBook give to a page's headings. A repeated heading has a
/// number behind it.
fn headings(page: &str) -> HashSet<String> {
    let mut found = HashSet::new();
    let mut seen: HashMap<String, usize> = HashMap::new();
    for (_, line) in prose(page) {
        let text = line.trim_start_matches('#');
        if text.len() == line.len() || !text.starts_with(' ') {
            continue;
        }
        let anchor = anchor(text.trim());
        let count = seen.entry(anchor.clone()).or_default();
        found.insert(match *count {
            0 => anchor,
            count => format!("{anchor}-{count}"),
        });
        *count += 1;
    }
    found
}

/// Returns the anchor of a heading: its letters, digits, `-` and `_` in lower case, `-` for spaces.
fn anchor(heading: &str) -> String {
    let letters = heading.to_lowercase();
    let letters = letters.chars().filter_map(|letter| match letter {
        ' ' => Some('-'),
        '-' | '_' => Some(letter),
        letter => letter.is_alphanumeric().then_some(letter),
    });
    letters.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn project(pages: &[(&str, &str)]) -> Result<String, String> {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in pages {
            let path = folder.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        check(folder.path())
    }

    #[test]
    fn links_to_files_and_headings_are_in_order() {
        let pages = [
            ("README.md", "[a](docs/a.md) and [b](docs/a.md#1-the-first), [c](#top)\n# Top\n"),
            ("docs/a.md", "## 1. The `first`\n![up](../README.md) <https://x.org>\n"),
            ("docs/b.md", "[site](https://example.org/none.md#none) [page]\n\n[page]: a.md\n"),
        ];
        assert_eq!(project(&pages).unwrap(), "links: 6 in 3 pages: in order");
    }

    #[test]
    fn broken_links_are_named_with_their_lines() {
        let pages = [
            ("a.md", "# A\n\n[b](b.md) [c](#c)\n[d](a.md#e \"title\")\n\n[f]: g.md\n"),
            ("target/c.md", "[none](none.md)\n"),
        ];
        let problems = project(&pages).unwrap_err();
        let expected = "a.md:3: b.md: no such file\na.md:3: #c: no such heading\n\
                        a.md:4: a.md#e: no such heading\na.md:6: g.md: no such file";
        assert_eq!(problems, expected);
    }

    #[test]
    fn code_has_no_links_and_no_headings() {
        let page = "`[a](b)` text\n````text\n[c](d)\n```\n# E\n````\n  ```\n# F\n  ```\n# G\n";
        assert_eq!(links(page), []);
        assert_eq!(headings(page), HashSet::from(["g".to_string()]));
    }

    #[test]
    fn repeated_headings_are_numbered() {
        let expected = ["files", "files-1", "evermap-rm-name", "a-b_c"];
        let expected = expected.into_iter().map(str::to_string).collect();
        let page = "# Files\n## Files\n### `evermap rm NAME...`\n# A b_c\n#none\n";
        assert_eq!(headings(page), expected);
    }
}
