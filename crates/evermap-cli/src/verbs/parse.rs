//! `evermap parse`: puts documents into the store.
//!
//! All files of one call are one batch: they appear in the store together or not at all, and a
//! process that is killed on the way leaves the store as it was. A file that has not changed since
//! it was parsed is recognised by its size and time stamp, without reading it, or else by its hash.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use evermap::{Batch, Error, Snapshot, Store};
use evermap_dom::{Document, DocumentKind, NewDocument};
use serde::{Deserialize, Serialize};

use super::ls::kind_name;
use crate::failure::Failure;
use crate::output::{self, Output};
use crate::source::Input;

/// Parse documents into the store
///
/// The store is made if it isn't there. All files of one call become visible together, durably,
/// when all of them were parsed; a file that has not changed since it was parsed costs nothing.
///
/// The kind is told by the file's extension, else by its content: what begins with an XML
/// declaration is XML, everything else HTML, in which every sequence of bytes is a document.
#[derive(Debug, clap::Args)]
pub struct Parse {
    /// Files to parse; `-` is standard input and needs --name
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,
    /// Name of the document in the store [default: the file's name]
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// Parse again what has not changed, and replace objects that are no documents
    #[arg(long)]
    force: bool,
    /// Parse as HTML, whatever the name says
    #[arg(long, conflicts_with = "xml")]
    html: bool,
    /// Parse as XML, whatever the name says
    #[arg(long)]
    xml: bool,
    /// One JSON object per document and line
    #[arg(long)]
    json: bool,
}

/// What is told about one document. Times are 0 for an unchanged one.
#[derive(Serialize, Deserialize)]
pub struct Report {
    pub name: String,
    pub unchanged: bool,
    #[serde(rename = "type")]
    pub kind: String,
    pub nodes: u64,
    pub source_bytes: u64,
    pub stored_bytes: u64,
    /// Reading and hashing the file, parsing it, writing the object: this document's own share.
    pub read_ms: f64,
    pub parse_ms: f64,
    pub write_ms: f64,
    /// Making the whole batch durable.
    pub commit_ms: f64,
}

/// One document of a call, done but for the commit.
struct Done {
    name: String,
    unchanged: bool,
    read: Duration,
    parse: Duration,
    write: Duration,
}

impl Parse {
    pub fn run(&self, directory: &Path) -> Result<(), Failure> {
        let inputs = self.inputs()?;
        let store = Store::open_or_create(directory)?;
        let mut batch = store.batch()?;
        let mut done = Vec::with_capacity(inputs.len());
        for (name, input) in inputs {
            done.push(self.add(&store, &mut batch, name, &input)?);
        }
        let start = Instant::now();
        batch.commit()?;
        let commit = start.elapsed();
        let mut output = Output::new();
        for document in &done {
            let report = Report::of(&store, document, commit)?;
            match self.json {
                true => output.json(&report)?,
                false => output.line(&report.in_words(done.len()))?,
            }
        }
        let stored = done.iter().filter(|document| !document.unchanged).count();
        if !self.json && stored > 1 {
            let commit = output::duration(commit);
            output.line(&format!("{stored} documents committed together in {commit}"))?;
        }
        output.finish()
    }

    /// The files with the names that they get. Fails before anything was read or made.
    fn inputs(&self) -> Result<Vec<(String, Input)>, Failure> {
        if self.name.is_some() && self.files.len() > 1 {
            return Err(Failure::Usage(
                "--name names one document, and several files were given; parse them one by one"
                    .to_string(),
            ));
        }
        let mut files = HashMap::new();
        let mut inputs = Vec::with_capacity(self.files.len());
        for file in &self.files {
            let name = self.name_of(file)?;
            if let Some(other) = files.insert(name.clone(), file) {
                return Err(Failure::Usage(format!(
                    "{} and {} would both be called `{name}`; parse them one by one with --name",
                    other.display(),
                    file.display()
                )));
            }
            inputs.push((name, Input::look_at(file)?));
        }
        Ok(inputs)
    }

    fn name_of(&self, file: &Path) -> Result<String, Failure> {
        if let Some(name) = &self.name {
            return Ok(name.clone());
        }
        if file == Path::new("-") {
            return Err(Failure::Usage(
                "standard input has no name; give the document one with --name".to_string(),
            ));
        }
        let name = file.file_name().and_then(|name| name.to_str());
        name.map(str::to_string).ok_or_else(|| {
            Failure::Usage(format!(
                "no name for the document can be made from {}; give it one with --name",
                file.display()
            ))
        })
    }

    fn add(
        &self,
        store: &Store,
        batch: &mut Batch,
        name: String,
        input: &Input,
    ) -> Result<Done, Failure> {
        let kind = self.kind_asked().or_else(|| input.kind_by_name());
        let old = self.old(store, &name, kind)?;
        if old.as_ref().is_some_and(|old| input.is_source_of(old)) {
            return Ok(Done::unchanged(name));
        }
        let start = Instant::now();
        let contents = input.read()?;
        if old.is_some_and(|old| old.source().hash == contents.source.hash) {
            return Ok(Done::unchanged(name));
        }
        let read = start.elapsed();

        let start = Instant::now();
        let kind = kind.unwrap_or_else(|| contents.kind());
        let tables = contents.parse(kind, &name)?;
        let parse = start.elapsed();

        let start = Instant::now();
        let document = NewDocument { tables: &tables, source: &contents.source };
        batch.replace::<Document, _>(&name, document)?;
        Ok(Done { name, unchanged: false, read, parse, write: start.elapsed() })
    }

    fn kind_asked(&self) -> Option<DocumentKind> {
        match (self.html, self.xml) {
            (true, _) => Some(DocumentKind::Html),
            (_, true) => Some(DocumentKind::Xml),
            _ => None,
        }
    }

    /// The document of this name, if there is one that an unchanged source need not replace.
    fn old(
        &self,
        store: &Store,
        name: &str,
        kind: Option<DocumentKind>,
    ) -> Result<Option<Snapshot<Document>>, Failure> {
        if self.force {
            return Ok(None);
        }
        let old = match store.read::<Document>(name) {
            Ok(old) => old,
            Err(Error::NotFound { .. }) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        // A block of another format is made anew; so is one that was parsed as the other kind.
        let stored = old.dom().map(|dom| dom.kind()).ok();
        let suits = stored.is_some_and(|stored| kind.is_none_or(|kind| kind == stored));
        Ok(Some(old).filter(|_| suits))
    }
}

impl Done {
    fn unchanged(name: String) -> Done {
        Done {
            name,
            unchanged: true,
            read: Duration::ZERO,
            parse: Duration::ZERO,
            write: Duration::ZERO,
        }
    }
}

impl Report {
    fn of(store: &Store, done: &Done, commit: Duration) -> Result<Report, Failure> {
        let document = store.read::<Document>(&done.name)?;
        let dom = document
            .dom()
            .map_err(|source| Failure::Document { name: done.name.clone(), source })?;
        Ok(Report {
            name: done.name.clone(),
            unchanged: done.unchanged,
            kind: kind_name(dom.kind()).to_string(),
            nodes: dom.node_count() as u64,
            source_bytes: document.source().size_bytes,
            stored_bytes: document.info()?.file_bytes,
            read_ms: output::milliseconds(done.read),
            parse_ms: output::milliseconds(done.parse),
            write_ms: output::milliseconds(done.write),
            commit_ms: match done.unchanged {
                true => 0.0,
                false => output::milliseconds(commit),
            },
        })
    }

    /// With the commit's time when the document was alone in its batch.
    fn in_words(&self, documents: usize) -> String {
        let sizes = format!(
            "{}: {} nodes, {} -> {}",
            self.name,
            output::count(self.nodes),
            output::bytes(self.source_bytes),
            output::bytes(self.stored_bytes),
        );
        let spent = |ms: f64| output::duration(Duration::from_secs_f64(ms / 1e3));
        match (self.unchanged, documents) {
            (true, _) => format!("{sizes}, unchanged"),
            (false, 1) => format!(
                "{sizes}, parsed in {}, stored in {}",
                spent(self.read_ms + self.parse_ms),
                spent(self.write_ms + self.commit_ms)
            ),
            (false, _) => format!("{sizes}, parsed in {}", spent(self.read_ms + self.parse_ms)),
        }
    }
}
