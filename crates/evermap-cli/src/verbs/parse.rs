//! `evermap parse`: puts documents into the store.
//!
//! All files of one call are one batch: they appear in the store together or not at all, and a
//! process that is killed on the way leaves the store as it was. A file that has not changed since
//! it was parsed is recognised by its size and time stamp, without reading it, or else by its hash.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use evermap::{Batch, Error, Snapshot, Store};
use evermap_dom::{Document, DocumentKind, NewDocument, NewNamed};
use serde::{Deserialize, Serialize};

use super::ls::kind_name;
use crate::failure::Failure;
use crate::limits::SOURCE_MIB;
use crate::names::{self, FileName};
use crate::output::{self, Output};
use crate::source::Input;

/// Parse documents into the store
///
/// The store is made if it isn't there. All files of one call become visible together, durably,
/// when all of them were parsed; a file that has not changed since it was parsed costs nothing.
///
/// A document is named after its file's path, relative to the directory that the store is in if the file
/// is below that.
///
/// The kind is told by the file's extension, else by its content: text that begins with an XML
/// declaration is XML, other text with tags is HTML. Other files are refused, unless --html or --xml
/// says otherwise.
#[derive(Debug, clap::Args)]
pub struct Parse {
    /// Files to parse; `-` is standard input and needs --name
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,
    /// Name of the document in the store [default: the file's path]
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
    /// Report files that cannot be parsed, and store the others
    #[arg(long)]
    keep_going: bool,
    /// Longest source, in MiB
    #[arg(long, value_name = "MIB", default_value_t = SOURCE_MIB, value_parser = clap::value_parser!(u64).range(1..=4095))]
    limit: u64,
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
    /// Of the object's file; none if it could not be looked at.
    pub stored_bytes: Option<u64>,
    /// Reading and hashing the file, parsing it, writing the object: this document's own share.
    pub read_ms: f64,
    pub parse_ms: f64,
    pub write_ms: f64,
    /// Making the whole batch durable.
    pub commit_ms: f64,
}

/// Something to parse, and where it goes.
struct Job {
    /// The object's name.
    object: String,
    /// The document's, if it is named after its file.
    file_name: Option<String>,
    input: Input,
}

/// One document of a call, done but for the commit.
struct Done {
    object: String,
    report: Report,
}

impl Parse {
    pub fn run(&self, directory: &Path) -> Result<(), Failure> {
        let mut failures = Failures { keep_going: self.keep_going, count: 0, first: None };
        let jobs = self.jobs(directory, &mut failures)?;
        if jobs.is_empty() {
            return failures.outcome(self.files.len());
        }
        let store = Store::open_or_create(directory)?;
        let mut batch = store.batch()?;
        let mut done = Vec::with_capacity(jobs.len());
        for job in jobs {
            match self.add(&store, &mut batch, job) {
                Ok(document) => done.push(document),
                Err(failure) => failures.add(failure)?,
            }
        }
        let start = Instant::now();
        batch.commit()?;
        let commit = start.elapsed();
        let mut output = Output::new();
        for document in &mut done {
            document.complete(&store, commit);
        }
        for Done { report, .. } in &done {
            match self.json {
                true => output.json(report)?,
                false => output.line(&report.in_words(done.len()))?,
            }
        }
        let stored = done.iter().filter(|document| !document.report.unchanged).count();
        if !self.json && stored > 1 {
            let commit = output::duration(commit);
            output.line(&format!("{stored} documents committed together in {commit}"))?;
        }
        output.finish()?;
        failures.outcome(self.files.len())
    }

    /// The files with the names that they get. Fails before anything was read or made.
    fn jobs(&self, directory: &Path, failures: &mut Failures) -> Result<Vec<Job>, Failure> {
        if self.name.is_some() && self.files.len() > 1 {
            return Err(Failure::Usage(
                "--name names one document, and several files were given; parse them one by one"
                    .to_string(),
            ));
        }
        let mut files = HashMap::new();
        let mut jobs = Vec::with_capacity(self.files.len());
        for file in &self.files {
            let input = match Input::look_at(file) {
                Ok(input) => input,
                Err(failure) => {
                    failures.add(failure)?;
                    continue;
                }
            };
            let (object, file_name) = self.name_of(directory, file)?;
            if let Some(other) = files.insert(object.clone(), file) {
                return Err(Failure::Usage(format!(
                    "{} and {} are the same file, `{object}`; name it once",
                    other.display(),
                    file.display()
                )));
            }
            jobs.push(Job { object, file_name, input });
        }
        Ok(jobs)
    }

    /// The object's name, and the document's if it is named after its file.
    fn name_of(&self, directory: &Path, file: &Path) -> Result<(String, Option<String>), Failure> {
        if let Some(name) = &self.name {
            return Ok((names::check_given(name)?.to_string(), None));
        }
        if file == Path::new("-") {
            return Err(Failure::Usage(
                "standard input has no name; give the document one with --name".to_string(),
            ));
        }
        let FileName { whole, in_store } = FileName::of(directory, file)?;
        Ok((in_store, Some(whole)))
    }

    fn add(&self, store: &Store, batch: &mut Batch, mut job: Job) -> Result<Done, Failure> {
        self.find_old_name(store, &mut job);
        let Job { object, file_name, input } = job;
        let name = file_name.clone().unwrap_or_else(|| object.clone());
        let kind = self.kind_asked().or_else(|| input.kind_by_name());
        let old = self.old(store, &object, kind)?;
        if let Some(old) = &old {
            self.refuse_another_file(&object, file_name.as_deref(), &input, old)?;
            if input.is_source_of(old) {
                return Done::unchanged(name, object, old);
            }
        }
        let start = Instant::now();
        let contents = input.read(self.limit << 20, self.kind_asked().is_some())?;
        if let Some(old) = old.filter(|old| old.source().hash == contents.source.hash) {
            return Done::unchanged(name, object, &old);
        }
        let read = start.elapsed();

        let start = Instant::now();
        let kind = kind.unwrap_or_else(|| contents.kind());
        let tables = contents.parse(kind, &name)?;
        let parse = start.elapsed();

        let start = Instant::now();
        let document = NewDocument { tables: &tables, source: &contents.source };
        match &file_name {
            Some(name) => batch.replace::<Document, _>(&object, NewNamed { document, name })?,
            None => batch.replace::<Document, _>(&object, document)?,
        }
        let report = Report {
            name,
            unchanged: false,
            kind: kind_name(kind).to_string(),
            nodes: tables.node_count() as u64,
            source_bytes: contents.source.size_bytes,
            stored_bytes: None,
            read_ms: output::milliseconds(read),
            parse_ms: output::milliseconds(parse),
            write_ms: output::milliseconds(start.elapsed()),
            commit_ms: 0.0,
        };
        Ok(Done { object, report })
    }

    /// Older versions named a document after its file's base name: such a one keeps its name.
    fn find_old_name(&self, store: &Store, job: &mut Job) {
        let path = Path::new(job.input.kept_path());
        let base = path.file_name().and_then(|name| name.to_str());
        if let (Some(_), Some(base)) = (&job.file_name, base)
            && base != job.object
            && names::is_named_by_base(store, base, path)
        {
            job.object = base.to_string();
            job.file_name = None;
        }
    }

    /// Refuses to replace a document under a file's base name that is another file's.
    fn refuse_another_file(
        &self,
        object: &str,
        file_name: Option<&str>,
        input: &Input,
        old: &Document,
    ) -> Result<(), Failure> {
        let kept = old.source().path;
        match file_name.is_some() && old.file_name().is_none() && kept != input.kept_path() {
            true => Err(Failure::NameOfAnother { name: object.to_string(), of: kept }),
            false => Ok(()),
        }
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
    fn unchanged(name: String, object: String, old: &Document) -> Result<Done, Failure> {
        let dom = old.dom().map_err(|source| Failure::Document { name: name.clone(), source })?;
        let report = Report {
            name,
            unchanged: true,
            kind: kind_name(dom.kind()).to_string(),
            nodes: dom.node_count() as u64,
            source_bytes: old.source().size_bytes,
            stored_bytes: None,
            read_ms: 0.0,
            parse_ms: 0.0,
            write_ms: 0.0,
            commit_ms: 0.0,
        };
        Ok(Done { object, report })
    }

    /// Adds to the report what is known after the commit. It was made, so nothing here is a failure.
    fn complete(&mut self, store: &Store, commit: Duration) {
        if !self.report.unchanged {
            self.report.commit_ms = output::milliseconds(commit);
        }
        self.report.stored_bytes = store.info(&self.object).ok().map(|info| info.file_bytes);
    }
}

/// What could not be parsed.
struct Failures {
    keep_going: bool,
    count: usize,
    first: Option<u8>,
}

impl Failures {
    /// Reports a failure of one file, or ends the call with it.
    fn add(&mut self, failure: Failure) -> Result<(), Failure> {
        if !self.keep_going || !failure.is_of_one_source() {
            return Err(failure);
        }
        failure.say();
        self.count += 1;
        self.first.get_or_insert(failure.exit_code());
        Ok(())
    }

    fn outcome(&self, files: usize) -> Result<(), Failure> {
        match self.first {
            None => Ok(()),
            Some(code) => Err(Failure::NotAllParsed { count: self.count, files, code }),
        }
    }
}

impl Report {
    /// With the commit's time when the document was alone in its batch.
    fn in_words(&self, documents: usize) -> String {
        let sizes = format!(
            "{}: {} nodes, {} -> {}",
            self.name,
            output::count(self.nodes),
            output::bytes(self.source_bytes),
            self.stored_bytes.map_or_else(|| "?".to_string(), output::bytes),
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
