//! Small operations within one process, measured in a loop: `cargo bench`.

use std::hint::black_box;
use std::path::Path;

use criterion::{Criterion, criterion_group, criterion_main};
use evermap::Store;
use evermap_dom::{Document, NewDocument, Selector, Source, html};

fn documents(criterion: &mut Criterion) {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/pages/table.html");
    let page = std::fs::read_to_string(page).expect("the example page");
    let tables = html::parse(&page, &Default::default()).expect("no limit is reached");
    let (path, size_bytes) = ("table.html".into(), page.len() as u64);
    let source = Source { path, size_bytes, modified_ns: 0, hash: [0; 32] };
    let folder = std::env::temp_dir().join(format!("evermap-in-process-{}", std::process::id()));
    let store = Store::create_new(&folder).expect("a new store");
    let document = NewDocument { tables: &tables, source: &source };
    store.create::<Document, _>("table", document).expect("a new object");

    criterion.bench_function("store: open an object and close it", |bencher| {
        bencher.iter(|| {
            store.read::<Document>(black_box("table")).expect("it is there").block_bytes()
        });
    });
    let document = store.read::<Document>("table").expect("it is there");
    criterion.bench_function("document: dom", |bencher| {
        bencher.iter(|| black_box(&document).dom().expect("a good block").node_count());
    });
    let dom = document.dom().expect("a good block");
    for text in ["a[href]", "td.station", "tr > td:first-child", "[class]"] {
        let selector: Selector = text.parse().expect("a good selector");
        criterion.bench_function(&format!("count {text}"), |bencher| {
            bencher.iter(|| dom.count(black_box(&selector)));
        });
        criterion.bench_function(&format!("first {text}"), |bencher| {
            bencher.iter(|| dom.select_first(black_box(&selector)).is_some());
        });
    }
    drop(document);
    drop(store);
    std::fs::remove_dir_all(folder).expect("the folder can be removed");
}

criterion_group!(benches, documents);
criterion_main!(benches);
