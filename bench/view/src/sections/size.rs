//! Measures the size of stored pages.
//!
//! The table has the page block (the tree) without fonts and images, which pages share, and each of
//! the other parts.

use crate::Bench;
use crate::ratios::Ratios;
use crate::sections::{evermap, page_store};
use harness::Outcome;
use harness::samples::{figure, head, row};

pub fn report(bench: &mut Bench) -> Outcome {
    let Some(evermap) = evermap(bench) else { return Ok(()) };
    let (page_store, _folder) = page_store(bench, evermap)?;
    head(&[
        "page",
        "bytes",
        "commands",
        "tree, bytes",
        "bytes a command",
        "/ source",
        "document",
        "strips",
        "fonts",
        "images",
        "all / source",
    ]);
    let (mut of_source, mut per_command) = (Ratios::default(), Ratios::default());
    let (mut source, mut tree) = (0, 0);
    for page in &bench.own.pages {
        let report = page_store.keep(page)?;
        let share = report.sizes.tree_bytes as f64 / page.bytes as f64;
        let each = report.sizes.tree_bytes as f64 / report.commands.max(1) as f64;
        of_source.push(&page.name, share);
        per_command.push(&page.name, each);
        source += page.bytes;
        tree += report.sizes.tree_bytes;
        row(&[
            page.name.clone(),
            page.bytes.to_string(),
            report.commands.to_string(),
            report.sizes.tree_bytes.to_string(),
            figure(each),
            figure(share),
            report.sizes.document_bytes.to_string(),
            report.sizes.strip_bytes.to_string(),
            report.sizes.font_bytes.to_string(),
            report.sizes.image_bytes.to_string(),
            figure(report.sizes.kept_bytes() as f64 / page.bytes as f64),
        ]);
    }
    println!(
        "\n- tree bytes / source bytes: {} in total; {}",
        figure(tree as f64 / source as f64),
        of_source.summary_of_cost()
    );
    println!("- tree bytes a command: {}", per_command.summary_of_cost());
    Ok(())
}
