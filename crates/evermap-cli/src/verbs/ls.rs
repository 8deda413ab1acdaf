//! `evermap ls`: lists the objects of a store.

use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use evermap::{Error, Store};
use evermap_dom::{Document, DocumentKind};
use serde::Serialize;

use crate::failure::Failure;
use crate::names;
use crate::output::{self, Output};

/// List the objects in the store, by name
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  evermap ls --long
  evermap ls --json --store ~/pages")]
pub struct Ls {
    /// Show also type, nodes, sizes and time of storing
    #[arg(long, short)]
    long: bool,
    /// Print one JSON object per line, with the fields of --long
    #[arg(long)]
    json: bool,
}

/// Entry for one object. Objects other than documents have no nodes and no source.
#[derive(Serialize)]
struct Listed {
    name: String,
    #[serde(rename = "type")]
    kind: &'static str,
    nodes: Option<u64>,
    source_bytes: Option<u64>,
    stored_bytes: u64,
    created: String,
}

impl Ls {
    pub fn run(&self, directory: &Path) -> Result<(), Failure> {
        let store = Store::open(directory)?;
        let mut names = store.list()?;
        names.sort_unstable();
        let mut output = Output::new();
        if !self.long && !self.json {
            for name in &names {
                output.line(&names::display_name(&store, name))?;
            }
            return output.finish();
        }
        let (mut listed, mut outcome) = (Vec::new(), Ok(()));
        for name in &names {
            match Listed::of(&store, name) {
                Ok(entry) => listed.push(entry),
                // The object was removed after the names were read.
                Err(Failure::Store(Error::NotFound { .. })) => {}
                Err(failure) => {
                    if let Err(earlier) = std::mem::replace(&mut outcome, Err(failure)) {
                        earlier.report();
                    }
                }
            }
        }
        match self.json {
            true => listed.iter().try_for_each(|entry| output.json(entry))?,
            false => show(&listed, &mut output)?,
        }
        output.finish()?;
        outcome
    }
}

impl Listed {
    fn of(store: &Store, name: &str) -> Result<Listed, Failure> {
        match store.read::<Document>(name) {
            Ok(document) => {
                let info = document.info()?;
                let dom = document
                    .dom()
                    .map_err(|source| Failure::Document { name: name.to_string(), source })?;
                Ok(Listed {
                    name: names::display_name(store, name),
                    kind: kind_name(dom.kind()),
                    nodes: Some(dom.node_count() as u64),
                    source_bytes: Some(document.source().size_bytes),
                    stored_bytes: info.file_bytes,
                    created: output::utc(info.created),
                })
            }
            Err(Error::SchemaMismatch { .. } | Error::OtherKind { .. }) => {
                let info = store.info(name)?;
                Ok(Listed {
                    name: info.name,
                    kind: "other",
                    nodes: None,
                    source_bytes: None,
                    stored_bytes: info.file_bytes,
                    created: output::utc(info.created),
                })
            }
            Err(error) => Err(error.into()),
        }
    }
}

fn show(listed: &[Listed], output: &mut Output) -> Result<(), Failure> {
    let optional = |number: Option<u64>, how: fn(u64) -> String| number.map_or("-".into(), how);
    let rows: Vec<[String; 6]> = listed
        .iter()
        .map(|entry| {
            [
                entry.kind.to_string(),
                optional(entry.nodes, output::count),
                optional(entry.source_bytes, output::bytes),
                output::bytes(entry.stored_bytes),
                entry.created.clone(),
                entry.name.clone(),
            ]
        })
        .collect();
    output.table(["TYPE", "NODES", "SOURCE", "STORED", "CREATED", "NAME"], &rows, &[0, 4, 5])
}

pub fn kind_name(kind: DocumentKind) -> &'static str {
    match kind {
        DocumentKind::Html => "html",
        DocumentKind::Xml => "xml",
    }
}

/// Converts a time stamp of [`evermap_dom::Source`], in ns. Returns `None` if it is unknown.
pub fn stamp(ns: u64) -> Option<SystemTime> {
    (ns != 0).then(|| UNIX_EPOCH + Duration::from_nanos(ns))
}
