//! Parses the XML files: menus, films, channels and programmes.

use std::path::Path;

use roxmltree::{Document, Node};

use crate::error::{Result, TvError};
use crate::model::Recipe;
use crate::times::minute_of;

/// Files of a user interface in its directory.
pub const FILES: [&str; 3] = ["menu.xml", "posters.xml", "guide.xml"];
/// Deepest nesting of menus.
const DEPTH_MAX: usize = 16;

/// Contents of the user interface.
#[derive(Debug, Default)]
#[allow(missing_docs)]
pub struct Contents {
    pub menu: Vec<Entry>,
    pub films: Vec<Film>,
    pub channels: Vec<Channel>,
    /// Current minute since 1970; examples have their own time.
    pub now_minute: u32,
}

/// Menu entry.
#[derive(Debug)]
#[allow(missing_docs)]
pub struct Entry {
    pub title: String,
    pub note: String,
    pub icon: u32,
    pub opens: String,
    pub entries: Vec<Entry>,
}

/// Film with its poster.
#[derive(Debug)]
#[allow(missing_docs)]
pub struct Film {
    pub title: String,
    pub year: u32,
    pub minutes: u32,
    pub genre: String,
    pub synopsis: String,
    pub recipe: Recipe,
}

/// Channel with its programmes, sorted by time.
#[derive(Debug)]
#[allow(missing_docs)]
pub struct Channel {
    pub id: String,
    pub name: String,
    pub programmes: Vec<Programme>,
}

/// Programme; times are minutes since 1970.
#[derive(Debug)]
#[allow(missing_docs)]
pub struct Programme {
    pub title: String,
    pub synopsis: String,
    pub category: String,
    pub start: u32,
    pub stop: u32,
}

/// Parses the three files, whose bytes are given in the order of [`FILES`].
///
/// # Errors
/// If one of them is not XML or has an invalid value. The error names the file, the line and the
/// problem.
pub fn parse(directory: &Path, bytes: &[Vec<u8>; 3]) -> Result<Contents> {
    let [menu, posters, guide] = bytes;
    let mut contents = Contents::default();
    let parsed = |at: usize, bytes| File::new(directory, FILES[at], bytes);
    let (file, text) = parsed(0, menu)?;
    let document = file.document(text)?;
    contents.menu = file.entries(&document, file.root(&document, "menu")?, 0)?;
    let (file, text) = parsed(1, posters)?;
    let document = file.document(text)?;
    let films = children(file.root(&document, "posters")?, "film");
    contents.films = films.map(|node| file.film(&document, node)).collect::<Result<_>>()?;
    let (file, text) = parsed(2, guide)?;
    let document = file.document(text)?;
    let root = file.root(&document, "tv")?;
    contents.now_minute = file.minute(&document, root, "now")?;
    contents.channels = file.channels(&document, root)?;
    Ok(contents)
}

/// File being parsed, for error messages.
struct File<'a> {
    directory: &'a Path,
    name: &'static str,
}

impl<'a> File<'a> {
    fn new<'b>(
        directory: &'a Path,
        name: &'static str,
        bytes: &'b [u8],
    ) -> Result<(File<'a>, &'b str)> {
        let file = File { directory, name };
        match std::str::from_utf8(bytes) {
            Ok(text) => Ok((file, text)),
            Err(error) => {
                let before = &bytes[..error.valid_up_to()];
                let line = 1 + before.iter().filter(|byte| **byte == b'\n').count();
                Err(file.bad(line as u32, "the file is not UTF-8"))
            }
        }
    }

    fn bad(&self, line: u32, why: impl Into<String>) -> TvError {
        TvError::Xml { file: self.directory.join(self.name), line, why: why.into() }
    }

    fn bad_at(&self, document: &Document<'_>, node: Node<'_, '_>, why: String) -> TvError {
        self.bad(document.text_pos_at(node.range().start).row, why)
    }

    fn document<'t>(&self, text: &'t str) -> Result<Document<'t>> {
        Document::parse(text).map_err(|error| self.bad(error.pos().row, error.to_string()))
    }

    fn root<'d, 't>(&self, document: &'d Document<'t>, name: &str) -> Result<Node<'d, 't>> {
        let root = document.root_element();
        match root.tag_name().name() == name {
            true => Ok(root),
            false => {
                let found = root.tag_name().name();
                let why = format!("the root is <{found}>, not <{name}>");
                Err(self.bad_at(document, root, why))
            }
        }
    }

    fn attribute<'d>(
        &self,
        document: &Document<'_>,
        node: Node<'d, '_>,
        name: &str,
    ) -> Result<&'d str> {
        node.attribute(name).ok_or_else(|| {
            let why = format!("<{}> has no `{name}`", node.tag_name().name());
            self.bad_at(document, node, why)
        })
    }

    fn number(&self, document: &Document<'_>, node: Node<'_, '_>, name: &str) -> Result<u32> {
        let text = self.attribute(document, node, name)?;
        text.parse()
            .map_err(|_| self.bad_at(document, node, format!("`{name}` is not a number: `{text}`")))
    }

    fn color(&self, document: &Document<'_>, node: Node<'_, '_>, name: &str) -> Result<u32> {
        let text = self.attribute(document, node, name)?;
        let digits = text.strip_prefix('#').filter(|digits| digits.len() == 6);
        digits.and_then(|digits| u32::from_str_radix(digits, 16).ok()).ok_or_else(|| {
            self.bad_at(document, node, format!("`{name}` is not a colour like #204060: `{text}`"))
        })
    }

    fn minute(&self, document: &Document<'_>, node: Node<'_, '_>, name: &str) -> Result<u32> {
        let text = self.attribute(document, node, name)?;
        minute_of(text).ok_or_else(|| {
            let why = format!("`{name}` is not a time like 20260302201500 +0000: `{text}`");
            self.bad_at(document, node, why)
        })
    }

    fn entries(
        &self,
        document: &Document<'_>,
        parent: Node<'_, '_>,
        depth: usize,
    ) -> Result<Vec<Entry>> {
        if depth > DEPTH_MAX {
            let why = format!("menus are nested more than {DEPTH_MAX} deep");
            return Err(self.bad_at(document, parent, why));
        }
        let entry = |node: Node<'_, '_>| {
            Ok(Entry {
                title: self.attribute(document, node, "title")?.to_string(),
                note: node.attribute("note").unwrap_or_default().to_string(),
                icon: icon_number(node.attribute("icon").unwrap_or_default()),
                opens: node.attribute("opens").unwrap_or_default().to_string(),
                entries: self.entries(document, node, depth + 1)?,
            })
        };
        children(parent, "entry").map(entry).collect()
    }

    fn film(&self, document: &Document<'_>, node: Node<'_, '_>) -> Result<Film> {
        let poster = children(node, "poster").next().ok_or_else(|| {
            self.bad_at(document, node, "<film> has no <poster> to draw".to_string())
        })?;
        Ok(Film {
            title: self.text(document, node, "title")?,
            year: self.number(document, node, "year")?,
            minutes: self.number(document, node, "minutes")?,
            genre: self.attribute(document, node, "genre")?.to_string(),
            synopsis: self.text(document, node, "synopsis")?,
            recipe: Recipe {
                colors: [
                    self.color(document, poster, "above")?,
                    self.color(document, poster, "below")?,
                    self.color(document, poster, "accent")?,
                ],
                shape: self.number(document, poster, "shape")?,
                seed: self.number(document, poster, "seed")?,
            },
        })
    }

    fn channels(&self, document: &Document<'_>, root: Node<'_, '_>) -> Result<Vec<Channel>> {
        let mut channels = Vec::new();
        let mut numbers = std::collections::HashMap::new();
        for node in children(root, "channel") {
            let id = self.attribute(document, node, "id")?.to_string();
            numbers.insert(id.clone(), channels.len());
            let name = self.text(document, node, "display-name")?;
            channels.push(Channel { id, name, programmes: Vec::new() });
        }
        for node in children(root, "programme") {
            let id = self.attribute(document, node, "channel")?;
            let channel =
                numbers.get(id).and_then(|at| channels.get_mut(*at)).ok_or_else(|| {
                    self.bad_at(document, node, format!("there is no channel `{id}` above"))
                })?;
            let programme = self.programme(document, node)?;
            channel.programmes.push(programme);
        }
        for channel in &mut channels {
            channel.programmes.sort_by_key(|programme| programme.start);
            // If two programmes overlap, the first one ends when the next begins.
            for at in 1..channel.programmes.len() {
                let next = channel.programmes[at].start;
                let before = &mut channel.programmes[at - 1];
                before.stop = before.stop.min(next);
            }
        }
        Ok(channels)
    }

    fn programme(&self, document: &Document<'_>, node: Node<'_, '_>) -> Result<Programme> {
        let (start, stop) =
            (self.minute(document, node, "start")?, self.minute(document, node, "stop")?);
        if stop <= start {
            return Err(self.bad_at(document, node, "<programme> ends before it begins".into()));
        }
        Ok(Programme {
            title: self.text(document, node, "title")?,
            synopsis: self.text(document, node, "desc")?,
            category: self.text(document, node, "category")?,
            start,
            stop,
        })
    }

    fn text(
        &self,
        document: &Document<'_>,
        node: Node<'_, '_>,
        name: &'static str,
    ) -> Result<String> {
        let child = children(node, name).next().ok_or_else(|| {
            let why = format!("<{}> has no <{name}>", node.tag_name().name());
            self.bad_at(document, node, why)
        })?;
        Ok(child.text().unwrap_or_default().trim().to_string())
    }
}

fn children<'d, 't>(
    node: Node<'d, 't>,
    name: &'static str,
) -> impl Iterator<Item = Node<'d, 't>> + use<'d, 't> {
    node.children().filter(move |child| child.is_element() && child.tag_name().name() == name)
}

/// Names of the icons, in the order of their numbers. An unknown icon is a dot.
pub const ICONS: [&str; 9] =
    ["dot", "tv", "guide", "film", "record", "apps", "settings", "sound", "network"];

fn icon_number(name: &str) -> u32 {
    ICONS.iter().position(|icon| *icon == name).unwrap_or(0) as u32
}
