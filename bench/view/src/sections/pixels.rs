//! Compares warm and cold pictures of whole pages, byte for byte.

use crate::Bench;
use crate::command::Start;
use crate::sections::{evermap, page_store};
use harness::Outcome;
use harness::running::Running;
use harness::samples::{head, row};

pub fn report(bench: &mut Bench) -> Outcome {
    let Some(evermap) = evermap(bench) else { return Ok(()) };
    let (page_store, folder) = page_store(bench, evermap)?;
    head(&["page", "picture, bytes", "cold and warm"]);
    let mut different = Vec::new();
    for page in &bench.own.pages {
        page_store.keep(page)?;
        let mut pictures = Vec::new();
        for (name, start) in [("cold.png", Start::Cold), ("warm.png", Start::Warm)] {
            let path = folder.path().join(name);
            Running::start_family(page_store.picture(page, start, true, &path))?.finish()?;
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
    println!(
        "\n{} of {} identical.",
        bench.own.pages.len() - different.len(),
        bench.own.pages.len()
    );
    match different.is_empty() {
        true => Ok(()),
        false => Err(format!("cold and warm differ: {}", different.join(", ")).into()),
    }
}
