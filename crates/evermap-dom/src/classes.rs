//! Class attributes while a document is being built.
//!
//! Most elements share their `class` value with others, so a value is split once, when it is first
//! seen, and the attribute then refers to that list. Tokens are pieces of the stored values: they
//! take no text of their own.

use crate::arena::Arena;
use crate::hash::{self, OffsetMap};
use crate::layout::{ClassList, Token};

#[derive(Debug, Default)]
pub(crate) struct ClassTable {
    lists: Vec<ClassList>,
    list_tokens: Vec<u32>,
    tokens: Vec<Token>,
    list_by_value: OffsetMap,
    token_by_text: OffsetMap,
}

impl ClassTable {
    /// The list of a class attribute's value.
    pub(crate) fn list(&mut self, arena: &mut Arena, value: &str) -> u32 {
        let offset = arena.value(value.as_bytes());
        if arena.overflowed() {
            return 0;
        }
        if let Some(&list) = self.list_by_value.get(&offset) {
            return list;
        }
        let list = self.lists.len() as u32;
        let first_token = self.list_tokens.len();
        self.lists.push(ClassList { value: offset, first_token: first_token as u32 });
        self.list_by_value.insert(offset, list);

        let text_start = offset + crate::arena::length_bytes(value.len() as u32);
        for token in value.split(is_space).filter(|token| !token.is_empty()) {
            let within = token.as_ptr() as usize - value.as_ptr() as usize;
            let token = self.token(arena, text_start + within as u32, token.len() as u32);
            self.list_tokens.push(token);
        }
        self.list_tokens[first_token..].sort_unstable();
        let mut kept = first_token;
        for at in first_token..self.list_tokens.len() {
            if at == first_token || self.list_tokens[at] != self.list_tokens[kept - 1] {
                self.list_tokens[kept] = self.list_tokens[at];
                kept += 1;
            }
        }
        self.list_tokens.truncate(kept);
        list
    }

    fn token(&mut self, arena: &mut Arena, offset: u32, bytes: u32) -> u32 {
        let offset = arena.same_text(offset, bytes);
        let next = self.tokens.len() as u32;
        let token = *self.token_by_text.entry(offset).or_insert(next);
        if token == next {
            self.tokens.push(Token { offset, bytes, ..Token::default() });
        }
        token
    }

    /// The lists, their tokens, and the tokens sorted by hash.
    pub(crate) fn finish(
        mut self,
        arena: &Arena,
        ignore_case: bool,
    ) -> (Vec<ClassList>, Vec<u32>, Vec<Token>) {
        for token in &mut self.tokens {
            let text = arena.slice(token.offset, token.bytes);
            token.hash = match ignore_case {
                false => hash::stored(text),
                true => hash::stored_ignoring_case(text),
            };
        }
        let mut order: Vec<u32> = (0..self.tokens.len() as u32).collect();
        order.sort_by_key(|&token| (self.tokens[token as usize].hash, token));
        let mut place = vec![0u32; order.len()];
        for (to, &from) in order.iter().enumerate() {
            place[from as usize] = to as u32;
        }
        for token in &mut self.list_tokens {
            *token = place[*token as usize];
        }
        for (at, list) in self.lists.iter().enumerate() {
            let next = self.lists.get(at + 1);
            let end = next.map_or(self.list_tokens.len(), |next| next.first_token as usize);
            self.list_tokens[list.first_token as usize..end].sort_unstable();
        }
        let tokens = order.iter().map(|&token| self.tokens[token as usize]).collect();
        (self.lists, self.list_tokens, tokens)
    }
}

/// White space as class attributes and selectors understand it.
pub(crate) fn is_space(c: char) -> bool {
    matches!(c, ' ' | '\t' | '\n' | '\r' | '\x0C')
}
