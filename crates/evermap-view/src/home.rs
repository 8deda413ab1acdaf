//! The start page: the pages and documents of a store, with pictures of the pages. It is made as a page and kept as one, so
//! that the window opens on it as quickly as on any other; it is made anew when what it lists has changed.

use std::fmt::Write;

use base64::prelude::{BASE64_STANDARD, Engine};
use evermap::{Error, Store};
use evermap_dom::Document;
use url::Url;

use crate::Result;
use crate::keep::{self, Found};
use crate::page::Block;
use crate::paint::{STRIP_ROWS, Strips};

/// The address of the start page.
pub const HOME: &str = "evermap:home";
/// Of a page's first screen, this many pixels become one, across and down.
const SHRUNK: usize = 4;
/// Rows of a page that a picture shows.
const PICTURE_ROWS: usize = 576;
/// Pages that are listed, the first of the alphabet.
const ENTRIES_MAX: usize = 200;

/// What a start page lists.
#[derive(Default)]
pub(crate) struct Listing {
    entries: Vec<Entry>,
    /// Differs if anything that is listed does.
    hash: String,
}

struct Entry {
    name: String,
    is_page: bool,
}

/// Whether an address is that of the start page.
pub(crate) fn is_home(url: &Url) -> bool {
    url.as_str() == HOME
}

/// A page that is made here, instead of being fetched.
pub(crate) struct Given {
    /// Differs if the page would be another: its manifest says it in place of an address.
    pub key: String,
    pub html: String,
}

/// The page whose font is that of the window's own text.
pub(crate) const INTERFACE: &str = "evermap:interface";

impl Given {
    pub(crate) fn interface() -> Given {
        let html = "<p style=\"font: 13px sans-serif\">Evermap</p>";
        Given { key: INTERFACE.to_string(), html: html.to_string() }
    }
}

impl Listing {
    /// How the start page's manifest names what it lists.
    pub(crate) fn key(&self) -> String {
        format!("{HOME} {}", self.hash)
    }

    /// What is in the store now. Costs a look at each page and document.
    pub(crate) fn now(store: &Store) -> Result<Listing> {
        let mut hasher = blake3::Hasher::new();
        let mut entries = Vec::new();
        let own = [HOME, INTERFACE].map(|url| Url::parse(url).map(|url| keep::hash_of(&url)));
        let is_own = |name: &str| own.iter().flatten().any(|hash| name.ends_with(hash));
        for name in store.list()? {
            let is_part =
                ["font-", "image-", "http-"].iter().any(|prefix| name.starts_with(prefix));
            if is_part || keep::is_companion(&name) || is_own(&name) {
                continue;
            }
            // It may have been removed since.
            let Ok(info) = store.info(&name) else { continue };
            hasher.update(name.as_bytes());
            hasher.update(format!("{:?} {}", info.uuid, info.sequence).as_bytes());
            let is_page = name.starts_with("page-");
            entries.push(Entry { name, is_page });
            if entries.len() == ENTRIES_MAX {
                break;
            }
        }
        Ok(Listing { entries, hash: hasher.finalize().to_hex()[..32].to_string() })
    }

    /// The start page's HTML. Costs a picture of each page.
    pub(crate) fn html(&self, store: Option<&Store>) -> String {
        let mut html = String::from(HEAD);
        let mut seen = std::collections::HashSet::new();
        for entry in self.entries.iter().filter(|entry| entry.is_page) {
            let Some(card) = store.and_then(|store| page_card(store, &entry.name)) else {
                continue;
            };
            // An address that is kept for several windows is one page.
            if seen.insert(card.url.clone()) {
                card.write(&mut html);
            }
        }
        let documents: Vec<&str> = self
            .entries
            .iter()
            .filter(|entry| !entry.is_page)
            .map(|entry| entry.name.as_str())
            .filter(|name| store.is_some_and(|store| is_document(store, name)))
            .collect();
        html.push_str("</div>");
        if seen.is_empty() {
            html.push_str("<p class=none>No pages are kept yet. Visit one, or build some with <code>evermap prefetch</code>.</p>");
        }
        if !documents.is_empty() {
            html.push_str("<h2>Documents</h2><ul>");
            for name in documents {
                let (address, name) = (address_of(name), escaped(name));
                let _ = write!(html, "<li><a href=\"{address}\">{name}</a></li>");
            }
            html.push_str("</ul>");
        }
        html
    }
}

const HEAD: &str = "<!doctype html><title>Evermap</title><style>
    body { margin: 32px 40px; background: #f5f4f1; color: #222; font: 14px/1.4 sans-serif }
    h1 { font-size: 26px; font-weight: normal; margin: 0 0 20px } h2 { font-size: 18px; font-weight: normal; margin: 28px 0 8px }
    .pages { display: flex; flex-wrap: wrap; gap: 20px }
    .pages a { display: block; width: 256px; background: #fff; border: 1px solid #d5d2ca; border-radius: 6px; overflow: hidden;
      color: inherit; text-decoration: none }
    .pages img, .pages i { display: block; width: 256px; height: 144px; border-bottom: 1px solid #e5e2da; background: #fafafa }
    .pages b { display: block; padding: 8px 12px 0; white-space: nowrap; overflow: hidden; font-weight: 600 }
    .pages small { display: block; padding: 0 12px 8px; white-space: nowrap; overflow: hidden; color: #777 }
    ul { margin: 0; padding-left: 20px } .none { color: #777 }
    </style><h1>Evermap</h1><div class=pages>";

fn is_document(store: &Store, name: &str) -> bool {
    !matches!(store.read::<Document>(name), Err(Error::SchemaMismatch { .. }))
}

struct Card {
    url: String,
    title: String,
    picture: Option<String>,
}

impl Card {
    fn write(&self, html: &mut String) {
        let url = escaped(&self.url);
        let title = if self.title.is_empty() { &self.url } else { &self.title };
        let _ = write!(html, "<a href=\"{url}\">");
        match &self.picture {
            Some(picture) => {
                let _ = write!(html, "<img src=\"{picture}\" alt=\"\">");
            }
            None => html.push_str("<i></i>"),
        }
        let _ = write!(html, "<b>{}</b><small>{url}</small></a>", escaped(title));
    }
}

fn page_card(store: &Store, name: &str) -> Option<Card> {
    let found = Found::named(store, name).ok()?;
    let page = found.page(true).ok()?;
    let block: Block<'_> = page.block();
    Some(Card {
        url: block.url().to_string(),
        title: block.title().to_string(),
        picture: page.strips().and_then(picture),
    })
}

/// The first screen, shrunk, as a `data:` address.
fn picture(strips: Strips<'_>) -> Option<String> {
    let width = strips.width() as usize;
    let strip_pixels = width * STRIP_ROWS as usize;
    let rows = (strips.count() as usize * STRIP_ROWS as usize).min(PICTURE_ROWS);
    let mut pixels = vec![0; strip_pixels * rows.div_ceil(STRIP_ROWS as usize)];
    for (number, strip) in pixels.chunks_exact_mut(strip_pixels).enumerate() {
        strips.unpack(number as u32, strip).ok()?;
    }
    let (columns, lines) = (width / SHRUNK, rows / SHRUNK);
    let mut rgb = Vec::with_capacity(columns * lines * 3);
    for line in 0..lines {
        for column in 0..columns {
            rgb.extend(mean(&pixels, width, column * SHRUNK, line * SHRUNK));
        }
    }
    let mut png = Vec::new();
    let mut encoder = png::Encoder::new(&mut png, columns as u32, lines as u32);
    encoder.set_color(png::ColorType::Rgb);
    encoder.set_compression(png::Compression::Fast);
    encoder.write_header().ok()?.write_image_data(&rgb).ok()?;
    Some(format!("data:image/png;base64,{}", BASE64_STANDARD.encode(&png)))
}

/// The mean colour of a square of pixels.
fn mean(pixels: &[u32], width: usize, left: usize, top: usize) -> [u8; 3] {
    let mut sums = [0_u32; 3];
    for row in top..top + SHRUNK {
        for pixel in &pixels[row * width + left..][..SHRUNK] {
            let [_, red, green, blue] = pixel.to_be_bytes();
            for (sum, part) in sums.iter_mut().zip([red, green, blue]) {
                *sum += u32::from(part);
            }
        }
    }
    sums.map(|sum| (sum / (SHRUNK * SHRUNK) as u32) as u8)
}

/// The address of a document, by its name in the store.
pub(crate) fn address_of(name: &str) -> String {
    let mut address = String::from("evermap:");
    for byte in name.bytes() {
        match byte {
            // Two slashes would begin a host.
            b'/' if !address.ends_with([':', '/']) => address.push('/'),
            b'-' | b'.' | b'_' => address.push(byte.into()),
            byte if byte.is_ascii_alphanumeric() => address.push(byte.into()),
            byte => address.push_str(&format!("%{byte:02X}")),
        }
    }
    address
}

/// The name in such an address, behind its scheme.
pub(crate) fn name_in(address: &str) -> String {
    let mut name = Vec::new();
    let mut rest = address.as_bytes();
    while let [first, others @ ..] = rest {
        let digits = others.get(..2).filter(|digits| digits.iter().all(u8::is_ascii_hexdigit));
        let digits = digits.and_then(|digits| std::str::from_utf8(digits).ok());
        let byte = digits.and_then(|digits| u8::from_str_radix(digits, 16).ok());
        let (byte, behind) = match (first, byte) {
            (b'%', Some(byte)) => (byte, &others[2..]),
            (byte, _) => (*byte, others),
        };
        name.push(byte);
        rest = behind;
    }
    String::from_utf8_lossy(&name).into_owned()
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use url::Url;

    use super::{address_of, name_in};

    #[test]
    fn a_document_has_an_address_whatever_its_name_is() {
        for name in
            ["letter", "a/index.html", "/tmp/a b.html", "//01ab/index.html", "\u{e4}?#%41", "a//b"]
        {
            let url = Url::parse(&address_of(name)).expect("an address");
            let (_, path) = url.as_str().split_once(':').expect("a scheme");
            assert_eq!(name_in(path), name, "{url}");
        }
        assert_eq!(name_in("100%"), "100%");
    }
}
