//! Names of a page's objects.

use url::Url;

use crate::layout::Layout;
use crate::page::PartKind;

/// Maximum number of characters of an address in an object's name.
const SLUG_MAX: usize = 40;

/// Returns the name of the object that stores the page of an address for a layout.
pub fn page_name(url: &Url, layout: Layout) -> String {
    let Layout { width, height, scale } = layout;
    format!("page-{}-{width}x{height}x{scale}-{}", slug(url), hash_of(url))
}

/// Returns the name of the note that a page's disk is slow.
pub(super) fn slow_name(url: &Url, layout: Layout) -> String {
    format!("{}.slow", page_name(url, layout))
}

/// Returns the name of the note that a page's missing resources were requested again.
pub(super) fn retry_name(url: &Url, layout: Layout) -> String {
    format!("{}.retry", page_name(url, layout))
}

/// Returns the name of the object that stores the document of an address.
pub fn document_name(url: &Url) -> String {
    format!("page-{}-{}.document", slug(url), hash_of(url))
}

/// Returns the name of the object that stores a font or an image.
pub fn part_name(kind: PartKind, hash: &[u8; 32]) -> String {
    let kind = match kind {
        PartKind::Font => "font",
        PartKind::Image => "image",
    };
    format!("{kind}-{}", &blake3::Hash::from_bytes(*hash).to_hex()[..32])
}

pub(crate) fn hash_of(url: &Url) -> String {
    blake3::hash(url.as_str().as_bytes()).to_hex()[..16].to_string()
}

/// Returns the last non-empty part of the address, with only letters, digits, dots, underscores and
/// hyphens.
fn slug(url: &Url) -> String {
    let last = url.path_segments().and_then(|parts| parts.rev().find(|part| !part.is_empty()));
    let text = last.or(url.host_str()).unwrap_or(url.scheme());
    let is_plain = |char: char| char.is_ascii_alphanumeric() || matches!(char, '.' | '_' | '-');
    let slug = text.chars().take(SLUG_MAX).map(|char| if is_plain(char) { char } else { '-' });
    slug.collect()
}

/// Returns true if the object belongs to a page but is not one, judging by the end of its name.
pub(crate) fn is_companion(name: &str) -> bool {
    COMPANIONS.iter().any(|ending| name.ends_with(ending))
}

/// Removes the ending that distinguishes a companion object from its page.
pub(crate) fn without_ending(name: &str) -> &str {
    COMPANIONS.iter().fold(name, |name, ending| name.trim_end_matches(ending))
}

const COMPANIONS: [&str; 3] = [".document", ".slow", ".retry"];
