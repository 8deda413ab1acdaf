//! `evermap info`: prints the properties of one object.

use std::path::Path;

use clap_complete::ArgValueCompleter;
use evermap::{Error, ObjectInfo, Store};
use evermap_dom::Document;
use serde::Serialize;

use super::ls::{kind_name, stamp};
use crate::completion::objects;
use crate::failure::Failure;
use crate::names;
use crate::output::{self, Output};
use crate::stale::{SourceState, moved_source};

/// Show the properties of an object
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Example:
  evermap info page.html")]
pub struct Info {
    /// Name of the object; `evermap ls` lists the names
    #[arg(add = ArgValueCompleter::new(objects))]
    name: String,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Report {
    name: String,
    #[serde(flatten)]
    document: Option<DocumentReport>,
    object: ObjectReport,
}

#[derive(Serialize)]
struct DocumentReport {
    #[serde(rename = "type")]
    kind: &'static str,
    title: Option<String>,
    nodes: u64,
    block_bytes: u64,
    source: SourceReport,
}

#[derive(Serialize)]
struct SourceReport {
    /// Path at which the source is looked for.
    path: String,
    /// Path at the time of parsing, if the store was moved or copied since.
    earlier_path: Option<String>,
    bytes: u64,
    modified: Option<String>,
    blake3: String,
    /// Name of the [`SourceState`].
    standing: &'static str,
}

#[derive(Serialize)]
struct ObjectReport {
    uuid: String,
    created: String,
    file_bytes: u64,
    commit: u64,
    address: String,
    regions: usize,
    blocks: u64,
    allocated_bytes: u64,
    root_type: String,
    root_type_id: String,
}

impl Info {
    pub fn run(&self, directory: &Path) -> Result<(), Failure> {
        let store = Store::open(directory)?;
        let object = names::resolve(&store, directory, &self.name)?;
        let name = names::display_name(&store, &object);
        let report = match store.read::<Document>(&object) {
            Ok(document) => Report {
                document: Some(DocumentReport::of(directory, &name, &document)?),
                name,
                object: ObjectReport::of(document.info()?),
            },
            // Only the guest knows the type of a guest object.
            Err(Error::SchemaMismatch { .. } | Error::OtherKind { .. }) => {
                Report { name, document: None, object: ObjectReport::of(store.info(&object)?) }
            }
            Err(error) => return Err(error.into()),
        };
        let mut output = Output::new();
        match self.json {
            true => output.json(&report)?,
            false => report.show(&mut output)?,
        }
        output.finish()
    }
}

impl DocumentReport {
    fn of(directory: &Path, name: &str, document: &Document) -> Result<DocumentReport, Failure> {
        let dom = document
            .dom()
            .map_err(|source| Failure::Document { name: name.to_string(), source })?;
        let source = document.source();
        let (path, earlier_path) = match moved_source(directory, document) {
            Some((now, earlier)) => {
                (now.display().to_string(), Some(earlier.display().to_string()))
            }
            None => (source.path, None),
        };
        Ok(DocumentReport {
            kind: kind_name(dom.kind()),
            title: dom.title(),
            nodes: dom.node_count() as u64,
            block_bytes: document.block_bytes(),
            source: SourceReport {
                path,
                earlier_path,
                bytes: source.size_bytes,
                modified: stamp(source.modified_ns).map(output::utc),
                blake3: blake3::Hash::from(source.hash).to_hex().to_string(),
                standing: SourceState::of(directory, document).name(),
            },
        })
    }
}

impl ObjectReport {
    fn of(info: ObjectInfo) -> ObjectReport {
        ObjectReport {
            uuid: info.uuid,
            created: output::utc(info.created),
            file_bytes: info.file_bytes,
            commit: info.sequence,
            address: format!("{:#x}", info.base_address),
            regions: info.regions.len(),
            blocks: info.heap.blocks,
            allocated_bytes: info.heap.allocated_bytes,
            root_type: info.root_type,
            root_type_id: info.root_type_id,
        }
    }
}

impl Report {
    fn show(&self, output: &mut Output) -> Result<(), Failure> {
        let mut say = |label: &str, value: &str| {
            output.line(&format!("{label:<10}  {}", output::plain(value)))
        };
        say("name", &self.name)?;
        if let Some(document) = &self.document {
            say("type", document.kind)?;
            if let Some(title) = &document.title {
                say("title", title)?;
            }
            say("nodes", &output::count(document.nodes))?;
            say("block", &output::bytes(document.block_bytes))?;
            let source = &document.source;
            say("source", &format!("{}, {}", source.path, output::bytes(source.bytes)))?;
            if let Some(earlier) = &source.earlier_path {
                say("was at", &format!("{earlier}, before the store was moved or copied"))?;
            }
            if let Some(modified) = &source.modified {
                say("modified", modified)?;
            }
            say("blake3", &source.blake3)?;
            say("now", source.standing)?;
        }
        let object = &self.object;
        say("created", &object.created)?;
        say("file", &format!("objects/{}, {}", object.uuid, output::bytes(object.file_bytes)))?;
        say("commit", &object.commit.to_string())?;
        say("address", &object.address)?;
        say("regions", &object.regions.to_string())?;
        let blocks = output::counted(object.blocks, "block");
        let allocated = output::bytes(object.allocated_bytes);
        say("allocated", &format!("{blocks}, {allocated}"))?;
        say("root type", &object.root_type)?;
        say("type id", &object.root_type_id)
    }
}
