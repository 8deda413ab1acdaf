//! A loaded file in memory, and the calls that load it with Evermap.

use evermap_load::{Image, Latency, Loader, Method, Report};
use harness::Outcome;

use super::Asked;
use super::peers::Plain;
use crate::subjects::{AUTOMATIC, FINISH, METHOD};
use crate::work::{Order, Work};

pub(super) enum Held {
    // Boxed: an image is much larger than the peers' state.
    Image(Box<Image>),
    Plain(Plain),
}

impl Held {
    /// Loads the file as the subject of this name does.
    pub(super) fn load(asked: &Asked) -> Outcome<Held> {
        let loader = Loader::open(&asked.file);
        let loader = match asked.subject.as_str() {
            AUTOMATIC => loader,
            FINISH => loader.latency(Latency::Finish),
            name => match name.strip_prefix(METHOD) {
                Some(method) => {
                    let method = Method::from_name(method).ok_or("no such method")?;
                    loader.method(method)
                }
                None => return Ok(Held::Plain(Plain::load(asked)?)),
            },
        };
        let loader = wishes(loader, asked.work);
        // SAFETY: the benchmark made this file, and no process changes it during the
        // measurement.
        Ok(Held::Image(Box::new(unsafe { loader.may_map() }.load()?)))
    }

    pub(super) fn bytes(&self) -> &[u8] {
        match self {
            Held::Image(image) => image,
            Held::Plain(plain) => plain.bytes(),
        }
    }

    pub(super) fn bytes_mut(&mut self) -> Outcome<&mut [u8]> {
        match self {
            Held::Image(image) => Ok(image.bytes_mut()?),
            Held::Plain(plain) => Ok(plain.bytes_mut()),
        }
    }

    /// Waits until background work has ended.
    pub(super) fn wait(&self) -> Outcome {
        match self {
            Held::Image(image) => Ok(image.wait()?),
            Held::Plain(_) => Ok(()),
        }
    }

    pub(super) fn report(&self) -> Option<Report> {
        match self {
            Held::Image(image) => Some(image.report()),
            Held::Plain(_) => None,
        }
    }

    pub(super) fn why(&self) -> Option<String> {
        match self {
            Held::Image(image) => Some(image.why()),
            Held::Plain(_) => None,
        }
    }
}

/// Tells the loader exactly what the work will touch and write.
fn wishes(loader: Loader, work: Work) -> Loader {
    let written = if work.is_written { work.touched() } else { 0.0 };
    loader.touched(work.touched()).written(written).order(match work.order {
        Order::Sequential => evermap_load::Order::Sequential,
        Order::Random => evermap_load::Order::Random,
    })
}
