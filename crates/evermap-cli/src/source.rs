//! Reads the source files of documents, and detects files that have not changed since they were
//! parsed.

use std::fs::{File, Metadata};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use evermap_dom::{Document, DocumentKind, ParseError, Source, Tables, html, xml};
use rustix::fs::OFlags;

use crate::failure::Failure;
use crate::kinds;
use crate::limits::{limit_memory, read_all};
use crate::memory;
use crate::progress::Progress;

/// Minimum age of a time stamp that can be relied on. A file with a newer one may change again
/// without a new time stamp: the clock behind it ticks every few milliseconds on ext4 and every two
/// seconds on FAT.
const STAMP_IS_FINAL_AFTER: Duration = Duration::from_secs(2);
/// Maximum time that a pipe is waited for until another process opens it for writing, if other
/// sources follow. Long enough for a process that is started together with this one.
const WRITER_TIMEOUT: Duration = Duration::from_secs(1);
/// Memory is bounded for sources above this size. Smaller ones need little, whatever they contain.
const LARGE_SOURCE_BYTES: usize = 16 << 20;
/// Number of bytes per call of the HTML parser, and the step of the progress bar.
const PIECE_BYTES: usize = 1 << 20;

/// Path of documents without a source file: standard input, and pipes.
pub const STANDARD_INPUT: &str = "-";

/// A source to parse, not yet read.
pub struct Input {
    path: PathBuf,
    is_standard_input: bool,
    /// Path that is stored in the document: absolute, or [`STANDARD_INPUT`].
    stored_path: String,
    metadata: Option<Metadata>,
    waits_for_writer: bool,
}

impl Input {
    /// Reads the metadata of a file, not its contents. `-` is standard input.
    pub fn from_path(path: &Path) -> Result<Input, Failure> {
        let failed = Failure::source(path);
        if path == Path::new(STANDARD_INPUT) {
            return Ok(Input {
                path: PathBuf::from("standard input"),
                is_standard_input: true,
                stored_path: STANDARD_INPUT.to_string(),
                metadata: None,
                waits_for_writer: false,
            });
        }
        let metadata = std::fs::metadata(path).map_err(failed)?;
        if metadata.is_dir() {
            return Err(failed(io::Error::new(
                io::ErrorKind::IsADirectory,
                "it is a directory; name the files in it",
            )));
        }
        // The contents of a pipe are gone once they were read.
        let stored_path = match metadata.is_file() {
            true => crate::names::absolute(path).map_err(failed)?.to_string_lossy().into_owned(),
            false => STANDARD_INPUT.to_string(),
        };
        Ok(Input {
            path: path.to_path_buf(),
            is_standard_input: false,
            stored_path,
            metadata: Some(metadata).filter(Metadata::is_file),
            waits_for_writer: false,
        })
    }

    /// Waits for the writer of a pipe without a timeout.
    pub fn waiting_for_writer(self) -> Input {
        Input { waits_for_writer: true, ..self }
    }

    /// Returns the kind by the file's extension, `None` for other extensions.
    pub fn kind_by_name(&self) -> Option<DocumentKind> {
        let extension = self.path.extension()?.to_str()?.to_ascii_lowercase();
        match extension.as_str() {
            "html" | "htm" => Some(DocumentKind::Html),
            "xml" | "xhtml" | "xht" | "svg" | "rss" | "atom" | "rdf" | "xsd" | "xsl" | "xslt"
            | "kml" | "gpx" | "opml" | "plist" | "xmltv" => Some(DocumentKind::Xml),
            _ => None,
        }
    }

    /// Returns true if `document` was parsed from this file, by path, size and time stamp. Does not
    /// read the file.
    pub fn is_source_of(&self, document: &Document) -> bool {
        let stored = document.source();
        self.metadata.as_ref().is_some_and(|metadata| is_unchanged(&stored, metadata))
            && stored.path == self.stored_path
    }

    /// Returns the path that is stored in the document.
    pub fn stored_path(&self) -> &str {
        &self.stored_path
    }

    /// Reads the source, of at most `bytes_max` bytes. Refuses sources that are certainly neither
    /// HTML nor XML, unless `any_format` is set.
    pub fn read(&self, bytes_max: u64, any_format: bool) -> Result<Contents<'_>, Failure> {
        let failed = Failure::source(&self.path);
        let read_at = SystemTime::now();
        let named = self.kind_by_name();
        let check = |bytes: &[u8], is_all| match kinds::non_markup(bytes, named, is_all) {
            Some(format) if !any_format => {
                Err(Failure::NotMarkup { path: self.path.clone(), format })
            }
            _ => Ok(()),
        };
        let expected_bytes = self.metadata.as_ref().map_or(0, Metadata::len);
        let bytes = match self.is_standard_input {
            true => read_all(&self.path, &mut io::stdin().lock(), 0, bytes_max, check)?,
            false => {
                let mut file = self.open().map_err(failed)?;
                read_all(&self.path, &mut file, expected_bytes, bytes_max, check)?
            }
        };
        check(&bytes, true)?;
        if bytes.len() > LARGE_SOURCE_BYTES {
            limit_memory();
        }
        let source = Source {
            path: self.stored_path.clone(),
            size_bytes: bytes.len() as u64,
            modified_ns: self.final_stamp(read_at),
            hash: blake3::hash(&bytes).into(),
        };
        Ok(Contents { input: self, bytes, source })
    }

    /// Opens the file. A FIFO that took a file's place fails instead of waiting for a writer.
    fn open(&self) -> io::Result<File> {
        if self.metadata.is_none() {
            return match self.waits_for_writer {
                true => File::open(&self.path),
                false => open_pipe(&self.path),
            };
        }
        let no_wait = OFlags::NONBLOCK.bits() as i32;
        let file = File::options().read(true).custom_flags(no_wait).open(&self.path)?;
        match file.metadata()?.is_file() {
            true => Ok(file),
            false => Err(io::Error::other("it is no longer a file; run the command again")),
        }
    }

    /// Returns the time stamp in ns, or 0 if it is too new to be relied on.
    pub fn final_stamp(&self, read_at: SystemTime) -> u64 {
        let Some(metadata) = &self.metadata else {
            return 0;
        };
        let age = metadata.modified().map(|time| read_at.duration_since(time));
        match age {
            Ok(Ok(age)) if age > STAMP_IS_FINAL_AFTER => modified_ns(metadata),
            _ => 0,
        }
    }
}

/// Opens a pipe, or fails after [`WRITER_TIMEOUT`] if no process has opened it for writing.
fn open_pipe(path: &Path) -> io::Result<File> {
    let (opened, result) = mpsc::channel();
    let path = path.to_path_buf();
    // An open that waits cannot be cancelled, so after a timeout this thread stays until the
    // process ends. An open that does not wait could not tell a missing writer from one that is
    // done.
    std::thread::Builder::new().spawn(move || drop(opened.send(File::open(path))))?;
    result.recv_timeout(WRITER_TIMEOUT).unwrap_or_else(|_| {
        Err(io::Error::new(
            io::ErrorKind::TimedOut,
            "no process writes to this pipe; start one first, or parse the pipe alone",
        ))
    })
}

/// The contents of a source.
pub struct Contents<'a> {
    input: &'a Input,
    bytes: Vec<u8>,
    pub source: Source,
}

impl Contents<'_> {
    /// Returns the kind by extension, else by content: XML if it starts with an XML declaration.
    pub fn kind(&self) -> DocumentKind {
        self.input.kind_by_name().unwrap_or_else(|| {
            let start = self.bytes.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(&self.bytes);
            match start.trim_ascii_start().starts_with(b"<?xml") {
                true => DocumentKind::Xml,
                false => DocumentKind::Html,
            }
        })
    }

    pub fn parse(&self, kind: DocumentKind, name: &str) -> Result<Tables, Failure> {
        let progress = Progress::of(name, "parsing", self.source.size_bytes);
        let tables = memory::fallible(|| match kind {
            DocumentKind::Html => self.parse_html(&progress),
            DocumentKind::Xml => xml::parse_bytes(&self.bytes, &Default::default()),
        });
        tables.map_err(|source| Failure::Parse {
            path: self.input.path.clone(),
            source: Box::new(source),
        })
    }

    fn parse_html(&self, progress: &Progress) -> Result<Tables, ParseError> {
        let mut parser = html::HtmlParser::new(&Default::default());
        for piece in self.bytes.chunks(PIECE_BYTES) {
            parser.feed(piece);
            progress.at(parser.bytes_fed());
        }
        parser.finish()
    }
}

/// Returns true if a file has the stored size and time stamp. False for a stamp of 0, which is
/// unknown.
pub fn is_unchanged(stored: &Source, metadata: &Metadata) -> bool {
    stored.modified_ns != 0
        && stored.modified_ns == modified_ns(metadata)
        && stored.size_bytes == metadata.len()
}

fn modified_ns(metadata: &Metadata) -> u64 {
    let since = metadata.modified().map(|time| time.duration_since(UNIX_EPOCH));
    match since {
        Ok(Ok(since)) => since.as_nanos() as u64,
        _ => 0,
    }
}
