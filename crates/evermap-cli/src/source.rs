//! The files that documents come from: reading them, and recognising that they have not changed since
//! they were parsed.

use std::fs::{File, Metadata};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use evermap_dom::{Document, DocumentKind, ParseError, Source, Tables, html, xml};

use crate::failure::Failure;
use crate::kinds;
use crate::limits::{keep_memory_bounded, read_all};
use crate::memory;
use crate::progress::Progress;

/// A file whose time stamp is younger than this may change again without getting a new one: the
/// clock behind the stamps ticks every few milliseconds on ext4 and every two seconds on FAT.
const STAMP_IS_FINAL_AFTER: Duration = Duration::from_secs(2);
/// Parsing a source below this takes little memory, whatever is in it.
const LARGE_SOURCE_BYTES: usize = 16 << 20;
/// What goes to the HTML parser at a time; the progress bar moves in these steps.
const PIECE_BYTES: usize = 1 << 20;

/// Something to parse, not yet read.
pub struct Input {
    path: PathBuf,
    /// As it is kept in the object: absolute, or `-`.
    kept_path: String,
    metadata: Option<Metadata>,
}

impl Input {
    /// Looks at a file without reading it; `-` is standard input.
    pub fn look_at(path: &Path) -> Result<Input, Failure> {
        let failed = |source| Failure::Source { path: path.to_path_buf(), source };
        if path == Path::new("-") {
            return Ok(Input {
                path: PathBuf::from("standard input"),
                kept_path: "-".to_string(),
                metadata: None,
            });
        }
        let metadata = std::fs::metadata(path).map_err(failed)?;
        if metadata.is_dir() {
            return Err(failed(io::Error::new(
                io::ErrorKind::IsADirectory,
                "it is a directory; name the files in it",
            )));
        }
        let absolute = crate::names::absolute(path).map_err(failed)?;
        Ok(Input {
            path: path.to_path_buf(),
            kept_path: absolute.to_string_lossy().into_owned(),
            metadata: Some(metadata).filter(Metadata::is_file),
        })
    }

    /// The kind that the file's name says, if it says one.
    pub fn kind_by_name(&self) -> Option<DocumentKind> {
        let extension = self.path.extension()?.to_str()?.to_ascii_lowercase();
        match extension.as_str() {
            "html" | "htm" => Some(DocumentKind::Html),
            "xml" | "xhtml" | "xht" | "svg" | "rss" | "atom" | "rdf" | "xsd" | "xsl" | "xslt"
            | "kml" | "gpx" | "opml" | "plist" | "xmltv" => Some(DocumentKind::Xml),
            _ => None,
        }
    }

    /// Is this, by name, size and time stamp, the file that `document` was parsed from? Reads
    /// nothing.
    pub fn is_source_of(&self, document: &Document) -> bool {
        let kept = document.source();
        self.metadata.as_ref().is_some_and(|metadata| is_as_kept(&kept, metadata))
            && kept.path == self.kept_path
    }

    /// The path that is kept in the document.
    pub fn kept_path(&self) -> &str {
        &self.kept_path
    }

    /// Reads it, if it has no more than `bytes_max` bytes. Bytes that are surely neither HTML nor XML
    /// are refused, unless `is_any` allows them.
    pub fn read(&self, bytes_max: u64, is_any: bool) -> Result<Contents<'_>, Failure> {
        let failed = |source| Failure::Source { path: self.path.clone(), source };
        let read_at = SystemTime::now();
        let named = self.kind_by_name();
        let look = |bytes: &[u8], is_all| match kinds::other(bytes, named, is_all) {
            Some(other) if !is_any => Err(Failure::NotMarkup { path: self.path.clone(), other }),
            _ => Ok(()),
        };
        let expected_bytes = self.metadata.as_ref().map_or(0, Metadata::len);
        let bytes = match self.kept_path.as_str() {
            "-" => read_all(&self.path, &mut io::stdin().lock(), 0, bytes_max, look)?,
            _ => {
                let mut file = File::open(&self.path).map_err(failed)?;
                read_all(&self.path, &mut file, expected_bytes, bytes_max, look)?
            }
        };
        look(&bytes, true)?;
        if bytes.len() > LARGE_SOURCE_BYTES {
            keep_memory_bounded();
        }
        let source = Source {
            path: self.kept_path.clone(),
            size_bytes: bytes.len() as u64,
            modified_ns: self.final_stamp(read_at),
            hash: blake3::hash(&bytes).into(),
        };
        Ok(Contents { input: self, bytes, source })
    }

    /// The time stamp, or 0 while it can't be relied on.
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

/// A source that was read.
pub struct Contents<'a> {
    input: &'a Input,
    bytes: Vec<u8>,
    pub source: Source,
}

impl Contents<'_> {
    /// The kind by name, else by content: what starts with an XML declaration is XML.
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

/// Does a file have the size and the time stamp that are kept? A stamp of 0 is not known.
pub fn is_as_kept(kept: &Source, metadata: &Metadata) -> bool {
    kept.modified_ns != 0
        && kept.modified_ns == modified_ns(metadata)
        && kept.size_bytes == metadata.len()
}

fn modified_ns(metadata: &Metadata) -> u64 {
    let since = metadata.modified().map(|time| time.duration_since(UNIX_EPOCH));
    match since {
        Ok(Ok(since)) => since.as_nanos() as u64,
        _ => 0,
    }
}
