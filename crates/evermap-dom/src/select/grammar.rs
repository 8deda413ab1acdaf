//! Parsing selectors, and the types that the `selectors` crate keeps in them.

use std::cell::Cell;
use std::fmt;
use std::str::FromStr;

use cssparser::{ParseError, ParseErrorKind, Parser as CssParser, ToCss};
use precomputed_hash::PrecomputedHash;
use selectors::SelectorList;
use selectors::parser::{
    NonTSPseudoClass, ParseRelative, Parser, PseudoElement, SelectorImpl, SelectorParseErrorKind,
};

use crate::hash;
use crate::known;
use crate::names::FIXED_NAMESPACES;

/// A parsed selector (or a list of them, separated by commas), to be used with any document.
///
/// ```
/// use evermap_dom::Selector;
///
/// let selector: Selector = "article > p:nth-child(2n of .note), :is(h1, h2):has(+ ul)".parse()?;
/// let error = "p >".parse::<Selector>().unwrap_err();
/// assert_eq!(error.offset_bytes, 3);
/// # Ok::<(), evermap_dom::SelectorError>(())
/// ```
#[derive(Clone)]
pub struct Selector {
    pub(super) list: SelectorList<Css>,
    source: Box<str>,
}

impl Selector {
    /// Parses a selector. The prefixes `html`, `svg`, `math`, `xlink` and `xml` stand for their
    /// namespaces; `*|name` is a name in any namespace, `|name` one in none, and so is a name alone
    /// in any.
    pub fn parse(source: &str) -> Result<Selector, SelectorError> {
        Selector::parse_with_namespaces(source, &[])
    }

    /// Parses a selector with further prefixes, as pairs of prefix and namespace URI.
    ///
    /// ```
    /// use evermap_dom::{Selector, xml};
    ///
    /// let block = xml::parse(r#"<a:x xmlns:a="urn:a"/>"#, &Default::default())?.to_block();
    /// let selector = Selector::parse_with_namespaces("n|x", &[("n", "urn:a")])?;
    /// assert_eq!(block.dom().count(&selector), 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn parse_with_namespaces(
        source: &str,
        namespaces: &[(&str, &str)],
    ) -> Result<Selector, SelectorError> {
        let grammar =
            Grammar { namespaces, inside_has: Cell::new(false), refused: Cell::new(None) };
        let mut input = CssParser::new(source);
        let parsed = SelectorList::parse(&grammar, &mut input, ParseRelative::No);
        let mut end = input.position().byte_index();
        let error = match parsed {
            Ok(list) if input.is_exhausted() => {
                return Ok(Selector { list, source: source.into() });
            }
            Ok(_) => SelectorErrorKind::Syntax,
            Err(error) => kind_of(&error),
        };
        // The parser skips to the next comma before it reports an error. A refused name is known
        // exactly.
        if let Some(refused) = grammar.refused.take()
            && let Some(at) = source.to_ascii_lowercase().find(&refused.to_ascii_lowercase())
        {
            end = at + refused.len();
        }
        Err(SelectorError::at(error, source, end))
    }
}

impl FromStr for Selector {
    type Err = SelectorError;

    fn from_str(source: &str) -> Result<Selector, SelectorError> {
        Selector::parse(source)
    }
}

impl fmt::Display for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.source)
    }
}

impl fmt::Debug for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Selector({})", self.source)
    }
}

/// The error of parsing a selector.
///
/// ```
/// use evermap_dom::{Selector, SelectorErrorKind};
///
/// let error = "div > p:hover".parse::<Selector>().unwrap_err();
/// assert_eq!(error.kind, SelectorErrorKind::UnsupportedPseudo);
/// assert!(error.to_string().contains("p:hover"));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SelectorError {
    /// The kind of error.
    pub kind: SelectorErrorKind,
    /// Offset in bytes from the start of the selector: just after the text that was not understood.
    pub offset_bytes: usize,
    /// The text before the offset, back to the last white space.
    pub found: String,
    /// The whole selector.
    pub selector: String,
}

impl SelectorError {
    fn at(kind: SelectorErrorKind, source: &str, offset: usize) -> SelectorError {
        let mut offset = offset.min(source.len());
        while !source.is_char_boundary(offset) {
            offset -= 1;
        }
        let before = source[..offset].trim_end();
        let start = before.rfind(char::is_whitespace).map_or(0, |at| at + 1);
        SelectorError {
            kind,
            offset_bytes: offset,
            found: before[start..].trim_start().to_owned(),
            selector: source.to_owned(),
        }
    }
}

impl fmt::Display for SelectorError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let SelectorError { kind, offset_bytes, found, selector } = self;
        match found.is_empty() {
            true => write!(f, "{kind} at byte {offset_bytes} of the selector {selector:?}"),
            false => write!(
                f,
                "{kind} at byte {offset_bytes}, after {found:?}, of the selector {selector:?}"
            ),
        }
    }
}

impl std::error::Error for SelectorError {}

/// The kinds of [`SelectorError`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SelectorErrorKind {
    /// A selector is missing.
    #[error("a selector is missing")]
    Empty,
    /// A combinator with nothing after it.
    #[error("no selector after a combinator")]
    DanglingCombinator,
    /// A pseudo-class or pseudo-element that a static document does not have.
    #[error("a pseudo-class or pseudo-element that is not supported")]
    UnsupportedPseudo,
    /// An unknown namespace prefix.
    #[error("an unknown namespace prefix (see Selector::parse_with_namespaces)")]
    UnknownPrefix,
    /// An invalid attribute selector.
    #[error("a malformed attribute selector")]
    Attribute,
    /// Too many nested blocks.
    #[error("too deeply nested")]
    TooDeep,
    /// Anything else.
    #[error("unexpected text")]
    Syntax,
}

fn kind_of(error: &ParseError<SelectorParseErrorKind>) -> SelectorErrorKind {
    use SelectorParseErrorKind as Kind;
    match &error.kind {
        ParseErrorKind::Basic(cssparser::BasicParseErrorKind::TooManyNestedBlocks) => {
            SelectorErrorKind::TooDeep
        }
        ParseErrorKind::Basic(cssparser::BasicParseErrorKind::EndOfInput)
        | ParseErrorKind::Custom(Kind::EmptySelector) => SelectorErrorKind::Empty,
        ParseErrorKind::Custom(Kind::DanglingCombinator) => SelectorErrorKind::DanglingCombinator,
        ParseErrorKind::Custom(
            Kind::UnsupportedPseudoClassOrElement
            | Kind::PseudoElementExpectedColon
            | Kind::PseudoElementExpectedIdent
            | Kind::NoIdentForPseudo
            | Kind::InvalidState,
        ) => SelectorErrorKind::UnsupportedPseudo,
        ParseErrorKind::Custom(Kind::ExpectedNamespace) => SelectorErrorKind::UnknownPrefix,
        ParseErrorKind::Custom(
            Kind::NoQualifiedNameInAttributeSelector
            | Kind::UnexpectedTokenInAttributeSelector
            | Kind::ExpectedBarInAttr
            | Kind::BadValueInAttr
            | Kind::InvalidQualNameInAttr,
        ) => SelectorErrorKind::Attribute,
        _ => SelectorErrorKind::Syntax,
    }
}

struct Grammar<'n> {
    namespaces: &'n [(&'n str, &'n str)],
    inside_has: Cell<bool>,
    /// The first refused pseudo-class or prefix, as in the source.
    refused: Cell<Option<String>>,
}

type Failure = ParseError<SelectorParseErrorKind>;

impl Grammar<'_> {
    fn refuse(&self, what: String) {
        let first = self.refused.take().unwrap_or(what);
        self.refused.set(Some(first));
    }

    fn unsupported(&self, name: &str) -> Failure {
        self.refuse(format!(":{name}"));
        ParseError::custom(SelectorParseErrorKind::UnsupportedPseudoClassOrElement)
    }
}

impl<'i> Parser<'i> for Grammar<'_> {
    type Impl = Css;
    type Error = SelectorParseErrorKind;

    fn parse_is_and_where(&self) -> bool {
        true
    }

    fn parse_nth_child_of(&self) -> bool {
        true
    }

    // `:has` is parsed below as a pseudo-class of our own: the crate's matcher recurses by the
    // depth of the document, and a page may be a million elements deep.
    fn parse_has(&self) -> bool {
        false
    }

    fn parse_non_ts_pseudo_class(&self, name: &str) -> Result<Pseudo, Failure> {
        let found = PSEUDO_CLASSES.iter().find(|(known, _)| name.eq_ignore_ascii_case(known));
        match found {
            Some((_, pseudo)) => Ok(pseudo.clone()),
            None => Err(self.unsupported(name)),
        }
    }

    fn parse_non_ts_functional_pseudo_class(
        &self,
        name: &str,
        input: &mut CssParser<'i>,
        _after_part: bool,
    ) -> Result<Pseudo, Failure> {
        if !name.eq_ignore_ascii_case("has") {
            return Err(self.unsupported(name));
        }
        if self.inside_has.replace(true) {
            return Err(ParseError::custom(SelectorParseErrorKind::InvalidState));
        }
        let list = SelectorList::parse_disallow_pseudo(self, input, ParseRelative::ForHas);
        self.inside_has.set(false);
        Ok(Pseudo::Has(list?))
    }

    fn parse_pseudo_element(&self, name: &str) -> Result<NoPseudoElement, Failure> {
        Err(self.unsupported(name))
    }

    fn namespace_for_prefix(&self, prefix: &CssString) -> Option<CssNamespace> {
        let given = self.namespaces.iter().find(|(given, _)| *given == prefix.as_str());
        if let Some((_, uri)) = given {
            return Some(CssNamespace::new(uri));
        }
        let fixed = match prefix.as_str() {
            "html" => 1,
            "svg" => 2,
            "math" => 3,
            "xlink" => 4,
            "xml" => 5,
            _ => {
                self.refuse(format!("{}|", prefix.as_str()));
                return None;
            }
        };
        Some(CssNamespace::new(FIXED_NAMESPACES[fixed]))
    }
}

const PSEUDO_CLASSES: [(&str, Pseudo); 7] = [
    ("link", Pseudo::Link),
    ("any-link", Pseudo::Link),
    ("checked", Pseudo::Checked),
    ("disabled", Pseudo::Disabled),
    ("enabled", Pseudo::Enabled),
    ("required", Pseudo::Required),
    ("optional", Pseudo::Optional),
];

/// The pseudo-classes besides the structural ones: states of a static document that attributes
/// define.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Pseudo {
    Link,
    Checked,
    Disabled,
    Enabled,
    Required,
    Optional,
    Has(SelectorList<Css>),
}

impl NonTSPseudoClass for Pseudo {
    fn is_active_or_hover(&self) -> bool {
        false
    }

    fn is_user_action_state(&self) -> bool {
        false
    }
}

impl ToCss for Pseudo {
    fn to_css<W: fmt::Write>(&self, out: &mut W) -> fmt::Result {
        match self {
            Pseudo::Has(list) => {
                out.write_str(":has(")?;
                list.to_css(out)?;
                out.write_char(')')
            }
            other => match PSEUDO_CLASSES.iter().find(|(_, pseudo)| pseudo == other) {
                Some((name, _)) => write!(out, ":{name}"),
                None => Err(fmt::Error),
            },
        }
    }
}

/// Type without values: a document has no pseudo-elements.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum NoPseudoElement {}

impl PseudoElement for NoPseudoElement {}

impl ToCss for NoPseudoElement {
    fn to_css<W: fmt::Write>(&self, _: &mut W) -> fmt::Result {
        match *self {}
    }
}

/// The types that selectors are made of here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Css;

impl SelectorImpl for Css {
    type ExtraMatchingData<'a> = ();
    type AttrValue = CssString;
    type Identifier = CssString;
    type LocalName = CssName;
    type NamespaceUrl = CssNamespace;
    type NamespacePrefix = CssString;
    type BorrowedNamespaceUrl = CssNamespace;
    type BorrowedLocalName = CssName;
    type NonTSPseudoClass = Pseudo;
    type PseudoElement = NoPseudoElement;
}

/// A value, id, class or prefix.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct CssString(Box<str>);

impl CssString {
    pub(super) fn as_str(&self) -> &str {
        &self.0
    }
}

impl AsRef<str> for CssString {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

impl From<&str> for CssString {
    fn from(text: &str) -> CssString {
        CssString(text.into())
    }
}

impl ToCss for CssString {
    fn to_css<W: fmt::Write>(&self, out: &mut W) -> fmt::Result {
        cssparser::serialize_identifier(&self.0, out)
    }
}

impl PrecomputedHash for CssString {
    fn precomputed_hash(&self) -> u32 {
        hash::stored(self.0.as_bytes())
    }
}

/// A local name, looked up among the well-known ones when the selector is parsed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct CssName {
    text: Box<str>,
    pub(super) known: Option<u32>,
}

impl CssName {
    pub(super) fn as_str(&self) -> &str {
        &self.text
    }
}

impl From<&str> for CssName {
    fn from(text: &str) -> CssName {
        CssName { text: text.into(), known: known::find(text) }
    }
}

impl ToCss for CssName {
    fn to_css<W: fmt::Write>(&self, out: &mut W) -> fmt::Result {
        cssparser::serialize_identifier(&self.text, out)
    }
}

impl PrecomputedHash for CssName {
    fn precomputed_hash(&self) -> u32 {
        hash::stored(self.text.as_bytes())
    }
}

/// A namespace URI.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct CssNamespace(Box<str>);

impl CssNamespace {
    fn new(uri: &str) -> CssNamespace {
        CssNamespace(uri.into())
    }

    pub(super) fn as_str(&self) -> &str {
        &self.0
    }
}

impl PrecomputedHash for CssNamespace {
    fn precomputed_hash(&self) -> u32 {
        hash::stored(self.0.as_bytes())
    }
}
