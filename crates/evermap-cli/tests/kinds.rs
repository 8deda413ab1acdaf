//! Sources that are certainly neither HTML nor XML are refused. All others are parsed.

#![allow(clippy::unwrap_used)]

mod common;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use common::{Place, Ran};

#[test]
fn sources_without_markup_are_refused_with_a_remedy() {
    let place = Place::new();
    let elf = std::fs::read("/bin/true").unwrap();
    let inputs: [(&str, &[u8], &str); 9] = [
        ("x.json", b"{\"a\": [1, 2, \"<b>\"]}", "it is JSON"),
        ("lines", b"{\"a\":1}\n{\"a\":2}\n", "it is JSON"),
        ("true", &elf, "it is an executable"),
        ("true.html", &elf, "it is an executable"),
        ("x.png", b"\x89PNG\r\n\x1A\n\0\0\0\rIHDR<p>", "it is a PNG image"),
        ("x.pdf", b"%PDF-1.7\n<<>>", "it is a PDF"),
        ("x.html.gz", b"\x1F\x8B\x08\0\0\0\0\0", "gunzip -c"),
        ("x.docx", b"PK\x03\x04\x14\0", "it is a ZIP archive"),
        ("notes.txt", b"no tags here\n", "it is text without a tag"),
    ];
    for (name, bytes, says) in inputs {
        place.file(name, bytes);
        place.fails(8, says, &["parse", name]);
        place.fails(8, "`--html`", &["parse", name]);
    }
    assert!(!place.store().exists() || place.ok(&["ls"]).is_empty());
    for (name, ..) in inputs {
        place.ok(&["parse", "--html", name]);
    }
    assert_eq!(place.ok(&["ls"]).lines().count(), inputs.len());
}

fn fifo(place: &Place, name: &str) -> PathBuf {
    let path = place.path(name);
    assert!(std::process::Command::new("mkfifo").arg(&path).status().unwrap().success());
    path
}

#[test]
fn a_pipe_without_a_writer_does_not_keep_other_files_waiting() {
    let place = Place::new();
    place.file("a.html", "<p>a");
    place.file("b.html", "<p>b");
    fifo(&place, "pipe.html");
    let begin = Instant::now();
    let ran = place.run(&["parse", "--keep-going", "a.html", "pipe.html", "b.html"]);
    assert!(begin.elapsed() < Duration::from_secs(20), "{ran:?}");
    assert_eq!(ran.code, 8, "{ran:?}");
    let says = "cannot read pipe.html: no process writes to this pipe";
    assert!(ran.err.contains(says) && ran.err.contains("1 of 3 files"), "{ran:?}");
    assert_eq!(place.ok(&["ls"]), "a.html\nb.html\n");
    place.file("c.html", "<p>c");
    place.fails(8, says, &["parse", "c.html", "pipe.html"]);
    assert_eq!(place.ok(&["ls"]), "a.html\nb.html\n");
}

#[test]
fn pipes_with_writers_are_parsed_among_other_files() {
    let place = Place::new();
    place.file("a.html", "<p>a");
    let [early, slow] = ["early.html", "slow.html"].map(|name| fifo(&place, name));
    let writers = [
        std::thread::spawn(move || std::fs::write(early, "<p>early").unwrap()),
        // Is silent for longer than a writer is waited for.
        std::thread::spawn(move || {
            let mut pipe = std::fs::File::options().write(true).open(slow).unwrap();
            std::thread::sleep(Duration::from_millis(1500));
            std::io::Write::write_all(&mut pipe, b"<p>slow").unwrap();
        }),
    ];
    let parsed = place.run(&["parse", "a.html", "early.html", "slow.html"]);
    assert_eq!((parsed.code, parsed.err.as_str()), (0, ""), "{parsed:?}");
    writers.into_iter().for_each(|writer| writer.join().unwrap());
    for name in ["a", "early", "slow"] {
        let found = place.ok(&["query", &format!("{name}.html"), "p", "--text"]);
        assert_eq!(found.trim_end(), name);
    }
}

/// A single pipe is waited for.
#[test]
fn a_single_pipe_waits_for_its_writer() {
    let place = Place::new();
    let path = fifo(&place, "late.html");
    let mut command = place.command(&["parse", "late.html"]);
    let piped = std::process::Stdio::piped;
    let mut child = command.stdout(piped()).stderr(piped()).spawn().unwrap();
    std::thread::sleep(Duration::from_millis(1500));
    assert!(child.try_wait().unwrap().is_none(), "it did not wait");
    std::fs::write(path, "<p>late").unwrap();
    let ran = Ran::of(child.wait_with_output().unwrap());
    assert_eq!((ran.code, ran.err.as_str()), (0, ""), "{ran:?}");
    assert_eq!(place.ok(&["query", "late.html", "p", "--text"]), "late\n");
}

#[test]
fn keep_going_stores_the_other_files_and_counts_failures() {
    let place = Place::new();
    place.file("a.html", "<p>a");
    place.file("b.json", "{\"a\": 1}");
    place.file("c.xml", "<a><b></a>");
    place.file("d.xml", "<a/>");
    let files = ["a.html", "b.json", "c.xml", "d.xml", "gone.html"];
    let mut arguments = vec!["parse"];
    arguments.extend(files);
    // Without the option nothing is stored.
    place.fails(3, "gone.html", &arguments);
    place.fails(8, "b.json", &arguments[..5]);
    assert!(!place.store().exists() || place.ok(&["ls"]).is_empty());
    arguments.push("--keep-going");
    let ran = place.run(&arguments);
    assert_eq!(ran.code, 3, "the first failure's code: {ran:?}");
    for says in ["b.json: it is JSON", "c.xml", "gone.html", "3 of 5 files were not parsed"] {
        assert!(ran.err.contains(says), "{says}: {ran:?}");
    }
    assert!(ran.out.contains("a.html:") && ran.out.contains("d.xml:"), "{ran:?}");
    assert_eq!(place.ok(&["ls"]), "a.html\nd.xml\n");
    // An error in the arguments fails the whole call.
    place.fails(2, "--name", &["parse", "--keep-going", "--name", "x", "a.html", "d.xml"]);
}

#[test]
fn a_query_of_another_object_names_verbs_of_the_command() {
    let place = Place::new();
    let store = evermap::Store::create_new(place.store()).unwrap();
    store.create::<evermap::PVec<u64>, _>("numbers", [1, 2, 3]).unwrap();
    drop(store);
    let ran = place.run(&["query", "numbers", "p"]);
    ran.failed(5, "object `numbers` is not a document; list the documents with `evermap ls");
    assert!(!ran.err.contains("migrate") && !ran.err.contains("::"), "{ran:?}");
}

/// Every document of the corpus is accepted, whatever its name.
#[test]
fn every_document_of_the_corpus_is_accepted() {
    let folder = std::env::var_os("EVERMAP_CORPUS").map_or_else(
        || PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../shared/corpus"),
        PathBuf::from,
    );
    let mut files = Vec::new();
    for part in ["html", "xml"] {
        let Ok(entries) = std::fs::read_dir(folder.join(part)) else {
            eprintln!("SKIPPED: no corpus at {} (set EVERMAP_CORPUS)", folder.display());
            return;
        };
        files.extend(entries.map(|entry| entry.unwrap().path()).filter(|path| path.is_file()));
    }
    let place = Place::new();
    let (mut documents, mut refused) = (0, Vec::new());
    for file in files {
        let extension = file.extension().and_then(|text| text.to_str()).unwrap_or_default();
        if !matches!(extension, "html" | "htm" | "xml" | "xhtml" | "svg") {
            continue;
        }
        let bytes = std::fs::read(&file).unwrap();
        if bytes.len() > 4 << 20 {
            continue;
        }
        // With a name without an extension.
        place.file("document", bytes);
        let ran = place.run(&["parse", "--force", "document"]);
        documents += 1;
        if ran.code != 0 {
            refused.push((file, ran.err));
        }
    }
    assert!(documents > 50, "{documents}");
    let kinds: Vec<_> = refused.iter().filter(|(_, why)| why.contains("neither HTML")).collect();
    assert!(kinds.is_empty(), "{kinds:?}");
}
