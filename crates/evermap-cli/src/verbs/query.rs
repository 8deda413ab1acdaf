//! `evermap query`: prints the elements of a stored document that match a CSS selector.
//!
//! The hot path of the program. It opens the store and the object, checks the block's header, and
//! writes each match as it is found.

use std::io::{self, Write};
use std::path::Path;
use std::time::Instant;

use clap_complete::ArgValueCompleter;
use evermap::{Error, Snapshot, Store};
use evermap_dom::{Document, Dom, NodeRef, Selector};
use serde::Serialize;

use crate::completion::objects;
use crate::damage;
use crate::failure::Failure;
use crate::names;
use crate::output::Output;
use crate::stale::{self, Stale};

/// Print the elements of a document that match a CSS selector
///
/// Prints each match in document order as outer HTML (XML for an XML document), followed by a line
/// feed. Exits with 1 if nothing matched.
///
/// If the document's source file has changed, the query parses it again first; see --stale and
/// `evermap freeze`.
///
/// A name without a prefix matches elements of any namespace. Declare prefixes for selectors such
/// as `tv|programme > tv|title` with --namespace.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  evermap query page.html 'article h2' --text
  evermap query page.html 'a[href]' --attr href | sort -u
  evermap query guide.xml 'tv|title' --namespace tv=urn:example:tv --first")]
pub struct Query {
    /// Document: its name, its file's path, or the end of the name; `evermap ls` lists the names
    #[arg(add = ArgValueCompleter::new(objects))]
    name: String,
    /// CSS selector, such as 'article h2, a[href^=http]'
    selector: String,
    #[command(flatten)]
    shown: Shown,
    /// Stop after the first match
    #[arg(long, conflicts_with = "limit")]
    first: bool,
    /// Stop after N matches
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    limit: Option<u64>,
    /// Declare a namespace prefix for the selector; can be repeated
    #[arg(long, value_name = "PREFIX=URI", value_parser = prefix)]
    namespace: Vec<(String, String)>,
    /// Print one JSON object per line for each match, with the node's number and the element's name
    #[arg(long)]
    json: bool,
    /// Policy if the document's source has changed or is missing
    #[arg(long, value_enum, default_value_t, value_name = "HOW")]
    stale: Stale,
    /// Compare the whole document with its checksums first; documents of up to 1 MiB always are
    #[arg(long)]
    verify: bool,
    /// Print the times of opening and of the query to stderr, in microseconds, as one JSON object
    #[arg(long)]
    timings: bool,
}

/// Parts of a match to print.
#[derive(Debug, clap::Args)]
#[group(multiple = false)]
struct Shown {
    /// Print the text inside each match
    #[arg(long)]
    text: bool,
    /// Print the outer HTML of each match; the default
    #[arg(long)]
    html: bool,
    /// Print the value of an attribute of each match; skip matches without it
    #[arg(long, value_name = "NAME")]
    attr: Option<String>,
    /// Print only the number of matches
    #[arg(long, conflicts_with_all = ["first", "limit"])]
    count: bool,
}

#[derive(Serialize)]
struct Match<'a> {
    node: u32,
    name: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    html: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    attr: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    value: Option<&'a str>,
}

#[derive(Serialize)]
struct Count {
    count: u64,
}

/// Output of `--timings`. `demo` reads it.
#[derive(Serialize, serde::Deserialize)]
pub struct Timings {
    pub open_us: f64,
    pub query_us: f64,
    pub matches: u64,
}

impl Query {
    pub fn run(&self, directory: &Path) -> Result<(), Failure> {
        let selector = self.selector()?;
        let start = Instant::now();
        let store = Store::open(directory)?;
        let document = self.open(&store, directory)?;
        match self.verify {
            true => damage::check_all(&document)?,
            false => damage::check(&document)?,
        }
        let dom = document
            .dom()
            .map_err(|source| Failure::Document { name: self.name.clone(), source })?;
        let open_us = microseconds(start);
        let start = Instant::now();
        let mut output = Output::new();
        let matches = match self.shown.count {
            true => self.count(&dom, &selector, &mut output)?,
            false => self.show(&dom, &selector, &mut output)?,
        };
        output.finish()?;
        if self.timings {
            print_timings(&Timings { open_us, query_us: microseconds(start), matches });
        }
        match matches {
            0 => Err(Failure::NoMatch),
            _ => Ok(()),
        }
    }

    /// Opens the document and applies `--stale`.
    fn open(&self, store: &Store, directory: &Path) -> Result<Snapshot<Document>, Failure> {
        // Most calls give the exact name of an object. That needs no second search of the catalog.
        let exact = store.read::<Document>(&self.name);
        let is_exact = !matches!(exact, Err(Error::NotFound { .. } | Error::InvalidName { .. }));
        let name = names::resolve_known(store, directory, &self.name, is_exact)?;
        let opened = match name == self.name {
            true => exact,
            false => {
                drop(exact);
                store.read::<Document>(&name)
            }
        };
        let document = opened.map_err(|error| names::document_error(&self.name, error))?;
        stale::apply_policy(store, directory, &name, document, self.stale)
    }

    fn selector(&self) -> Result<Selector, Failure> {
        let prefixes: Vec<(&str, &str)> =
            self.namespace.iter().map(|(prefix, uri)| (prefix.as_str(), uri.as_str())).collect();
        Ok(Selector::parse_with_namespaces(&self.selector, &prefixes)?)
    }

    fn count(&self, dom: &Dom, selector: &Selector, output: &mut Output) -> Result<u64, Failure> {
        let count = dom.count(selector) as u64;
        match self.json {
            true => output.json(&Count { count })?,
            false => output.line(&count.to_string())?,
        }
        Ok(count)
    }

    /// Writes the matches and returns their number.
    fn show(&self, dom: &Dom, selector: &Selector, output: &mut Output) -> Result<u64, Failure> {
        let limit = if self.first { Some(1) } else { self.limit };
        let attribute = self.shown.attr.as_deref();
        let shown = dom
            .select(selector)
            .filter(|element| attribute.is_none_or(|name| element.attr(name).is_some()))
            .take(limit.map_or(usize::MAX, |limit| limit as usize));
        let mut matches = 0;
        for element in shown {
            match self.json {
                true => output.json(&self.as_json(&element))?,
                false => self.write(&element, output.raw())?,
            }
            matches += 1;
        }
        Ok(matches)
    }

    fn write(&self, element: &NodeRef, out: &mut dyn Write) -> io::Result<()> {
        if let Some(name) = &self.shown.attr {
            out.write_all(element.attr(name).unwrap_or_default().as_bytes())?;
        } else if self.shown.text {
            out.write_all(element.text().as_bytes())?;
        } else {
            element.write_to(out)?;
        }
        out.write_all(b"\n")
    }

    fn as_json<'a>(&'a self, element: &NodeRef<'a>) -> Match<'a> {
        let attribute = self.shown.attr.as_deref();
        let html = attribute.is_none() && !self.shown.text;
        Match {
            node: element.id(),
            name: element.name(),
            html: html.then(|| element.outer_html()),
            text: self.shown.text.then(|| element.text()),
            attr: attribute,
            value: attribute.and_then(|name| element.attr(name)),
        }
    }
}

fn prefix(argument: &str) -> Result<(String, String), String> {
    match argument.split_once('=') {
        Some((prefix, uri)) if !prefix.is_empty() => Ok((prefix.to_string(), uri.to_string())),
        _ => Err("write it as PREFIX=URI, such as svg=http://www.w3.org/2000/svg".to_string()),
    }
}

fn microseconds(since: Instant) -> f64 {
    (since.elapsed().as_nanos() as f64) / 1e3
}

fn print_timings(timings: &Timings) {
    if let Ok(line) = serde_json::to_string(timings) {
        let _ = writeln!(io::stderr(), "{line}");
    }
}
