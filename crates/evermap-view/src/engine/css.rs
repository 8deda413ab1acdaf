//! Style sheets within bounds, before the engine reads them.
//!
//! The engine takes time for each rule, and stops at lengths that its numbers can't add up. So of a page's rules no more
//! than [`RULES_MAX`] are used, and a length is at most a million pixels. What is cut is noted.

use std::borrow::Cow;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Rules of all style sheets of a page. Large sites have ten or twenty thousand; the engine takes some 30 us for each.
const RULES_MAX: usize = 40_000;
/// The longest length in pixels, and in units that are larger.
const PIXELS_MAX: f64 = 1e6;
const OTHERS_MAX: f64 = 1e5;

/// What a page's style sheets may still have.
#[derive(Debug, Default)]
pub(crate) struct CssBudget {
    rules: AtomicUsize,
    is_cut: AtomicBool,
}

impl CssBudget {
    /// Were rules left out?
    pub fn is_cut(&self) -> bool {
        self.is_cut.load(Ordering::Relaxed)
    }

    /// The style sheet, or as much of it as the budget allows, with lengths within bounds.
    pub fn sheet<'a>(&self, css: &'a str) -> Cow<'a, str> {
        let used = self.rules.load(Ordering::Relaxed);
        let scanned = scan(css, RULES_MAX.saturating_sub(used));
        self.rules.fetch_add(scanned.rules, Ordering::Relaxed);
        if scanned.is_cut {
            self.is_cut.store(true, Ordering::Relaxed);
        }
        scanned.text
    }
}

/// What the `style` attribute says, with lengths within bounds.
pub(crate) fn declarations(css: &str) -> Cow<'_, str> {
    scan(css, usize::MAX).text
}

struct Scanned<'a> {
    text: Cow<'a, str>,
    rules: usize,
    is_cut: bool,
}

/// Walks over a style sheet once. Text in strings, comments and addresses is left alone.
fn scan(css: &str, rules_max: usize) -> Scanned<'_> {
    let bytes = css.as_bytes();
    let mut changed = String::new();
    let (mut rules, mut is_cut) = (0, false);
    // What is before `copied` is in `changed`, if anything is; `end` is behind the last whole rule.
    let (mut at, mut copied, mut end) = (0, 0, 0);
    while at < bytes.len() {
        match bytes[at] {
            b'/' if bytes.get(at + 1) == Some(&b'*') => {
                at = find(bytes, at + 2, b"*/").map_or(bytes.len(), |found| found + 2);
                continue;
            }
            quote @ (b'"' | b'\'') => {
                at = behind_string(bytes, at + 1, quote);
                continue;
            }
            b'(' if ends_with_url(&bytes[..at]) => {
                at = find(bytes, at, b")").unwrap_or(bytes.len());
                continue;
            }
            b'{' if rules == rules_max => {
                is_cut = true;
                break;
            }
            b'{' => rules += 1,
            b'}' => end = at + 1,
            b'0'..=b'9' if !is_in_name(bytes, at) => {
                let number = number_at(bytes, at);
                let unit = unit_at(bytes, number);
                if let Some(limit) = limit_of(&css[number..unit])
                    && css[at..number].parse::<f64>().is_ok_and(|value| value > limit)
                {
                    changed.push_str(&css[copied..at]);
                    changed.push_str(&limit.to_string());
                    copied = number;
                }
                at = unit.max(at + 1);
                continue;
            }
            b'\\' => at += 1,
            _ => (),
        }
        at += 1;
    }
    let end = if is_cut { end.max(copied) } else { css.len() };
    let text = match copied {
        0 => Cow::Borrowed(&css[..end]),
        _ => {
            changed.push_str(&css[copied..end]);
            Cow::Owned(changed)
        }
    };
    Scanned { text, rules, is_cut }
}

fn find(bytes: &[u8], from: usize, what: &[u8]) -> Option<usize> {
    let rest = bytes.get(from..)?;
    rest.windows(what.len()).position(|window| window == what).map(|found| from + found)
}

fn behind_string(bytes: &[u8], mut at: usize, quote: u8) -> usize {
    while let Some(byte) = bytes.get(at) {
        match byte {
            b'\\' => at += 1,
            // A string that is not closed ends with its line.
            b'\n' => return at,
            byte if *byte == quote => return at + 1,
            _ => (),
        }
        at += 1;
    }
    bytes.len()
}

fn ends_with_url(before: &[u8]) -> bool {
    before.len() >= 3 && before[before.len() - 3..].eq_ignore_ascii_case(b"url")
}

/// Does the digit belong to a name or a colour?
fn is_in_name(bytes: &[u8], at: usize) -> bool {
    let is_name = |byte: u8| {
        byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'#' | b'\\') || !byte.is_ascii()
    };
    let before = |steps: usize| at.checked_sub(steps).map(|at| bytes[at]);
    match before(1) {
        Some(b'-') => before(2).is_some_and(|byte| is_name(byte) || byte == b'-'),
        Some(byte) => is_name(byte),
        None => false,
    }
}

/// Behind the number that begins at `at`.
fn number_at(bytes: &[u8], at: usize) -> usize {
    let digits = |from: usize| {
        from + bytes[from.min(bytes.len())..].iter().take_while(|b| b.is_ascii_digit()).count()
    };
    let mut end = digits(at);
    if bytes.get(end) == Some(&b'.') {
        end = digits(end + 1);
    }
    if matches!(bytes.get(end), Some(b'e' | b'E')) {
        let sign = usize::from(matches!(bytes.get(end + 1), Some(b'+' | b'-')));
        let exponent = digits(end + 1 + sign);
        if exponent > end + 1 + sign {
            end = exponent;
        }
    }
    end
}

fn unit_at(bytes: &[u8], at: usize) -> usize {
    match bytes.get(at) {
        Some(b'%') => at + 1,
        _ => at + bytes[at..].iter().take_while(|byte| byte.is_ascii_alphabetic()).count(),
    }
}

fn limit_of(unit: &str) -> Option<f64> {
    const OTHERS: [&str; 18] = [
        "%", "em", "rem", "ex", "ch", "vw", "vh", "vmin", "vmax", "in", "cm", "mm", "q", "pc",
        "pt", "lh", "rlh", "fr",
    ];
    if unit.eq_ignore_ascii_case("px") {
        return Some(PIXELS_MAX);
    }
    OTHERS.iter().any(|other| unit.eq_ignore_ascii_case(other)).then_some(OTHERS_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_are_bounded_and_nothing_else_changes() {
        for (css, bounded) in [
            ("a{width:1e9px}", "a{width:1000000px}"),
            ("a{margin:-99999999px 1em 5e7em}", "a{margin:-1000000px 1em 100000em}"),
            ("a{width:1e400px;top:.5px}", "a{width:1000000px;top:.5px}"),
        ] {
            assert_eq!(CssBudget::default().sheet(css), bounded);
        }
        for same in [
            "a{z-index:2147483647;color:#12345678;left:-9999px;width:1000000px}",
            ".w-99999999px,#x99999999px{background:url(99999999px.png)}",
            "a::before{content:\"99999999px\"}/* 99999999px */",
            "a{content:'\\'99999999px'} b{animation:x 99999999s}",
            "@media (min-width:1e2px){a{b:c}}",
            "\u{e4}99999999px",
            "a{b:1e",
            "a{b:99999999p\\x",
        ] {
            assert!(
                matches!(CssBudget::default().sheet(same), Cow::Borrowed(text) if text == same)
            );
        }
    }

    #[test]
    fn rules_beyond_the_budget_are_cut_between_rules() {
        let budget = CssBudget::default();
        let sheet = "@media all{a{b:c}/*{{{*/}".repeat(RULES_MAX / 2 - 1);
        assert_eq!(budget.sheet(&sheet), sheet.as_str());
        assert!(!budget.is_cut());
        assert_eq!(budget.sheet("a{}b{}c{}d{}"), "a{}b{}");
        assert!(budget.is_cut());
        assert_eq!(budget.sheet("a{}"), "");
    }
}
