//! Bounds style sheets before the engine reads them.
//!
//! The engine takes time for each rule and selector, recurses into blocks and parentheses, and
//! fails on lengths that overflow its numbers. So at most [`RULES_MAX`] rules of a page are
//! used, a style sheet is cut where it nests too deep, and a length is at most a million pixels.
//! The report names the bound that was exceeded.

use std::borrow::Cow;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Maximum number of rules of all style sheets of a page. Large sites have ten or twenty thousand.
/// The engine takes about 30 us for each.
const RULES_MAX: usize = 40_000;
/// Maximum number of selectors of all style sheets of a page. A rule may have many.
const SELECTORS_MAX: usize = 100_000;
/// Maximum depth of nested blocks: rules in rules, and in `@media`. A nested rule can name its
/// parent's selector twice, so the cost of matching can double with each level.
const BLOCKS_MAX: u32 = 32;
/// Maximum depth of nested parentheses and brackets.
const PARENTHESES_MAX: u32 = 64;
/// Maximum length in pixels, and in other units, which are larger.
const PIXELS_MAX: f64 = 1e6;
const OTHERS_MAX: f64 = 1e5;

/// Counts the rules and selectors of a page's style sheets.
#[derive(Debug, Default)]
pub(crate) struct CssBudget {
    rules: AtomicUsize,
    selectors: AtomicUsize,
    cut: OnceLock<&'static str>,
}

impl CssBudget {
    /// Returns a note about the first part that was left out, for people.
    pub fn left_out(&self) -> Option<&'static str> {
        self.cut.get().copied()
    }

    /// Returns the style sheet with bounded lengths, cut where the budget ends.
    pub fn sheet<'a>(&self, css: &'a str) -> Cow<'a, str> {
        let left =
            |max: usize, used: &AtomicUsize| max.saturating_sub(used.load(Ordering::Relaxed));
        let most = Counts {
            rules: left(RULES_MAX, &self.rules),
            selectors: left(SELECTORS_MAX, &self.selectors),
        };
        let scanned = scan(css, most);
        self.rules.fetch_add(scanned.counts.rules, Ordering::Relaxed);
        self.selectors.fetch_add(scanned.counts.selectors, Ordering::Relaxed);
        if let Some(cut) = scanned.cut {
            self.cut.get_or_init(|| cut);
        }
        scanned.text
    }
}

/// Bounds the lengths in a `style` attribute.
pub(crate) fn declarations(css: &str) -> Cow<'_, str> {
    scan(css, Counts { rules: usize::MAX, selectors: usize::MAX }).text
}

#[derive(Clone, Copy, Default)]
struct Counts {
    rules: usize,
    selectors: usize,
}

struct Scanned<'a> {
    text: Cow<'a, str>,
    counts: Counts,
    cut: Option<&'static str>,
}

const TOO_MANY: &str = "style rules beyond 40,000, or 100,000 selectors, are left out";
const TOO_DEEP: &str = "a style sheet is cut where more than 32 blocks or 64 parentheses nest";

/// Scans a style sheet once. Leaves strings, comments and URLs unchanged.
fn scan(css: &str, most: Counts) -> Scanned<'_> {
    let bytes = css.as_bytes();
    let mut changed = String::new();
    let (mut counts, mut cut) = (Counts::default(), None);
    // Selectors of the rule that may start here, and the depth of blocks and parentheses.
    let (mut selectors, mut blocks, mut parentheses) = (1, 0, 0_u32);
    // `changed` holds the output for the input before `copied`. `end` is the end of the last
    // complete rule.
    let (mut at, mut copied, mut end) = (0, 0, 0);
    while at < bytes.len() {
        match bytes[at] {
            b'/' if bytes.get(at + 1) == Some(&b'*') => {
                at = find(bytes, at + 2, b"*/").map_or(bytes.len(), |found| found + 2);
                continue;
            }
            quote @ (b'"' | b'\'') => {
                at = end_of_string(bytes, at + 1, quote);
                continue;
            }
            b'(' if ends_with_url(&bytes[..at]) => {
                at = find(bytes, at, b")").unwrap_or(bytes.len());
                continue;
            }
            b'{' => {
                counts.rules += 1;
                counts.selectors += selectors;
                blocks += 1;
                (selectors, parentheses) = (1, 0);
                let too_many = counts.rules > most.rules || counts.selectors > most.selectors;
                cut = match blocks > BLOCKS_MAX {
                    true => Some(TOO_DEEP),
                    false => too_many.then_some(TOO_MANY),
                };
            }
            b'}' => {
                end = at + 1;
                blocks = blocks.saturating_sub(1);
                (selectors, parentheses) = (1, 0);
            }
            b';' if parentheses == 0 => selectors = 1,
            b',' => selectors += 1,
            b'(' | b'[' => {
                parentheses += 1;
                cut = (parentheses > PARENTHESES_MAX).then_some(TOO_DEEP);
            }
            b')' | b']' => parentheses = parentheses.saturating_sub(1),
            b'0'..=b'9' if !is_in_name(bytes, at) => {
                let number = end_of_number(bytes, at);
                let unit = end_of_unit(bytes, number);
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
        if cut.is_some() {
            break;
        }
        at += 1;
    }
    let end = if cut.is_some() { end.max(copied) } else { css.len() };
    let text = match copied {
        0 => Cow::Borrowed(&css[..end]),
        _ => {
            changed.push_str(&css[copied..end]);
            Cow::Owned(changed)
        }
    };
    Scanned { text, counts, cut }
}

fn find(bytes: &[u8], from: usize, what: &[u8]) -> Option<usize> {
    let rest = bytes.get(from..)?;
    rest.windows(what.len()).position(|window| window == what).map(|found| from + found)
}

fn end_of_string(bytes: &[u8], mut at: usize, quote: u8) -> usize {
    while let Some(byte) = bytes.get(at) {
        match byte {
            b'\\' => at += 1,
            // An unclosed string ends at the end of its line.
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

/// Returns true if the digit is part of a name or a colour.
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

/// Returns the end of the number that starts at `at`.
fn end_of_number(bytes: &[u8], at: usize) -> usize {
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

fn end_of_unit(bytes: &[u8], at: usize) -> usize {
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
        assert_eq!(declarations("width:1e9px;top:1px"), "width:1000000px;top:1px");
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
        assert!(budget.left_out().is_none());
        assert_eq!(budget.sheet("a{}b{}c{}d{}"), "a{}b{}");
        assert!(budget.left_out().is_some());
        assert_eq!(budget.sheet("a{}"), "");
    }

    #[test]
    fn selectors_blocks_and_parentheses_are_bounded() {
        let many = "a,".repeat(SELECTORS_MAX);
        let inside = |open: &str, count: u32, close: &str| {
            let count = count as usize;
            format!("{}x{}", open.repeat(count), close.repeat(count))
        };
        for hostile in [
            format!("{many}b{{c:d}}"),
            format!(":is({many}b){{c:d}}"),
            format!("{}{{}}", inside("b:is(", PARENTHESES_MAX + 1, ")")),
            format!("b{{c:{}}}", inside("calc(", PARENTHESES_MAX + 1, ")")),
            format!("b{{c:{}}}", inside("[", 1_000_000, "")),
        ] {
            let budget = CssBudget::default();
            assert_eq!(budget.sheet(&format!("a{{}}{hostile}z{{}}")), "a{}");
            assert!(budget.left_out().is_some());
        }
        // All style sheets of a page share one budget.
        let budget = CssBudget::default();
        let half = format!("{}b{{c:d}}", "a,".repeat(SELECTORS_MAX / 2));
        assert_eq!(budget.sheet(&half), half.as_str());
        assert_eq!(budget.sheet(&half), "");
        assert!(budget.left_out().is_some());
        for depth in [BLOCKS_MAX + 1, 100_000] {
            let budget = CssBudget::default();
            budget.sheet(&inside("&{", depth, "}"));
            assert!(budget.left_out().is_some(), "{depth}");
        }
        for harmless in [
            inside("&{", BLOCKS_MAX, "}"),
            format!("a{{b:{}}}", inside("(", PARENTHESES_MAX, ")")),
            format!("a{{{}}}", "b:c,d;".repeat(SELECTORS_MAX)),
            "a{b:(;c:(;d:(}".repeat(RULES_MAX),
        ] {
            let budget = CssBudget::default();
            assert_eq!(budget.sheet(&harmless), harmless.as_str());
            assert!(budget.left_out().is_none());
        }
    }
}
