//! What a kept page was made from, and by what: the key by which a later visit knows whether it is still good.

use serde::{Deserialize, Serialize};

use crate::fetch::{Fetcher, Stamp, Still};
use crate::fonts::FontSet;
use crate::layout::Layout;
use crate::page::FORMAT_VERSION;

/// What made a page: all crates that take part in laying out and painting, as their versions are locked, the block's
/// format, and what the processor can do (the rasterizer rounds differently with it).
pub fn engine_version() -> String {
    let mut version = format!(
        "{} format {FORMAT_VERSION} crates {}",
        env!("CARGO_PKG_VERSION"),
        env!("EVERMAP_VIEW_LOCK")
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
    /// It is what would be made now. With what could not be asked, if there is something.
    Good(Vec<String>),
    /// It is not, and why.
    Stale(String),
}

/// What was not there is not asked for again within this time: a page with a hundred pictures from a host that can't be
/// reached would wait for each of them at every visit.
const MISSING_IS_TRUSTED_NS: u64 = 600 * 1_000_000_000;

impl Manifest {
    /// Whether the page is still good for `layout`: see the fields. Files are looked at; servers are asked only about what is no
    /// longer fresh, for as long as the fetcher's options allow.
    pub fn check(&self, layout: Layout, fetcher: &Fetcher, now_ns: u64) -> Verdict {
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
        let mut unknown = Vec::new();
        for resource in &self.resources {
            match resource.check(fetcher, now_ns) {
                Still::Same => (),
                Still::Changed(why) => {
                    return Verdict::Stale(format!("{} has changed: {why}", resource.url));
                }
                Still::Unknown(why) => unknown.push(format!("{}: {why}", resource.url)),
            }
        }
        Verdict::Good(unknown)
    }
}

impl Resource {
    fn check(&self, fetcher: &Fetcher, now_ns: u64) -> Still {
        if let Stamp::Missing(missing) = &self.stamp {
            let age_ns = now_ns.saturating_sub(missing.fetched_ns);
            let remote = !missing.url.starts_with("file:");
            if remote && age_ns < MISSING_IS_TRUSTED_NS && !fetcher.options().reload {
                return Still::Same;
            }
        }
        self.stamp.check(fetcher, None)
    }
}
