//! `evermap parse`: parses documents into the store.
//!
//! All files of one call are one batch: they appear in the store together or not at all. A kill
//! before the commit leaves the store unchanged. A file that has not changed since it was parsed is
//! recognised by its size and time stamp, without reading it, or else by its hash.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use evermap::{Batch, Error, Snapshot, Store};
use evermap_dom::{Document, DocumentKind, NewDocument, NewNamed};
use serde::{Deserialize, Serialize};

use super::ls::kind_name;
use crate::damage;
use crate::failure::Failure;
use crate::limits::SOURCE_MIB;
use crate::names::{self, FileName};
use crate::output::{self, Output};
use crate::source::Input;

/// Parse documents into the store
///
/// Makes the store if it does not exist. All files of one call become visible together, durably,
/// after all of them were parsed. A file that has not changed since it was parsed is skipped,
/// unless its stored document is damaged.
///
/// A document is named after its file's path, relative to the parent directory of the store if the
/// file is below it. It follows the file: queries parse a changed file again. A document from
/// standard input has no file to follow, and `evermap freeze` makes others stay as they are.
///
/// A pipe that no process writes to is waited for, but for one second only among several files.
///
/// The type is detected by the file's extension, else by its content: text that begins with an XML
/// declaration is XML, other text with tags is HTML. Other files are refused without --html or
/// --xml.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  evermap parse page.html feed.xml
  curl -s https://example.org/ | evermap parse - --name example")]
pub struct Parse {
    /// Files to parse; `-` is standard input and needs --name
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,
    /// Name of the document in the store [default: the file's path]
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// Parse unchanged files too, and replace objects that are not documents
    #[arg(long)]
    force: bool,
    /// Parse as HTML
    #[arg(long, conflicts_with = "xml")]
    html: bool,
    /// Parse as XML
    #[arg(long)]
    xml: bool,
    /// Report files that cannot be parsed, and store the others
    #[arg(long)]
    keep_going: bool,
    /// Maximum length of a source, in MiB
    #[arg(long, value_name = "MIB", default_value_t = SOURCE_MIB, value_parser = clap::value_parser!(u64).range(1..=4095))]
    limit: u64,
    /// Print one JSON object per line for each document
    #[arg(long)]
    json: bool,
}

/// Report of one document. Times are 0 for an unchanged one.
#[derive(Serialize, Deserialize)]
pub struct Report {
    pub name: String,
    pub unchanged: bool,
    #[serde(rename = "type")]
    pub kind: String,
    pub nodes: u64,
    pub source_bytes: u64,
    /// Size of the object's file; `None` if it cannot be read.
    pub stored_bytes: Option<u64>,
    /// Time of reading and hashing this document's file.
    pub read_ms: f64,
    pub parse_ms: f64,
    pub write_ms: f64,
    /// Time of making the whole batch durable.
    pub commit_ms: f64,
}

/// A source to parse, and the names of its object and document.
struct Job {
    object: String,
    /// Name of the document, if it is named after its file.
    file_name: Option<String>,
    input: Input,
}

/// One document of a call, complete except for the commit.
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
                false => output.line(&report.to_text(done.len()))?,
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

    /// Returns the files and the names of their objects. Reads no contents and makes nothing.
    fn jobs(&self, directory: &Path, failures: &mut Failures) -> Result<Vec<Job>, Failure> {
        if self.name.is_some() && self.files.len() > 1 {
            return Err(Failure::Usage(
                "cannot use --name with several files: it names one document; parse them one by one"
                    .to_string(),
            ));
        }
        let mut files = HashMap::new();
        let mut jobs = Vec::with_capacity(self.files.len());
        for file in &self.files {
            let input = match Input::from_path(file) {
                // A pipe among other files must not keep them waiting.
                Ok(input) if self.files.len() == 1 => input.waiting_for_writer(),
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

    /// Returns the object's name, and the document's name if it is named after its file.
    fn name_of(&self, directory: &Path, file: &Path) -> Result<(String, Option<String>), Failure> {
        if let Some(name) = &self.name {
            return Ok((names::check_given(name)?.to_string(), None));
        }
        if file == Path::new("-") {
            return Err(Failure::Usage(
                "standard input has no name; name the document with --name".to_string(),
            ));
        }
        let FileName { full, object } = FileName::of(directory, file)?;
        Ok((object, Some(full)))
    }

    fn add(&self, store: &Store, batch: &mut Batch, mut job: Job) -> Result<Done, Failure> {
        self.keep_base_name(store, &mut job);
        let Job { object, file_name, input } = job;
        let name = file_name.clone().unwrap_or_else(|| object.clone());
        let kind = self.kind_asked().or_else(|| input.kind_by_name());
        let mut old = self.old(store, &object, kind)?;
        if let Some(stored) = &old {
            self.refuse_other_source(&object, file_name.as_deref(), &input, stored)?;
            match damage::check(stored) {
                Ok(()) if input.is_source_of(stored) => {
                    return Done::unchanged(name, object, stored);
                }
                Ok(()) => {}
                Err(Error::Damaged { path, what, .. }) => {
                    let path = path.display();
                    let how = format!("{path} is damaged ({what}); its source is parsed again");
                    output::warn(&format!("document `{name}`: {how}"));
                    old = None;
                }
                Err(error) => return Err(error.into()),
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

    /// Keeps the name of a document that an older version named after its file's base name.
    fn keep_base_name(&self, store: &Store, job: &mut Job) {
        let path = Path::new(job.input.stored_path());
        let base = path.file_name().and_then(|name| name.to_str());
        let base = base.filter(|_| path.is_absolute());
        if let (Some(_), Some(base)) = (&job.file_name, base)
            && base != job.object
            && names::is_named_by_base(store, base, path)
        {
            job.object = base.to_string();
            job.file_name = None;
        }
    }

    /// Refuses to replace a document of another file that has this file's name.
    fn refuse_other_source(
        &self,
        object: &str,
        file_name: Option<&str>,
        input: &Input,
        old: &Document,
    ) -> Result<(), Failure> {
        let source_path = old.source().path;
        let is_other = match old.file_name() {
            None => source_path != input.stored_path(),
            // The old document was renamed.
            old_name => old_name != file_name,
        };
        match file_name.is_some() && is_other {
            true => Err(Failure::NameOfOtherSource { name: object.to_string(), source_path }),
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

    /// Returns the document of this name if an unchanged source need not replace it.
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
        // A document in another format, or of the other kind, is parsed again.
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

    /// Completes the report after the commit. The commit is done, so errors here are ignored.
    fn complete(&mut self, store: &Store, commit: Duration) {
        if !self.report.unchanged {
            self.report.commit_ms = output::milliseconds(commit);
        }
        self.report.stored_bytes = store.info(&self.object).ok().map(|info| info.file_bytes);
    }
}

/// Failures of single files.
struct Failures {
    keep_going: bool,
    count: usize,
    first: Option<u8>,
}

impl Failures {
    /// Reports and counts the failure of one file with `--keep-going`. Returns all other failures.
    fn add(&mut self, failure: Failure) -> Result<(), Failure> {
        if !self.keep_going || !failure.concerns_one_source() {
            return Err(failure);
        }
        failure.print();
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
    /// Returns the report as a line. A single document's line includes the time of the commit.
    fn to_text(&self, documents: usize) -> String {
        let sizes = format!(
            "{}: {}, {} -> {}",
            self.name,
            output::counted(self.nodes, "node"),
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
