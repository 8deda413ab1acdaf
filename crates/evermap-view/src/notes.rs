//! Reports on a page's resources: one line per cause, for any number of resources.

use url::Url;

/// Maximum number of characters of an address in a line.
const ADDRESS_MAX: usize = 72;
/// Maximum number of causes that get a line of their own. More causes usually share one problem,
/// which these lines show.
const LINES_MAX: usize = 12;

/// A message about a resource or the page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Note {
    /// Address of the resource; `None` for the page as a whole.
    pub url: Option<String>,
    pub cause: String,
}

impl Note {
    pub fn of(url: &str, cause: impl Into<String>) -> Note {
        Note { url: Some(url.to_string()), cause: cause.into() }
    }
}

/// Formats the notes as lines, one per cause, in order of first occurrence.
pub(crate) fn in_lines(notes: &[Note]) -> Vec<String> {
    let mut causes: Vec<(&str, Vec<&str>)> = Vec::new();
    for note in notes {
        let known = causes.iter_mut().find(|(cause, _)| *cause == note.cause);
        let urls = match known {
            Some((_, urls)) => urls,
            None => {
                causes.push((&note.cause, Vec::new()));
                let Some((_, urls)) = causes.last_mut() else { continue };
                urls
            }
        };
        if let Some(url) = note.url.as_deref().filter(|url| !urls.contains(url)) {
            urls.push(url);
        }
    }
    let more = causes.len().saturating_sub(LINES_MAX);
    let mut lines: Vec<String> = causes
        .iter()
        .take(LINES_MAX)
        .map(|(cause, urls)| match urls[..] {
            [] => (*cause).to_string(),
            [url] => format!("{}: {cause}", shortened(url)),
            [first, ref others @ ..] => {
                format!("{} and {} more: {cause}", shortened(first), others.len())
            }
        })
        .collect();
    if more > 0 {
        lines.push(format!("and {more} other causes"));
    }
    lines
}

/// Shortens a long address to its host and its end.
pub(crate) fn shortened(url: &str) -> String {
    let length = url.chars().count();
    if length <= ADDRESS_MAX {
        return url.to_string();
    }
    let parsed = Url::parse(url).ok();
    let start = match parsed.as_ref().and_then(|url| Some((url.scheme(), url.host_str()?))) {
        Some((scheme, host)) if host.len() < ADDRESS_MAX / 2 => format!("{scheme}://{host}/..."),
        _ => url.chars().take(ADDRESS_MAX / 2).chain("...".chars()).collect(),
    };
    let rest = ADDRESS_MAX.saturating_sub(start.chars().count());
    start + &url.chars().skip(length - rest).collect::<String>()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_cause_gets_one_line_with_shortened_addresses() {
        let long = format!("https://example.org/load.php?{}&only=styles", "module|".repeat(60));
        let mut notes: Vec<Note> =
            (0..30).map(|at| Note::of(&format!("{long}{at}"), "did not arrive in time")).collect();
        notes.push(Note::of("https://example.org/a.png", "the server returned 404 Not Found"));
        notes.push(Note { url: None, cause: "no font is installed".to_string() });
        notes.push(Note::of(&format!("{long}0"), "did not arrive in time"));
        let lines = in_lines(&notes);
        assert_eq!(lines.len(), 3, "{lines:?}");
        assert!(
            lines[0].ends_with("&only=styles0 and 29 more: did not arrive in time"),
            "{lines:?}"
        );
        assert!(lines[0].starts_with("https://example.org/...") && lines[0].len() < 120);
        assert_eq!(lines[1], "https://example.org/a.png: the server returned 404 Not Found");
        assert_eq!(lines[2], "no font is installed");
        let data = format!("data:image/png;base64,{}", "A".repeat(1000));
        assert_eq!(shortened(&data).chars().count(), ADDRESS_MAX);
        let causes: Vec<Note> =
            (0..40).map(|at| Note { url: None, cause: format!("cause {at}") }).collect();
        assert_eq!(in_lines(&causes).len(), LINES_MAX + 1);
    }
}
