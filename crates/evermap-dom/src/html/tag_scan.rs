//! Counts the attributes of an unfinished tag.
//!
//! html5ever's tokenizer compares each attribute's name with all earlier names, and reports nothing
//! until the tag ends. So a tag that continues beyond a piece is scanned here first. The states are
//! those of the standard's tokenizer, reduced to counting.

/// State of the scan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Before the first byte of a token.
    Start,
    Open,
    EndOpen,
    Name,
    BeforeAttribute,
    AttributeName,
    AfterAttributeName,
    BeforeValue,
    DoubleQuoted,
    SingleQuoted,
    Unquoted,
    /// The tag has ended, or the token is not a tag.
    Done,
}

/// A scan of one token, possibly in several pieces.
#[derive(Debug)]
pub(super) struct TagScan {
    state: State,
    attributes: usize,
}

impl TagScan {
    /// Creates a scan that waits for the first byte of a token.
    pub(super) fn new() -> TagScan {
        TagScan { state: State::Start, attributes: 0 }
    }

    /// Returns the number of attributes so far, including duplicates.
    pub(super) fn attributes(&self) -> usize {
        self.attributes
    }

    /// Scans the next bytes up to the end of the token.
    pub(super) fn feed(&mut self, bytes: &[u8]) {
        let mut at = 0;
        while at < bytes.len() && self.state != State::Done {
            let quote = match self.state {
                State::DoubleQuoted => Some(b'"'),
                State::SingleQuoted => Some(b'\''),
                _ => None,
            };
            if let Some(quote) = quote {
                match memchr::memchr(quote, &bytes[at..]) {
                    None => return,
                    Some(found) => at += found + 1,
                }
                self.state = State::BeforeAttribute;
                continue;
            }
            self.step(bytes[at]);
            at += 1;
        }
    }

    fn step(&mut self, byte: u8) {
        let is_space = matches!(byte, b' ' | b'\t' | b'\n' | b'\r' | 0x0C);
        self.state = match (self.state, byte) {
            (State::Start, b'<') => State::Open,
            (State::Open, b'/') => State::EndOpen,
            (State::Open | State::EndOpen, byte) if byte.is_ascii_alphabetic() => State::Name,
            (State::Start | State::Open | State::EndOpen, _) => State::Done,
            (_, b'>') => State::Done,
            (State::Name | State::BeforeAttribute, b'/') => State::BeforeAttribute,
            (State::Name, _) if is_space => State::BeforeAttribute,
            (State::Name, _) => State::Name,
            (State::BeforeAttribute, _) if is_space => State::BeforeAttribute,
            (State::AttributeName | State::AfterAttributeName, b'/') => State::BeforeAttribute,
            (State::AttributeName | State::AfterAttributeName, b'=') => State::BeforeValue,
            (State::AttributeName | State::AfterAttributeName, _) if is_space => {
                State::AfterAttributeName
            }
            (State::AttributeName, _) => State::AttributeName,
            (State::BeforeAttribute | State::AfterAttributeName, _) => {
                self.attributes += 1;
                State::AttributeName
            }
            (State::BeforeValue, b'"') => State::DoubleQuoted,
            (State::BeforeValue, b'\'') => State::SingleQuoted,
            (State::BeforeValue, _) if is_space => State::BeforeValue,
            (State::Unquoted, _) if is_space => State::BeforeAttribute,
            (State::BeforeValue | State::Unquoted, _) => State::Unquoted,
            (state @ (State::DoubleQuoted | State::SingleQuoted | State::Done), _) => state,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(text: &str) -> usize {
        let mut whole = TagScan::new();
        whole.feed(text.as_bytes());
        let mut bytes = TagScan::new();
        for byte in text.as_bytes().chunks(1) {
            bytes.feed(byte);
        }
        assert_eq!(whole.attributes(), bytes.attributes(), "{text}");
        whole.attributes()
    }

    #[test]
    fn attributes_are_counted_as_the_tokenizer_finds_them() {
        for (text, attributes) in [
            ("<p>", 0),
            ("<p a b=c d='e f > g' h=\"i j\"k>l m n", 5),
            ("</p a b", 2),
            ("<p a/b/c//d", 4),
            ("<p a = b = c", 3),
            ("<p a=b/c/d e", 2),
            ("<p a='<q b c d e", 1),
            ("<!-- a b c -->", 0),
            ("< a b c", 0),
            ("text <p a b", 0),
            ("<p\na\ta\x0Ca\r\na", 4),
        ] {
            assert_eq!(count(text), attributes, "{text}");
        }
    }
}
