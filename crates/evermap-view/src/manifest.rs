//! Records which engine and resources a stored page was made from. A later visit checks it to
//! decide whether the page is still valid.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use url::Url;

use crate::fetch::{Fetcher, MissingStamp, Stamp, StampCheck};
use crate::fonts::FontSet;
use crate::layout::Layout;
use crate::notes::Note;
use crate::page::FORMAT_VERSION;
use crate::target::Target;

/// Returns the version of everything that determines a page's pixels: all layout and painting code
/// of this crate and its dependencies, the block's format, and processor features that change the
/// rasterizer's rounding.
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

/// Key of a stored page.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Manifest {
    /// [`engine_version`] of the program that made the page.
    pub engine: String,
    /// Address of the page.
    pub url: String,
    /// Address after redirects; equal to `url` without any.
    pub final_url: String,
    /// Layout for which the page was made.
    pub layout: Layout,
    /// Fonts that were installed.
    pub fonts: FontSet,
    /// The page itself, then every resource that it requested.
    pub resources: Vec<Resource>,
    /// Time of the layout, nanoseconds since 1970.
    pub made_ns: u64,
    /// Duration of the cold visit until the page was painted.
    pub cold_ms: f64,
    /// Bytes of the page itself.
    pub source_bytes: u64,
}

/// A resource from which a page was made.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Resource {
    /// Address, for people; shortened if long.
    pub url: String,
    /// Identifies the resource's version.
    pub stamp: Stamp,
}

/// Result of checking a stored page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The page matches its resources, as far as they could be checked.
    Good(Unresolved),
    /// The page is out of date, with the reason.
    Stale(String),
}

/// Resources of a valid page that remain unchecked or missing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Unresolved {
    /// Resources that could not be checked.
    pub(crate) unknown: Vec<Note>,
    /// Resources that servers did not deliver.
    pub(crate) missing: Vec<Note>,
}

/// Treatment of resources that servers did not deliver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MissingPolicy {
    /// Assume that they are still missing.
    AssumeMissing,
    /// Request them again.
    RequestAgain,
}

/// Time limit for revalidating all resources other than the page itself.
const REVALIDATION_TIMEOUT: Duration = Duration::from_secs(5);

impl Manifest {
    /// Checks whether the page is still valid for `layout`. Files are checked by `stat`. Servers
    /// are asked only about responses that are no longer fresh, as far as the fetcher's options
    /// allow. A server that fails to answer once is not asked again. The page itself may take as
    /// long as any fetch. All other resources together may take five seconds, or until `deadline`.
    pub fn check(
        &self,
        layout: Layout,
        fetcher: &Fetcher,
        missing: MissingPolicy,
        deadline: Option<Instant>,
    ) -> Verdict {
        if self.engine != engine_version() {
            let version = &self.engine;
            return Verdict::Stale(format!("laid out by another engine ({version})"));
        }
        if self.layout != layout {
            return Verdict::Stale("laid out for another window".to_string());
        }
        if let Some(changed) = self.fonts.changed() {
            return Verdict::Stale(format!("the installed fonts have changed: {changed}"));
        }
        let mut unresolved = Unresolved::default();
        let mut silent = HashSet::new();
        let mut until = deadline;
        for (number, resource) in self.resources.iter().enumerate() {
            let absent = resource.absent();
            if let Some(stamp) = absent
                && missing == MissingPolicy::AssumeMissing
            {
                unresolved.missing.push(Note::of(&resource.url, &stamp.why));
                continue;
            }
            if number == 1 {
                until = deadline.or_else(|| Some(Instant::now() + REVALIDATION_TIMEOUT));
            }
            let host = resource.host();
            if host.as_ref().is_some_and(|host| silent.contains(host)) {
                unresolved.unknown.push(Note::of(&resource.url, "its server does not answer"));
                continue;
            }
            match resource.stamp.check(fetcher, until) {
                StampCheck::Same => {
                    if let Some(stamp) = absent {
                        unresolved.missing.push(Note::of(&resource.url, &stamp.why));
                        // The request failed as before, and others to this server would too.
                        silent.extend(host.filter(|_| stamp.kind != "status"));
                    }
                }
                StampCheck::Changed(why) => {
                    return Verdict::Stale(format!("{} has changed: {why}", resource.url));
                }
                StampCheck::Unknown(why) => {
                    silent.extend(host.filter(|_| !fetcher.options().offline));
                    unresolved.unknown.push(Note::of(&resource.url, why));
                }
            }
        }
        Verdict::Good(unresolved)
    }

    /// Returns the target that the page shows.
    pub(crate) fn target(&self) -> Option<Target> {
        let url = Url::parse(&self.url).ok()?;
        let document = self.resources.first().and_then(|page| match &page.stamp {
            Stamp::Object(object) => Some(object.name.clone()),
            _ => None,
        });
        Some(Target { document, ..Target::of_url(url) })
    }

    /// Returns true if the page was laid out offline and lacks a resource for that reason.
    pub(crate) fn was_offline(&self) -> bool {
        self.resources.iter().filter_map(Resource::absent).any(|stamp| stamp.kind == "offline")
    }

    /// Returns the resources that servers did not deliver.
    pub(crate) fn absent(&self) -> impl Iterator<Item = &MissingStamp> {
        self.resources.iter().filter_map(Resource::absent)
    }
}

impl Resource {
    /// Returns the reason if a server did not deliver the resource.
    pub(crate) fn absent(&self) -> Option<&MissingStamp> {
        match &self.stamp {
            Stamp::Missing(stamp) if stamp.url.starts_with("http") => Some(stamp),
            _ => None,
        }
    }

    /// Returns the host and port of the resource's server.
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
