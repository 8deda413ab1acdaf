//! Loads the documents to measure.
//!
//! `EVERMAP_CORPUS` names one or more folders, separated by `:`. The HTML and XML files in each
//! folder, and in its subfolders `html` and `xml`, are loaded. Without the variable, the
//! repository's example pages are used.

use std::path::{Path, PathBuf};

use harness::Outcome;

/// Page as text.
pub struct Page {
    pub name: String,
    pub path: PathBuf,
    pub text: String,
}

/// Documents to measure: pages sorted by name, and XML files sorted by size, the largest first.
pub struct Corpus {
    pub folders: String,
    pub html: Vec<Page>,
    pub xml: Vec<Page>,
}

impl Corpus {
    pub fn load() -> Outcome<Corpus> {
        let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/pages");
        let given = std::env::var("EVERMAP_CORPUS").ok().filter(|given| !given.is_empty());
        let folders = match &given {
            Some(given) => given.split(':').map(PathBuf::from).collect(),
            None => vec![examples],
        };
        let (mut html, mut xml) = (Vec::new(), Vec::new());
        for folder in &folders {
            for part in [folder.clone(), folder.join("html"), folder.join("xml")] {
                read_folder(&part, "html", &mut html)?;
                read_folder(&part, "xml", &mut xml)?;
            }
        }
        if html.is_empty() || xml.is_empty() {
            return Err(format!("no HTML or no XML files in {folders:?}").into());
        }
        html.sort_by(|a, b| a.name.cmp(&b.name));
        xml.sort_by_key(|page| std::cmp::Reverse(page.text.len()));
        let folders = match given {
            Some(_) => "a custom corpus (EVERMAP_CORPUS)".to_string(),
            None => "examples/pages".to_string(),
        };
        Ok(Corpus { folders, html, xml })
    }

    /// Total bytes of all pages.
    pub fn html_bytes(&self) -> usize {
        self.html.iter().map(|page| page.text.len()).sum()
    }

    /// Returns the largest page, the fourth largest, the median and the smallest; fewer if there
    /// are fewer pages.
    pub fn some_pages(&self) -> Vec<&Page> {
        let mut by_size: Vec<&Page> = self.html.iter().collect();
        by_size.sort_by_key(|page| std::cmp::Reverse(page.text.len()));
        let last = by_size.len() - 1;
        let mut places = vec![0, 3.min(last), by_size.len() / 2, last];
        places.sort_unstable();
        places.dedup();
        places.into_iter().map(|place| by_size[place]).collect()
    }
}

fn read_folder(folder: &Path, extension: &str, pages: &mut Vec<Page>) -> Outcome {
    let Ok(entries) = std::fs::read_dir(folder) else {
        return Ok(());
    };
    for entry in entries {
        let path = entry?.path();
        if path.extension().is_some_and(|found| found == extension) {
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            let text = String::from_utf8_lossy(&std::fs::read(&path)?).into_owned();
            pages.push(Page { name, path, text });
        }
    }
    Ok(())
}
