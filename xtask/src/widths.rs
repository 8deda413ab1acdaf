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
        for (index, line) in text.lines().enumerate() {
            if is_comment(line) && line.chars().count() > COLUMNS_MAX && !is_one_word(line) {
                problems.push(format!("{name}:{}: comment wider than 100 columns", index + 1));
            }
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

fn is_comment(line: &str) -> bool {
    let line = line.trim_start();
    line.starts_with("//") || line.starts_with("* ") || line.starts_with("# ")
}

/// Returns true for a comment that is a link or a path, which cannot be wrapped.
fn is_one_word(line: &str) -> bool {
    line.trim_start().trim_start_matches(['/', '!', '#', '*', ' ']).split(' ').count() == 1
}
