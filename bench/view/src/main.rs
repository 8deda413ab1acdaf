//! Measures the viewer and other browsers, from exec to pixels.
//!
//! Programs are always measured from outside, as new processes. The head of each section's file
//! says what it measures and how.

mod chart;
mod command;
mod environment;
mod media;
mod pages;
mod peers;
mod ratios;
mod screen;
mod sections;

use std::process::ExitCode;

use harness::Outcome;
use harness::area::{Area, unknown_child};
use harness::machine::{self, Fact, Remarks};
use harness::options::{Choices, Filter, Options};

use command::Evermap;
use pages::Page;

/// Bench that a section receives.
type Bench = harness::bench::Bench<Own>;

struct Own {
    pages: Vec<Page>,
    /// `None` if only peers are measured.
    evermap: Option<Evermap>,
}

const AREA: Area<Own> = Area {
    name: "view",
    choices: Choices {
        filters: &[
            Filter { name: "pages", known: &[], what: "pages" },
            Filter { name: "media", known: &[], what: "media" },
        ],
        pictures: Some("keep the last frame of each peer and page"),
        images: "docs/images",
        command: true,
        ..Choices::NONE
    },
    sections: &[
        ("warm-cold", sections::warm_cold::report),
        ("layers", sections::layers::report),
        ("peers", sections::peers::report),
        ("size", sections::size::report),
        ("media", sections::media::report),
        ("pixels", sections::pixels::report),
    ],
    start,
    child: |_, arguments| match *arguments {
        ["disk", mount_point] => media::disk_model::serve(mount_point),
        _ => unknown_child(arguments),
    },
};

fn main() -> ExitCode {
    AREA.main()
}

fn start(options: Options) -> Outcome<Bench> {
    let pages = pages::load(&options)?;
    let evermap = options.evermap.as_deref().map(Evermap::find).transpose()?;
    let mut bench = Bench::new(options, Own { pages, evermap })?;
    let network = match environment::prepare()? {
        true => "remote resources are unreachable for all: the programs have no network",
        false => "**the programs have the network, and may wait for remote resources**",
    };
    let bytes: u64 = bench.own.pages.iter().map(|page| page.bytes).sum();
    let value = format!("{} of {bytes} bytes", bench.own.pages.len());
    let facts = [Fact { key: "pages", name: "pages", value }];
    let cached = "programs, libraries and fonts in the page cache, unless noted";
    let notes = [cached, network].map(str::to_string).to_vec();
    machine::describe(&mut bench, &Remarks { facts: &facts, notes, missing: &[] })?;
    Ok(bench)
}
