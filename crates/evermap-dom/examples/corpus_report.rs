//! Prints sizes and times for a folder of pages, compared with html5ever's own tree in the same
//! run.
//!
//! `cargo run --release --example corpus_report -- FOLDER_OF_HTML [FILE.xml ...]`

use std::hint::black_box;
use std::time::{Duration, Instant};

use evermap_dom::{Dom, Selector, html, xml};
use html5ever::ParseOpts;
use html5ever::tendril::{StrTendril, TendrilSink};
use markup5ever_rcdom::RcDom;

const ROUNDS: usize = 15;

fn main() {
    let mut arguments = std::env::args().skip(1);
    let Some(folder) = arguments.next() else {
        eprintln!("usage: corpus_report FOLDER_OF_HTML [FILE.xml ...]");
        return;
    };
    report_html(&folder);
    for file in arguments {
        report_xml(&file);
    }
}

fn best(mut work: impl FnMut()) -> Duration {
    let once = |work: &mut dyn FnMut()| {
        let start = Instant::now();
        work();
        start.elapsed()
    };
    (0..ROUNDS).map(|_| once(&mut work)).min().unwrap_or_default()
}

fn report_html(folder: &str) {
    let mut pages: Vec<(String, String)> = std::fs::read_dir(folder)
        .expect("the folder can be read")
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.extension().is_some_and(|extension| extension == "html"))
        .filter_map(|path| {
            let name = path.file_name()?.to_string_lossy().into_owned();
            let text = String::from_utf8_lossy(&std::fs::read(&path).ok()?).into_owned();
            Some((name, text))
        })
        .collect();
    pages.sort();
    let source: usize = pages.iter().map(|(_, text)| text.len()).sum();
    let (mut ours, mut peer, mut blocks, mut nodes) = (Duration::ZERO, Duration::ZERO, 0, 0);
    let mut open = Duration::ZERO;
    let mut sections: Vec<(&str, usize)> = Vec::new();
    let mut ratios = Vec::new();
    let link: Selector = "a[href]".parse().expect("valid");
    let scan: Selector = "[href]".parse().expect("valid");
    let mut check = Duration::ZERO;
    let (mut by_index, mut by_scan, mut first) = (Duration::ZERO, Duration::ZERO, Duration::ZERO);
    let mut target = vec![0u64; 1 << 19];
    for (name, text) in &pages {
        ours += best(|| {
            let tables = html::parse(text, &Default::default()).expect("no limit is reached");
            let target: &mut [u8] = bytemuck::cast_slice_mut(&mut target);
            let mut at = 0;
            tables.write_block(&mut |piece| {
                target[at..at + piece.len()].copy_from_slice(piece);
                at += piece.len();
            });
            black_box(&target);
        });
        peer += best(|| {
            let parser = html5ever::parse_document(RcDom::default(), ParseOpts::default());
            black_box(parser.one(StrTendril::from_slice(text)));
        });
        let tables = html::parse(text, &Default::default()).expect("no limit is reached");
        let block = tables.to_block();
        blocks += tables.block_len();
        nodes += tables.node_count();
        for (index, (section, bytes)) in tables.section_sizes().into_iter().enumerate() {
            match sections.get_mut(index) {
                Some((_, sum)) => *sum += bytes,
                None => sections.push((section, bytes)),
            }
        }
        ratios.push((tables.block_len() as f64 / text.len() as f64, text.len(), name));
        let dom = Dom::new(block.as_bytes()).expect("a good block");
        open += best(|| {
            black_box(Dom::new(black_box(block.as_bytes())).is_ok());
        });
        check += best(|| {
            black_box(dom.validate()).expect("a good block");
        });
        by_index += best(|| {
            black_box(dom.count(&link));
        });
        by_scan += best(|| {
            black_box(dom.count(&scan));
        });
        first += best(|| {
            black_box(dom.select_first(&link));
        });
    }
    let count = pages.len() as u32;
    println!("{count} pages, {source} bytes, {nodes} nodes, best of {ROUNDS} per page");
    println!(
        "parse and write {ours:?}, rcdom {peer:?}: ratio {:.3}",
        ours.as_secs_f64() / peer.as_secs_f64()
    );
    println!("block bytes per source byte: {:.3}", blocks as f64 / source as f64);
    for (section, bytes) in sections {
        println!("  {section:18} {:.4}", bytes as f64 / source as f64);
    }
    println!(
        "mean per page: open {:?}, validate {:?}, a[href] {:?}, first a[href] {:?}, [href] {:?}",
        open / count,
        check / count,
        by_index / count,
        first / count,
        by_scan / count
    );
    ratios.retain(|(_, bytes, _)| *bytes > 20_000);
    ratios.sort_by(|a, b| b.0.total_cmp(&a.0));
    for (ratio, bytes, name) in ratios.iter().take(8) {
        println!("  {ratio:.3} {bytes:>8} {name}");
    }
}

fn report_xml(file: &str) {
    let text = std::fs::read_to_string(file).expect("a UTF-8 file");
    let mut nodes = 0;
    let ours = best(|| {
        nodes =
            black_box(xml::parse(&text, &Default::default())).expect("well-formed").node_count();
    });
    let tables = xml::parse(&text, &Default::default()).expect("well-formed");
    let block = tables.to_block();
    let open = best(|| {
        black_box(Dom::new(black_box(block.as_bytes())).is_ok());
    });
    let check = best(|| {
        black_box(block.dom().validate()).expect("a good block");
    });
    println!("open {open:?}, validate {check:?}");
    let peer = best(|| {
        let options = roxmltree::ParsingOptions { allow_dtd: true, ..Default::default() };
        black_box(roxmltree::Document::parse_with_options(&text, options)).expect("well-formed");
    });
    println!(
        "{file}: {} bytes, {nodes} nodes, {:.3} block bytes per source byte, parse {ours:?}, roxmltree {peer:?}",
        text.len(),
        tables.block_len() as f64 / text.len() as f64
    );
    for (section, bytes) in tables.section_sizes() {
        println!("  {section:18} {:.4}", bytes as f64 / text.len() as f64);
    }
}
