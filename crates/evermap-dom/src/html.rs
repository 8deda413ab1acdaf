//! Parsing HTML.
//!
//! html5ever drives the sink in `sink`. The `builder` builds the tables directly, without a tree of
//! pointers. For any input the result is the document that the HTML standard defines. The only
//! errors are sizes beyond the format's limits, and pages whose repair would take more than linear
//! time: see `budget`.

mod atoms;
mod budget;
mod builder;
mod driver;
mod sink;
mod tag_scan;

use html5ever::{QualName, ns};

use self::driver::Driver;
use crate::encoding::HtmlDecoder;
use crate::error::ParseError;
use crate::tables::Tables;

/// Options of the HTML parser.
///
/// ```
/// use evermap_dom::html::{self, HtmlOptions};
///
/// let options = HtmlOptions {
///     index: false,
///     ..HtmlOptions::default()
/// };
/// let small = html::parse("<p>text", &options)?;
/// assert!(small.block_len() < html::parse("<p>text", &HtmlOptions::default())?.block_len());
/// # Ok::<(), evermap_dom::ParseError>(())
/// ```
#[derive(Clone, Debug)]
pub struct HtmlOptions {
    /// Build the id, class and name indexes. They take 2-4 % more space, and queries by id, class
    /// or name then touch only matching elements. On by default.
    pub index: bool,
    /// Parse the document as if scripts run, so `noscript` contains plain text. On by default, as
    /// in browsers.
    pub scripting: bool,
    /// The encoding label from the transport, such as the `charset` of an HTTP header. A byte order
    /// mark overrides it, and it overrides a `meta` element.
    pub encoding: Option<String>,
}

impl Default for HtmlOptions {
    fn default() -> HtmlOptions {
        HtmlOptions { index: true, scripting: true, encoding: None }
    }
}

/// Parses a text.
///
/// ```
/// use evermap_dom::html;
///
/// let block = html::parse("<ul><li>one<li>two</ul>", &Default::default())?.to_block();
/// let items: Vec<String> = block
///     .dom()
///     .select(&"li".parse().unwrap())
///     .map(|item| item.text())
///     .collect();
/// assert_eq!(items, ["one", "two"]);
/// # Ok::<(), evermap_dom::ParseError>(())
/// ```
pub fn parse(text: &str, options: &HtmlOptions) -> Result<Tables, ParseError> {
    let mut driver = Driver::new(text.len(), options);
    driver.process(text);
    driver.finish(text.len() as u64)
}

/// Parses bytes. Determines their encoding by byte order mark, then [`HtmlOptions::encoding`], then
/// a `meta` element in the first 1024 bytes, then UTF-8. Invalid bytes become U+FFFD.
///
/// ```
/// use evermap_dom::html;
///
/// let page = b"<meta charset=latin1><title>caf\xE9</title>";
/// let block = html::parse_bytes(page, &Default::default())?.to_block();
/// assert_eq!(block.dom().title().as_deref(), Some("café"));
/// # Ok::<(), evermap_dom::ParseError>(())
/// ```
pub fn parse_bytes(bytes: &[u8], options: &HtmlOptions) -> Result<Tables, ParseError> {
    let mut parser = HtmlParser::with_capacity(options, bytes.len());
    parser.feed(bytes);
    parser.finish()
}

/// Parses a fragment of a page as inside an element, like `innerHTML`.
///
/// `context` is that element's name, with the prefix `svg ` or `math ` for foreign elements. The
/// returned document has an `html` element whose children are the fragment's nodes.
///
/// ```
/// use evermap_dom::html;
///
/// let block = html::parse_fragment("<td>1<td>2", "tr", &Default::default())?.to_block();
/// let root = block.dom().root_element().unwrap();
/// assert_eq!(root.inner_html(), "<td>1</td><td>2</td>");
/// # Ok::<(), evermap_dom::ParseError>(())
/// ```
pub fn parse_fragment(
    text: &str,
    context: &str,
    options: &HtmlOptions,
) -> Result<Tables, ParseError> {
    let (namespace, local) = match context.split_once(' ') {
        Some(("svg", local)) => (ns!(svg), local),
        Some(("math", local)) => (ns!(mathml), local),
        _ => (ns!(html), context),
    };
    let context = QualName::new(None, namespace, local.into());
    let mut driver = Driver::for_fragment(text.len(), context, options);
    driver.process(text);
    driver.finish(text.len() as u64)
}

/// Parses a page that arrives in pieces.
///
/// ```
/// use evermap_dom::html::HtmlParser;
///
/// let mut parser = HtmlParser::new(&Default::default());
/// for piece in [&b"<p>caf\xC3"[..], b"\xA9</", b"p>"] {
///     parser.feed(piece);
///     println!("{} bytes so far", parser.bytes_fed());
/// }
/// let block = parser.finish()?.to_block();
/// assert_eq!(block.dom().select_first(&"p".parse().unwrap()).unwrap().text(), "café");
/// # Ok::<(), evermap_dom::ParseError>(())
/// ```
pub struct HtmlParser {
    driver: Driver,
    decoder: HtmlDecoder,
    bytes_fed: u64,
}

impl HtmlParser {
    /// Creates a parser.
    pub fn new(options: &HtmlOptions) -> HtmlParser {
        HtmlParser::with_capacity(options, 0)
    }

    fn with_capacity(options: &HtmlOptions, bytes_expected: usize) -> HtmlParser {
        HtmlParser {
            driver: Driver::new(bytes_expected, options),
            decoder: HtmlDecoder::new(options.encoding.as_deref()),
            bytes_fed: 0,
        }
    }

    /// Parses the next bytes. They may end in the middle of a character.
    pub fn feed(&mut self, bytes: &[u8]) {
        self.bytes_fed += bytes.len() as u64;
        let driver = &mut self.driver;
        self.decoder.decode(bytes, false, &mut |text| driver.process(text));
    }

    /// Returns the number of bytes fed so far.
    pub fn bytes_fed(&self) -> u64 {
        self.bytes_fed
    }

    /// Ends the document.
    pub fn finish(mut self) -> Result<Tables, ParseError> {
        let driver = &mut self.driver;
        self.decoder.decode(&[], true, &mut |text| driver.process(text));
        self.driver.finish(self.bytes_fed)
    }
}

impl std::fmt::Debug for HtmlParser {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HtmlParser").field("bytes_fed", &self.bytes_fed).finish_non_exhaustive()
    }
}
