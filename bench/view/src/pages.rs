//! Selects and copies the pages to show.
//!
//! `EVERMAP_CORPUS` names one or more folders, separated by `:`. Each folder and its subfolders
//! `html` and `viewer-pages` are searched. A folder named `viewer-pages` contributes all its pages,
//! subfolders included; a folder with some of the pages of [`CHOSEN`] contributes only those; any
//! other folder contributes all its pages. Without the variable, the repository's example pages are
//! used.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use harness::options::Options;
use lol_html::{RewriteStrSettings, element, rewrite_str};

use harness::Outcome;

/// Twenty unmodified pages from 221 bytes to 1.6 MB: news, shops, blogs, encyclopedias,
/// specifications.
pub const CHOSEN: [&str; 20] = [
    "yahoo-2",
    "guardian-1",
    "wikipedia-2",
    "breitbart",
    "nytimes-4",
    "msn",
    "pixnet",
    "buzzfeed-1",
    "nytimes-1",
    "cnet",
    "telegraph",
    "citylab-1",
    "links-in-tables",
    "lemonde-1",
    "ietf-1",
    "heise",
    "mozilla-2",
    "daringfireball-1",
    "dev418",
    "005-unescape-html-entities",
];

const ALL_OF: &str = "viewer-pages";
/// Largest resource of a page that is copied.
const RESOURCE_BYTES_MOST: u64 = 8 << 20;

/// A page in a file.
#[derive(Clone, Debug)]
pub struct Page {
    pub name: String,
    pub path: PathBuf,
    pub bytes: u64,
    /// Folder that holds the page and its resources.
    root: PathBuf,
}

impl Page {
    /// URL to open the page.
    pub fn url(&self) -> String {
        format!("file://{}", self.path.display())
    }
}

/// Returns the pages, largest first, and prints which ones are missing.
pub fn load(options: &Options) -> Outcome<Vec<Page>> {
    let given = std::env::var("EVERMAP_CORPUS").ok().filter(|given| !given.is_empty());
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/pages");
    let mut pages = Vec::new();
    match given {
        Some(given) => {
            for folder in given.split(':').map(Path::new) {
                for part in [folder.to_path_buf(), folder.join("html"), folder.join(ALL_OF)] {
                    collect(&part, &mut pages)?;
                }
            }
        }
        None => println!(
            "- **skipped: real pages** (EVERMAP_CORPUS is not set); examples/pages instead"
        ),
    }
    if pages.is_empty() {
        collect(&examples.canonicalize()?, &mut pages)?;
    }
    pages.retain(|page| options.selects("pages", &page.name));
    if pages.is_empty() {
        return Err("no pages: see EVERMAP_CORPUS and --pages".into());
    }
    pages.sort_by(|a, b| b.bytes.cmp(&a.bytes).then_with(|| a.name.cmp(&b.name)));
    Ok(pages)
}

fn collect(folder: &Path, pages: &mut Vec<Page>) -> Outcome {
    let Ok(folder) = folder.canonicalize() else { return Ok(()) };
    let everything = folder.file_name().is_some_and(|name| name == ALL_OF);
    let mut found = Vec::new();
    find(&folder, &folder, everything, &mut found)?;
    let chosen = |page: &Page| CHOSEN.contains(&page.name.as_str());
    if !everything && found.iter().any(chosen) {
        found.retain(chosen);
        let missing = CHOSEN.iter().filter(|name| !found.iter().any(|page| page.name == **name));
        let missing: Vec<&str> = missing.copied().collect();
        if !missing.is_empty() {
            println!("- **skipped: {}** (not in {})", missing.join(", "), folder.display());
        }
    }
    pages.append(&mut found);
    Ok(())
}

fn find(folder: &Path, root: &Path, deep: bool, pages: &mut Vec<Page>) -> Outcome {
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() && deep {
            find(&path, root, deep, pages)?;
        } else if is_html(&path) && path.is_file() {
            let name = path.strip_prefix(root)?.with_extension("").to_string_lossy().into_owned();
            let bytes = path.metadata()?.len();
            pages.push(Page { name, path, bytes, root: root.to_path_buf() });
        }
    }
    Ok(())
}

fn is_html(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "html")
}

/// Elements that copies leave out.
#[derive(Clone, Copy, PartialEq)]
pub enum Without {
    Nothing,
    /// Scripts, their replacements, and redirects: programs differ in which ones they follow.
    Scripts,
}

/// Copies the pages and their resources to another folder.
pub fn copy(pages: &[Page], to: &Path, without: Without) -> Outcome<Vec<Page>> {
    let roots: BTreeSet<&Path> = pages.iter().map(|page| page.root.as_path()).collect();
    for (number, root) in roots.iter().enumerate() {
        copy_resources(root, &to.join(number.to_string()))?;
    }
    let mut copies = Vec::new();
    for page in pages {
        let number = roots.iter().position(|root| *root == page.root).unwrap_or_default();
        let root = to.join(number.to_string());
        let path = root.join(page.path.strip_prefix(&page.root)?);
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder)?;
        }
        let source = std::fs::read(&page.path)?;
        match without {
            Without::Nothing => std::fs::write(&path, source)?,
            Without::Scripts => std::fs::write(&path, strip(&String::from_utf8_lossy(&source))?)?,
        }
        copies.push(Page { path, root, ..page.clone() });
    }
    Ok(copies)
}

/// Copies style sheets, images and other resources, but no pages.
fn copy_resources(from: &Path, to: &Path) -> Outcome {
    std::fs::create_dir_all(to)?;
    for entry in std::fs::read_dir(from)? {
        let path = entry?.path();
        let Some(name) = path.file_name() else { continue };
        if path.is_dir() {
            copy_resources(&path, &to.join(name))?;
        } else if path.is_file() && !is_html(&path) && path.metadata()?.len() <= RESOURCE_BYTES_MOST
        {
            std::fs::copy(&path, to.join(name))?;
        }
    }
    Ok(())
}

fn strip(page: &str) -> Outcome<String> {
    let remove = |element: &mut lol_html::html_content::Element| {
        element.remove();
        Ok(())
    };
    let handlers = vec![
        element!("script, noscript", remove),
        element!("meta[http-equiv='refresh' i]", remove),
    ];
    // Not strict, because real pages have all kinds of markup errors.
    let settings = RewriteStrSettings {
        element_content_handlers: handlers,
        strict: false,
        ..RewriteStrSettings::new()
    };
    Ok(rewrite_str(page, settings)?)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn names(pages: &[Page]) -> Vec<&str> {
        pages.iter().map(|page| page.name.as_str()).collect()
    }

    fn folder(files: &[(&str, &str)]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let path = folder.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        folder
    }

    #[test]
    fn the_list_has_twenty_different_pages() {
        let different: BTreeSet<&str> = CHOSEN.into_iter().collect();
        assert_eq!(different.len(), 20);
    }

    #[test]
    fn only_chosen_pages_of_a_folder_are_taken() {
        let folder =
            folder(&[("msn.html", ""), ("cnet.html", ""), ("other.html", ""), ("msn.css", "")]);
        let mut pages = Vec::new();
        collect(folder.path(), &mut pages).unwrap();
        pages.sort_by(|a, b| a.name.cmp(&b.name));
        assert_eq!(names(&pages), ["cnet", "msn"]);
    }

    #[test]
    fn all_pages_of_viewer_pages_and_its_subfolders_are_taken() {
        let folder = folder(&[("viewer-pages/a.html", ""), ("viewer-pages/b/c.html", "")]);
        let mut pages = Vec::new();
        collect(&folder.path().join("viewer-pages"), &mut pages).unwrap();
        pages.sort_by(|a, b| a.name.cmp(&b.name));
        assert_eq!(names(&pages), ["a", "b/c"]);
    }

    #[test]
    fn copies_find_their_style_sheets_and_have_no_scripts() {
        let page = "<head><link rel=stylesheet href=../s.css><SCRIPT>if (a<b) '</p>'</SCRIPT>\
                    <noscript><meta http-equiv=Refresh content='0;url=x'></noscript></head><p>Text";
        let folder = folder(&[("viewer-pages/b/c.html", page), ("viewer-pages/s.css", "p {}")]);
        let mut pages = Vec::new();
        collect(&folder.path().join("viewer-pages"), &mut pages).unwrap();
        let to = tempfile::tempdir().unwrap();
        let copies = copy(&pages, to.path(), Without::Scripts).unwrap();
        let copy = std::fs::read_to_string(&copies[0].path).unwrap();
        assert!(copy.contains("<p>Text") && copy.contains("s.css"), "{copy}");
        assert!(!copy.to_lowercase().contains("script>if") && !copy.contains("a<b"), "{copy}");
        assert!(!copy.to_lowercase().contains("refresh"), "{copy}");
        assert!(copies[0].path.parent().unwrap().join("../s.css").exists());
    }

    #[test]
    fn copies_with_scripts_have_the_same_bytes() {
        let folder = folder(&[("x.html", "<script>1</script>\u{e4}")]);
        let mut pages = Vec::new();
        collect(folder.path(), &mut pages).unwrap();
        let to = tempfile::tempdir().unwrap();
        let copies = copy(&pages, to.path(), Without::Nothing).unwrap();
        assert_eq!(std::fs::read(&copies[0].path).unwrap(), std::fs::read(&pages[0].path).unwrap());
    }
}
