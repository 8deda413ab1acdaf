//! html5ever's tokenizer and tree builder, within a work budget.
//!
//! Text is parsed in pieces. Between pieces and between tokens the driver stops when the budget is
//! used up. Inside a token the sink unwinds; this module catches the unwinding and never lets it
//! out. Afterwards html5ever's state is not used again.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::rc::Rc;

use html5ever::tendril::StrTendril;
use html5ever::tokenizer::{
    BufferQueue, ParseError as MarkupError, TagToken, Token, TokenSink, TokenSinkResult, Tokenizer,
    TokenizerOpts,
};
use html5ever::tree_builder::{TreeBuilder, TreeBuilderOpts, create_element};
use html5ever::{QualName, TokenizerResult};

use super::HtmlOptions;
use super::budget::{ATTRIBUTES_MAX, OutOfWork};
use super::sink::{Handle, Sink};
use super::tag_scan::TagScan;
use crate::error::{ParseError, ParseErrorKind};
use crate::room::is_free;
use crate::tables::Tables;

/// Bytes per piece passed to html5ever. A tag within one piece has at most as many attributes as
/// the tokenizer can compare in a few milliseconds.
const PIECE_BYTES: usize = 16 * 1024;

/// Length above which a token may grow only after a check of the available memory.
const LONG_TOKEN_BYTES: usize = 1 << 20;

/// A parser from text to tables.
pub(super) struct Driver {
    tokenizer: Tokenizer<Watched>,
    input: Rc<BufferQueue>,
    /// The unfinished token.
    scan: TagScan,
    place: Place,
    error: Option<ParseError>,
    /// Bytes fed since the last token ended; html5ever buffers them.
    token_bytes: usize,
}

/// Offset of the end of the text fed so far.
#[derive(Clone, Copy)]
struct Place {
    offset_bytes: u64,
    line: u32,
    column: u32,
}

/// The tree builder, and where its last token ended.
struct Watched {
    builder: TreeBuilder<Handle, Sink>,
    input: Rc<BufferQueue>,
    /// Bytes of the piece left after the last token, if there was one.
    left: Cell<Option<usize>>,
    /// A tag had too many attributes.
    too_many_attributes: Cell<bool>,
}

impl Driver {
    /// Parses documents.
    pub(super) fn new(bytes_expected: usize, options: &HtmlOptions) -> Driver {
        let sink = Sink::new(bytes_expected, options);
        let builder = TreeBuilder::new(sink, builder_options(options));
        Driver::of(builder, TokenizerOpts { discard_bom: false, ..Default::default() })
    }

    /// Parses a fragment inside an element.
    pub(super) fn for_fragment(
        bytes_expected: usize,
        context: QualName,
        options: &HtmlOptions,
    ) -> Driver {
        let sink = Sink::new(bytes_expected, options);
        let element = create_element(&sink, context, Vec::new());
        let builder = TreeBuilder::new_for_fragment(sink, element, None, builder_options(options));
        let state = builder.tokenizer_state_for_context_elem(options.scripting);
        Driver::of(
            builder,
            TokenizerOpts { initial_state: Some(state), discard_bom: false, ..Default::default() },
        )
    }

    fn of(builder: TreeBuilder<Handle, Sink>, options: TokenizerOpts) -> Driver {
        let input = Rc::new(BufferQueue::default());
        let watched = Watched {
            builder,
            input: Rc::clone(&input),
            left: Cell::new(None),
            too_many_attributes: Cell::new(false),
        };
        Driver {
            tokenizer: Tokenizer::new(watched, options),
            input,
            scan: TagScan::new(),
            place: Place { offset_bytes: 0, line: 1, column: 1 },
            error: None,
            token_bytes: 0,
        }
    }

    /// Parses the next part of the text.
    pub(super) fn process(&mut self, mut text: &str) {
        // The tokenizer would drop a byte order mark at the beginning of every piece.
        if self.place.offset_bytes == 0
            && let Some(rest) = text.strip_prefix('\u{FEFF}')
        {
            self.place.offset_bytes = (text.len() - rest.len()) as u64;
            text = rest;
        }
        while !text.is_empty() && self.error.is_none() {
            let mut end = text.len().min(PIECE_BYTES);
            while !text.is_char_boundary(end) {
                end -= 1;
            }
            let (piece, rest) = text.split_at(end);
            self.process_piece(piece);
            text = rest;
        }
    }

    fn process_piece(&mut self, piece: &str) {
        self.scan.feed(piece.as_bytes());
        if self.scan.attributes() > ATTRIBUTES_MAX {
            self.fail(too_many_attributes(), "");
            return;
        }
        self.token_bytes += piece.len();
        if self.token_bytes > LONG_TOKEN_BYTES && !is_free(4 * self.token_bytes) {
            self.fail(ParseErrorKind::NoMemory, "");
            return;
        }
        self.watched().builder.sink.budget().allow(piece.len());
        self.watched().left.set(None);
        self.input.push_back(StrTendril::from_slice(piece));
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            while !matches!(self.tokenizer.feed(&self.input), TokenizerResult::Done) {}
        }));
        self.end_of(outcome, piece);
    }

    /// Ends the document.
    pub(super) fn finish(mut self, source_bytes: u64) -> Result<Tables, ParseError> {
        if self.error.is_none() {
            self.watched().left.set(None);
            let outcome = catch_unwind(AssertUnwindSafe(|| self.tokenizer.end()));
            self.end_of(outcome, "");
        }
        match self.error {
            Some(error) => Err(error),
            None => self.tokenizer.sink.builder.sink.into_builder().finish(source_bytes),
        }
    }

    fn watched(&self) -> &Watched {
        &self.tokenizer.sink
    }

    /// Handles the outcome of a piece.
    fn end_of(&mut self, outcome: std::thread::Result<()>, piece: &str) {
        if let Err(payload) = outcome
            && !payload.is::<OutOfWork>()
        {
            resume_unwind(payload);
        }
        let watched = self.watched();
        let left = watched.left.get();
        let read = piece.len() - left.unwrap_or_default().min(piece.len());
        let (before, behind) = match piece.is_char_boundary(read) {
            true => piece.split_at(read),
            false => (piece, ""),
        };
        let budget = watched.builder.sink.budget();
        if watched.builder.sink.has_no_memory() {
            self.fail(ParseErrorKind::NoMemory, before);
            return;
        }
        let failed = match (watched.too_many_attributes.get(), budget.is_spent()) {
            (true, _) => Some(too_many_attributes()),
            (_, true) => Some(ParseErrorKind::WorkLimit { units_max: budget.units_max() }),
            _ => None,
        };
        match failed {
            Some(kind) => self.fail(kind, before),
            None => {
                if left.is_some() {
                    self.scan = TagScan::new();
                    self.scan.feed(behind.as_bytes());
                    self.token_bytes = behind.len();
                }
                self.place.pass(piece);
            }
        }
    }

    /// Fails at the end of `text`, which follows the text passed before.
    fn fail(&mut self, kind: ParseErrorKind, text: &str) {
        self.place.pass(text);
        let Place { offset_bytes, line, column } = self.place;
        self.error = Some(ParseError { kind, offset_bytes, line, column });
    }
}

impl Place {
    fn pass(&mut self, text: &str) {
        self.offset_bytes += text.len() as u64;
        let lines = memchr::memchr_iter(b'\n', text.as_bytes()).count() as u32;
        self.line = self.line.saturating_add(lines);
        let characters = |text: &str| u32::try_from(text.chars().count()).unwrap_or(u32::MAX);
        self.column = match memchr::memrchr(b'\n', text.as_bytes()) {
            Some(at) => characters(&text[at + 1..]).saturating_add(1),
            None => self.column.saturating_add(characters(text)),
        };
    }
}

impl TokenSink for Watched {
    type Handle = Handle;

    fn process_token(&self, token: Token, line: u64) -> TokenSinkResult<Handle> {
        // Errors also occur in the middle of tokens.
        if !matches!(token, MarkupError(_)) {
            let left = self.input.peek_front_chunk_mut().map_or(0, |chunk| chunk.len());
            self.left.set(Some(left));
        }
        let budget = self.builder.sink.budget();
        if let TagToken(tag) = &token {
            if tag.attrs.len() > ATTRIBUTES_MAX {
                self.too_many_attributes.set(true);
            }
            budget.spend_tag(tag.attrs.len());
        }
        match budget.is_spent() || self.too_many_attributes.get() {
            true => TokenSinkResult::Continue,
            false => self.builder.process_token(token, line),
        }
    }

    fn end(&self) {
        if !self.builder.sink.budget().is_spent() {
            self.builder.end();
        }
    }

    fn adjusted_current_node_present_but_not_in_html_namespace(&self) -> bool {
        self.builder.adjusted_current_node_present_but_not_in_html_namespace()
    }
}

fn too_many_attributes() -> ParseErrorKind {
    ParseErrorKind::TooManyAttributes { limit: ATTRIBUTES_MAX as u64 }
}

fn builder_options(options: &HtmlOptions) -> TreeBuilderOpts {
    TreeBuilderOpts { scripting_enabled: options.scripting, ..TreeBuilderOpts::default() }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    /// Ordinary pages stay far below the limit, so other ordinary pages will, too.
    #[test]
    fn real_pages_need_a_small_part_of_their_budget() {
        let folder = std::env::var_os("EVERMAP_CORPUS").map_or_else(
            || PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../shared/corpus"),
            PathBuf::from,
        );
        let Ok(entries) = std::fs::read_dir(folder.join("html")) else {
            eprintln!("SKIPPED: no corpus at {} (set EVERMAP_CORPUS)", folder.display());
            return;
        };
        let mut worst = (0.0, 0.0, PathBuf::new());
        for path in entries.map(|entry| entry.unwrap().path()) {
            let text = String::from_utf8_lossy(&std::fs::read(&path).unwrap()).into_owned();
            let mut driver = Driver::new(text.len(), &HtmlOptions::default());
            driver.process(&text);
            let budget = driver.watched().builder.sink.budget();
            let part = budget.spent() as f64 / budget.units_max() as f64;
            let a_byte = budget.spent() as f64 / text.len().max(1) as f64;
            assert!(driver.finish(0).is_ok(), "{}", path.display());
            if part > worst.0 {
                (worst.0, worst.2) = (part, path);
            }
            worst.1 = a_byte.max(worst.1);
        }
        let (part, a_byte, path) = worst;
        eprintln!("{part:.3} of its budget: {}; most units a byte: {a_byte:.1}", path.display());
        assert!(part < 0.2, "{}: {part}", path.display());
    }
}
