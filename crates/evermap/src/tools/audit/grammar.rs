//! Parser for type descriptions: definitions of structs and enums with names, offsets and sizes.
//!
//! The grammar is in `docs/persist.md`. The text comes from a file and may be malformed or
//! truncated; the parser returns `None` rather than panic, and bounds its recursion. `schema`
//! interprets the result.

use std::fmt;

/// Use of a type: a name with arguments, an array, or a constant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Expression {
    /// A name with its arguments in angle brackets.
    Named(String, Vec<Expression>),
    Array(Box<Expression>, u64),
    /// A constant argument.
    Number(String),
}

impl Expression {
    /// Returns a name without arguments.
    pub(super) fn named(name: &str) -> Expression {
        Expression::Named(name.to_string(), Vec::new())
    }
}

impl fmt::Display for Expression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Expression::Number(number) => f.write_str(number),
            Expression::Array(element, len) => write!(f, "[{element};{len}]"),
            Expression::Named(name, arguments) if arguments.is_empty() => f.write_str(name),
            Expression::Named(name, arguments) => {
                // The number that distinguishes types of the same name comes last.
                let (name, number) =
                    name.split_once('\'').map_or((name.as_str(), None), |(a, b)| (a, Some(b)));
                f.write_str(name)?;
                for (index, argument) in arguments.iter().enumerate() {
                    f.write_str(if index == 0 { "<" } else { "," })?;
                    argument.fmt(f)?;
                }
                f.write_str(">")?;
                number.map_or(Ok(()), |number| write!(f, "'{number}"))
            }
        }
    }
}

/// Field of a struct, as written in the description.
#[derive(Clone, Debug)]
pub(super) struct FieldText {
    pub(super) name: String,
    pub(super) offset: u64,
    pub(super) is: Expression,
}

#[derive(Clone, Debug)]
pub(super) enum Body {
    Struct(Vec<FieldText>),
    Enum,
}

/// Definition of a struct or an enum.
#[derive(Clone, Debug)]
pub(super) struct Definition {
    pub(super) name: String,
    pub(super) body: Body,
    pub(super) size: u64,
    pub(super) align: u64,
}

/// Parsed type description.
#[derive(Clone, Debug)]
pub(super) struct Parsed {
    /// Root type with its size and alignment, if the root is not the first definition.
    pub(super) root: Option<(Expression, u64, u64)>,
    pub(super) definitions: Vec<Definition>,
}

/// Parses a description. Of a truncated one, returns the complete definitions. Returns `None` if
/// the text is malformed.
pub(super) fn parse(text: &str, is_truncated: bool) -> Option<Parsed> {
    let mut parsed = Parsed { root: None, definitions: Vec::new() };
    let mut rest = Text { bytes: text.as_bytes(), at: 0, depth: 0 };
    let mut is_first = true;
    loop {
        let start = rest.at;
        let Some(part) = rest.part() else {
            // The last definition is incomplete.
            return (is_truncated && !is_first).then_some(parsed);
        };
        match part {
            Part::Root(..) if !is_first => return None,
            Part::Root(of, size, align) => parsed.root = Some((of, size, align)),
            Part::Definition(definition) => parsed.definitions.push(definition),
        }
        is_first = false;
        if rest.at == rest.bytes.len() {
            if is_truncated && start < rest.at {
                // Digits may be missing at the end of the last definition.
                parsed.definitions.pop();
            }
            return Some(parsed);
        }
        if !rest.take(b';') {
            return is_truncated.then_some(parsed);
        }
    }
}

enum Part {
    Root(Expression, u64, u64),
    Definition(Definition),
}

struct Text<'a> {
    bytes: &'a [u8],
    at: usize,
    depth: usize,
}

/// Limit of nesting, so that a malicious text cannot exhaust the stack.
const DEPTH_MAX: usize = 200;

impl Text<'_> {
    fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    fn take(&mut self, byte: u8) -> bool {
        let is_it = self.peek() == Some(byte);
        self.at += usize::from(is_it);
        is_it
    }

    fn word(&mut self) -> Option<String> {
        let is_part = |b: &u8| b.is_ascii_alphanumeric() || *b == b'_' || *b >= 0x80;
        let length = self.bytes[self.at..].iter().take_while(|b| is_part(b)).count();
        let word = std::str::from_utf8(&self.bytes[self.at..self.at + length]).ok()?;
        self.at += length;
        (length > 0).then(|| word.to_string())
    }

    fn number(&mut self) -> Option<u64> {
        self.word()?.parse().ok()
    }

    fn part(&mut self) -> Option<Part> {
        let of = self.expression()?;
        if !self.take(b'{') {
            let (size, align) = self.measure()?;
            return Some(Part::Root(of, size, align));
        }
        let mut fields = Vec::new();
        let mut is_enum = false;
        while !self.take(b'}') {
            let is_first = fields.is_empty() && !is_enum;
            if !is_first && !self.take(b',') {
                return None;
            }
            let name = self.word()?;
            if self.take(b'=') {
                is_enum = true;
                let _ = self.take(b'-');
                self.word()?;
                continue;
            }
            if !self.take(b'@') {
                return None;
            }
            let offset = self.number()?;
            if !self.take(b':') {
                return None;
            }
            fields.push(FieldText { name, offset, is: self.expression()? });
        }
        if self.take(b':') {
            is_enum = true;
            self.word()?;
        }
        let (size, align) = self.measure()?;
        let body = if is_enum { Body::Enum } else { Body::Struct(fields) };
        Some(Part::Definition(Definition { name: of.to_string(), body, size, align }))
    }

    fn measure(&mut self) -> Option<(u64, u64)> {
        if !self.take(b'#') {
            return None;
        }
        let size = self.number()?;
        if !self.take(b'/') {
            return None;
        }
        Some((size, self.number()?))
    }

    fn expression(&mut self) -> Option<Expression> {
        self.depth += 1;
        let read = if self.depth > DEPTH_MAX { None } else { self.expression_here() };
        self.depth -= 1;
        read
    }

    fn expression_here(&mut self) -> Option<Expression> {
        if self.take(b'[') {
            let element = self.expression()?;
            let whole = self.take(b';');
            let len = self.number()?;
            return (whole && self.take(b']')).then(|| Expression::Array(Box::new(element), len));
        }
        let negative = self.take(b'-');
        let mut name = self.word()?;
        if negative || name.as_bytes()[0].is_ascii_digit() {
            return Some(Expression::Number(if negative { format!("-{name}") } else { name }));
        }
        let mut arguments = Vec::new();
        if self.take(b'<') {
            loop {
                arguments.push(self.expression()?);
                if self.take(b'>') {
                    break;
                }
                if !self.take(b',') {
                    return None;
                }
            }
        }
        if self.take(b'\'') {
            name = format!("{name}'{}", self.word()?);
        }
        Some(Expression::Named(name, arguments))
    }
}
