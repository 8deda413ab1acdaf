//! Compares warm and cold pictures of whole pages, byte for byte.

use crate::command::Start;
use crate::process::Running;
use crate::samples::{head, row};
use crate::sections::{evermap, page_store};
use crate::{Bench, Outcome};

pub fn report(bench: &Bench) -> Outcome {
    let Some(evermap) = evermap(bench) else { return Ok(()) };
    let (page_store, folder) = page_store(evermap)?;
    head(&["page", "picture, bytes", "cold and warm"]);
    let mut different = Vec::new();
    for page in &bench.pages {
        page_store.keep(page)?;
        let mut pictures = Vec::new();
        for (name, start) in [("cold.png", Start::Cold), ("warm.png", Start::Warm)] {
            let path = folder.path().join(name);
            Running::start(page_store.picture(page, start, true, &path))?.finish()?;
            pictures.push(std::fs::read(&path)?);
            std::fs::remove_file(&path)?;
        }
        let verdict = match pictures[0].iter().zip(&pictures[1]).position(|(a, b)| a != b) {
            None if pictures[0].len() == pictures[1].len() => "identical".to_string(),
            place => {
                different.push(page.name.as_str());
                let place = place.unwrap_or_else(|| pictures[0].len().min(pictures[1].len()));
                format!("**different** from byte {place} on")
            }
        };
        row(&[page.name.clone(), pictures[0].len().to_string(), verdict]);
    }
    println!("\n{} of {} identical.", bench.pages.len() - different.len(), bench.pages.len());
    match different.is_empty() {
        true => Ok(()),
        false => Err(format!("cold and warm differ: {}", different.join(", ")).into()),
    }
}
