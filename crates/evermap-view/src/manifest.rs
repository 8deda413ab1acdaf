//! What a kept page was made from, and by what: the key by which a later visit knows whether it is still good.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use url::Url;

use crate::fetch::{Fetcher, MissingStamp, Stamp, Still};
use crate::fonts::FontSet;
use crate::layout::Layout;
use crate::notes::Note;
use crate::page::FORMAT_VERSION;
use crate::target::Target;

/// What made a page: all code that takes part in laying out and painting, of this crate and of others, the block's
/// format, and what the processor can do (the rasterizer rounds differently with it).
pub fn engine_version() -> String {
    let mut version = format!(
        "{} format {FORMAT_VERSION} code {}",
        env!("CARGO_PKG_VERSION"),
        env!("EVERMAP_VIEW_CODE")
    );
    #[cfg(target_arch = "x86_64")]
    for (name, has) in [
        ("avx2", is_x86_feature_detected!("avx2")),
        ("fma", is_x86_feature_detected!("fma")),
        ("avx512f", is_x86_feature_detected!("avx512f")),
    ] {
        if has {
            version.push(' ');
            version.push_str(name);
        }
    }
    version
}

/// The key of a kept page.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Manifest {
    /// [`engine_version`].
    pub engine: String,
    /// The address.
    pub url: String,
    /// The address that it was redirected to, or the same.
    pub final_url: String,
    /// What it was laid out for.
    pub layout: Layout,
    /// The fonts that could be chosen from.
    pub fonts: FontSet,
    /// The page itself, first, and everything that it asked for.
    pub resources: Vec<Resource>,
    /// When it was made, nanoseconds since 1970.
    pub made_ns: u64,
    /// What the visit took that made it, until it was painted.
    pub cold_ms: f64,
    /// Bytes of the page itself.
    pub source_bytes: u64,
}

/// Something that a page was made from.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Resource {
    /// Its address, for people; long ones are cut.
    pub url: String,
    /// By which it is recognised.
    pub stamp: Stamp,
}

/// Whether a kept page is good.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It is what would be made now, as far as is known.
    Good(Open),
    /// It is not, and why.
    Stale(String),
}

/// What a good page leaves open.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Open {
    /// Resources that could not be asked about.
    pub(crate) unknown: Vec<Note>,
    /// Resources that servers did not give.
    pub(crate) missing: Vec<Note>,
}

/// What is done about resources that servers did not give.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Missing {
    /// They are taken to be missing still.
    Trust,
    /// They are asked for.
    Ask,
}

/// How long servers may keep a page waiting that only have to say whether a resource is still the same.
const ASKING: Duration = Duration::from_secs(5);

impl Manifest {
    /// Is the page still good for `layout`? Files are looked at; servers are asked only about what is no longer
    /// fresh, as far as the fetcher's options allow, and those that do not answer once are not asked again.
    /// The page itself may take as long as any fetch, its resources five seconds together or until the deadline.
    pub fn check(
        &self,
        layout: Layout,
        fetcher: &Fetcher,
        missing: Missing,
        deadline: Option<Instant>,
    ) -> Verdict {
        if self.engine != engine_version() {
            let theirs = &self.engine;
            return Verdict::Stale(format!("it was laid out by another engine ({theirs})"));
        }
        if self.layout != layout {
            return Verdict::Stale("it was laid out for another window".to_string());
        }
        if let Some(changed) = self.fonts.changed() {
            return Verdict::Stale(format!("the set of fonts has changed: {changed}"));
        }
        let mut open = Open::default();
        let mut silent = HashSet::new();
        let mut until = deadline;
        for (number, resource) in self.resources.iter().enumerate() {
            let absent = resource.absent();
            if let Some(stamp) = absent
                && missing == Missing::Trust
            {
                open.missing.push(Note::of(&resource.url, &stamp.why));
                continue;
            }
            if number == 1 {
                until = deadline.or_else(|| Some(Instant::now() + ASKING));
            }
            let host = resource.host();
            if host.as_ref().is_some_and(|host| silent.contains(host)) {
                open.unknown.push(Note::of(&resource.url, "its server does not answer"));
                continue;
            }
            match resource.stamp.check(fetcher, until) {
                Still::Same => {
                    if let Some(stamp) = absent {
                        open.missing.push(Note::of(&resource.url, &stamp.why));
                        // It failed as before, and so would its neighbours.
                        silent.extend(host.filter(|_| stamp.kind != "status"));
                    }
                }
                Still::Changed(why) => {
                    return Verdict::Stale(format!("{} has changed: {why}", resource.url));
                }
                Still::Unknown(why) => {
                    silent.extend(host.filter(|_| !fetcher.options().offline));
                    open.unknown.push(Note::of(&resource.url, why));
                }
            }
        }
        Verdict::Good(open)
    }

    /// What the page is of.
    pub(crate) fn target(&self) -> Option<Target> {
        let url = Url::parse(&self.url).ok()?;
        let document = self.resources.first().and_then(|page| match &page.stamp {
            Stamp::Object(object) => Some(object.name.clone()),
            _ => None,
        });
        Some(Target { document, ..Target::of_url(url) })
    }

    /// Was the page laid out without the network, and lacks something for that reason?
    pub(crate) fn was_offline(&self) -> bool {
        self.resources.iter().filter_map(Resource::absent).any(|stamp| stamp.kind == "offline")
    }

    /// The resources that servers did not give.
    pub(crate) fn absent(&self) -> impl Iterator<Item = &MissingStamp> {
        self.resources.iter().filter_map(Resource::absent)
    }
}

impl Resource {
    /// How it is missing, if a server did not give it.
    pub(crate) fn absent(&self) -> Option<&MissingStamp> {
        match &self.stamp {
            Stamp::Missing(stamp) if stamp.url.starts_with("http") => Some(stamp),
            _ => None,
        }
    }

    /// The server that has it, with its port.
    fn host(&self) -> Option<String> {
        let url = match &self.stamp {
            Stamp::Http(stamp) => &stamp.url,
            Stamp::Missing(stamp) => &stamp.url,
            _ => return None,
        };
        let url = Url::parse(url).ok().filter(|url| url.scheme().starts_with("http"))?;
        Some(format!("{}:{:?}", url.host_str()?, url.port_or_known_default()))
    }
}
