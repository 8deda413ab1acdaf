//! Width of comments: 100 columns, as rustfmt keeps for code.

use std::path::{Path, PathBuf};

/// Columns that a comment may have.
const COLUMNS_MAX: usize = 100;
const ENDINGS: [&str; 6] = ["rs", "c", "h", "hpp", "cpp", "sh"];
const SKIPPED: [&str; 3] = ["target", ".git", "corpus"];

/// Checks all source files of the workspace.
///
/// # Errors
/// All comments that are wider, as FILE:LINE.
pub fn check(root: &Path) -> Result<String, String> {
    let mut files = Vec::new();
    collect(root, &mut files)?;
    let mut problems = Vec::new();
    for path in &files {
        let text = std::fs::read_to_string(path)
            .map_err(|error| format!("cannot read {}: {error}", path.display()))?;
        let name = path.strip_prefix(root).unwrap_or(path).display();
        for number in too_wide(&text) {
            problems.push(format!("{name}:{number}: comment wider than 100 columns"));
        }
    }
    match problems.is_empty() {
        true => Ok(format!("widths: {} files: in order", files.len())),
        false => Err(problems.join("\n")),
    }
}

fn collect(folder: &Path, found: &mut Vec<PathBuf>) -> Result<(), String> {
    let entries = std::fs::read_dir(folder)
        .map_err(|error| format!("cannot read {}: {error}", folder.display()))?;
    for entry in entries.flatten() {
        let (path, name) = (entry.path(), entry.file_name());
        let is_skipped = SKIPPED.iter().any(|skipped| name == *skipped);
        let is_link = entry.file_type().is_ok_and(|kind| kind.is_symlink());
        if is_skipped || is_link {
            continue;
        }
        if path.is_dir() {
            collect(&path, found)?;
        } else if path.extension().and_then(|e| e.to_str()).is_some_and(|e| ENDINGS.contains(&e)) {
            found.push(path);
        }
    }
    Ok(())
}

/// Returns the numbers of the lines with a comment that is too wide. Tables, examples in code, and
/// single words such as links cannot be wrapped.
fn too_wide(text: &str) -> Vec<usize> {
    let mut found = Vec::new();
    let mut is_code = false;
    for (index, line) in text.lines().enumerate() {
        let Some(comment) = comment_in(line) else {
            is_code = false;
            continue;
        };
        if comment.trim_start().starts_with("```") {
            is_code = !is_code;
        }
        let is_prose = !is_code && !comment.starts_with("   ") && !comment.starts_with('|');
        if is_prose && comment.contains(' ') && line.chars().count() > COLUMNS_MAX {
            found.push(index + 1);
        }
    }
    found
}

/// Returns the text of a line that is a comment.
fn comment_in(line: &str) -> Option<&str> {
    let line = line.trim_start();
    let text = ["///", "//!", "//", "* ", "# "].iter().find_map(|mark| line.strip_prefix(mark))?;
    Some(text.strip_prefix(' ').unwrap_or(text))
}

#[cfg(test)]
mod tests {
    use super::too_wide;

    #[test]
    fn a_wide_comment_is_found_by_its_line() {
        let wide = format!("fn f() {{}}\n    // {}\n", "word ".repeat(25));
        assert_eq!(too_wide(&wide), [2]);
    }

    #[test]
    fn code_in_comments_tables_links_and_plain_code_may_be_wide() {
        let words = "word ".repeat(25);
        let link = "x".repeat(120);
        for text in [
            format!("/// ```\n/// {words}\n/// ```\n"),
            format!("/// | {words} |\n"),
            format!("/// {link}\n"),
            format!("let x = {words};\n"),
        ] {
            assert_eq!(too_wide(&text), Vec::<usize>::new(), "{text}");
        }
    }
}
