//! Writes the files of an invented user interface: equal seeds give equal bytes on every machine.

use std::fmt::Write as _;
use std::path::Path;

use crate::contents::FILES;
use crate::error::{Result, TvError};

/// Amount of contents to write.
#[derive(Clone, Copy, Debug)]
pub struct Amounts {
    /// Seed of the random choices.
    pub seed: u64,
    /// Number of programmes in the guide.
    pub programmes: usize,
    /// Number of channels.
    pub channels: usize,
    /// Number of films with a poster.
    pub films: usize,
}

impl Default for Amounts {
    fn default() -> Self {
        Amounts { seed: 1, programmes: 10_000, channels: 56, films: 320 }
    }
}

/// Writes the files into a directory, which is created if necessary.
///
/// # Errors
/// If the files can't be written.
pub fn generate(directory: &Path, amounts: Amounts) -> Result<()> {
    let remedy = "name a directory that can be written";
    std::fs::create_dir_all(directory).map_err(TvError::file(directory, remedy))?;
    let mut dice = Dice(amounts.seed);
    let texts = [menu(), posters(&mut dice, amounts), guide(&mut dice, amounts)];
    for (name, text) in FILES.iter().zip(texts) {
        let file = directory.join(name);
        std::fs::write(&file, text).map_err(TvError::file(&file, remedy))?;
    }
    Ok(())
}

/// Linear congruential generator: good enough for prose, and the same everywhere.
struct Dice(u64);

impl Dice {
    fn below(&mut self, limit: usize) -> usize {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) as usize) % limit.max(1)
    }

    fn pick<'a>(&mut self, words: &[&'a str]) -> &'a str {
        words[self.below(words.len())]
    }
}

const HEADER: &str = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n";

fn menu() -> String {
    format!(
        "{HEADER}<menu>
  <entry title=\"Home\" icon=\"tv\" opens=\"home\" note=\"Evening selection\"/>
  <entry title=\"Guide\" icon=\"guide\" opens=\"guide\" note=\"All channels, seven days\"/>
  <entry title=\"Films\" icon=\"film\" opens=\"posters\" note=\"The whole collection\"/>
  <entry title=\"Recordings\" icon=\"record\" note=\"What was kept for later\">
    <entry title=\"Planned\" icon=\"guide\" note=\"3 recordings this week\"/>
    <entry title=\"Recorded\" icon=\"record\" note=\"41 hours, 212 GB are free\"/>
    <entry title=\"Series\" icon=\"film\" note=\"New episodes are recorded by themselves\"/>
  </entry>
  <entry title=\"Settings\" icon=\"settings\" note=\"Picture, sound, network\">
    <entry title=\"Picture\" icon=\"tv\" note=\"Brightness, colours, motion\">
      <entry title=\"Brightness\" icon=\"tv\" note=\"60 of 100\"/>
      <entry title=\"Colour temperature\" icon=\"tv\" note=\"Warm\"/>
      <entry title=\"Smooth motion\" icon=\"tv\" note=\"Off\"/>
      <entry title=\"Picture format\" icon=\"tv\" note=\"As broadcast\"/>
    </entry>
    <entry title=\"Sound\" icon=\"sound\" note=\"Loudness, speakers, voices\">
      <entry title=\"Night mode\" icon=\"sound\" note=\"From 22:00\"/>
      <entry title=\"Clear voices\" icon=\"sound\" note=\"On\"/>
      <entry title=\"Speakers\" icon=\"sound\" note=\"Built in\"/>
    </entry>
    <entry title=\"Network\" icon=\"network\" note=\"Connected by cable\">
      <entry title=\"Connection\" icon=\"network\" note=\"Cable, 1 Gbit/s\"/>
      <entry title=\"Wake by network\" icon=\"network\" note=\"Off\"/>
    </entry>
    <entry title=\"Channels\" icon=\"guide\" note=\"56 channels in your order\"/>
    <entry title=\"Language\" icon=\"apps\" note=\"English\"/>
    <entry title=\"About\" icon=\"dot\" note=\"Version and licences\"/>
  </entry>
</menu>
"
    )
}

const NOUNS: &[&str] = &[
    "Lighthouse",
    "Orchard",
    "Lantern",
    "Glacier",
    "Violin",
    "Compass",
    "Harvest",
    "Meadow",
    "Ferry",
    "Winter",
    "Bridge",
    "Sparrow",
    "Island",
    "Clockmaker",
    "Observatory",
    "Tide",
    "Carousel",
    "Atlas",
    "Garden",
    "Signal",
    "Kite",
    "Quarry",
    "Balloon",
    "Archive",
];
const ADJECTIVES: &[&str] = &[
    "Silent", "Last", "Crooked", "Golden", "Distant", "Patient", "Borrowed", "Northern", "Paper",
    "Hidden", "Second", "Slow", "Midnight", "Amber",
];
const FIRST: &[&str] = &[
    "Ada", "Bruno", "Clara", "Dario", "Edda", "Felix", "Greta", "Henrik", "Ines", "Jon", "Karla",
    "Luis", "Mira", "Nora", "Otto", "Pia",
];
const PEOPLE: &[&str] = &[
    "a retired captain",
    "two sisters",
    "a village teacher",
    "the night porter",
    "a young botanist",
    "an honest thief",
    "three old friends",
    "a radio engineer",
    "the mayor's daughter",
    "a piano tuner",
];
const DOES: &[&str] = &[
    "finds a letter that was never sent",
    "repairs what nobody wanted back",
    "misses the last train",
    "inherits a house full of clocks",
    "follows a river to its spring",
    "builds a boat in a barn",
    "learns to listen",
    "hides a secret in plain sight",
];
const PLACES: &[&str] = &[
    "on an island without a harbour",
    "in a town between two hills",
    "during the longest night",
    "while the snow keeps falling",
    "in the summer before the dam",
    "at the edge of the marsh",
    "far from everything on the map",
    "above the roofs of the old city",
];
const GENRES: &[&str] = &["Drama", "Comedy", "Adventure", "Mystery", "Documentary", "Family"];
/// Colours above, below and of accents: evening colours with legible white text.
const PALETTES: &[[&str; 3]] = &[
    ["#1f3a5f", "#0d1b2e", "#e8b26a"],
    ["#4a2f4d", "#1d1326", "#e99a7a"],
    ["#1e4d4a", "#0c2224", "#d9d08a"],
    ["#5a3a2a", "#22140f", "#f0c48a"],
    ["#2d3561", "#12152c", "#c7a6e0"],
    ["#3c4a35", "#161d14", "#e3d9a8"],
    ["#5c2e3a", "#241017", "#f2b8a0"],
    ["#27495c", "#0e1d27", "#9fd3c7"],
    ["#4b4458", "#1b1822", "#e6c3d2"],
    ["#64513a", "#251c13", "#f3dba5"],
];

fn film_title(dice: &mut Dice) -> String {
    let (noun, other) = (dice.pick(NOUNS), dice.pick(NOUNS));
    let adjective = dice.pick(ADJECTIVES);
    match dice.below(6) {
        0 => format!("The {adjective} {noun}"),
        1 => format!("{noun} and {other}"),
        2 => {
            let article = if noun.starts_with(['A', 'I', 'O']) { "An" } else { "A" };
            format!("{article} {noun} for {}", dice.pick(FIRST))
        }
        3 => format!("{}'s {noun}", dice.pick(FIRST)),
        4 => format!("Beyond the {noun}"),
        _ => format!("{adjective} {noun}"),
    }
}

fn sentence(dice: &mut Dice) -> String {
    let who = dice.pick(PEOPLE);
    let does = if who.starts_with("two") || who.starts_with("three") {
        "set out together to repair what was broken"
    } else {
        dice.pick(DOES)
    };
    let mut text = format!("{who} {does} {}.", dice.pick(PLACES));
    if let Some(first) = text.get_mut(..1) {
        first.make_ascii_uppercase();
    }
    text
}

fn posters(dice: &mut Dice, amounts: Amounts) -> String {
    let mut out = format!("{HEADER}<posters>\n");
    for _ in 0..amounts.films {
        let [above, below, accent] = PALETTES[dice.below(PALETTES.len())];
        let (title, genre) = (film_title(dice), dice.pick(GENRES));
        let (year, minutes) = (1962 + dice.below(63), 74 + dice.below(70));
        let (shape, seed) = (dice.below(6), dice.below(100_000));
        let synopsis = format!("{} {}", sentence(dice), sentence(dice));
        _ = writeln!(
            out,
            "  <film year=\"{year}\" minutes=\"{minutes}\" genre=\"{genre}\">\n    \
             <title>{title}</title>\n    <synopsis>{synopsis}</synopsis>\n    \
             <poster above=\"{above}\" below=\"{below}\" accent=\"{accent}\" shape=\"{shape}\" \
             seed=\"{seed}\"/>\n  </film>"
        );
    }
    out + "</posters>\n"
}

const CHANNELS: &[&str] = &[
    "One", "Two", "Three", "Meadow", "Harbour", "Coast", "Valley", "Summit", "Cinema", "Classics",
    "Nature", "Science", "History", "Kids", "Music", "Stage", "News", "Sport",
];
const CATEGORIES: &[&str] =
    &["Film", "Series", "News", "Documentary", "Music", "Sport", "Children", "Talk"];

fn programme_title(dice: &mut Dice, category: &str) -> String {
    let (noun, name) = (dice.pick(NOUNS), dice.pick(FIRST));
    match category {
        "Film" => film_title(dice),
        "Series" => format!("{} {name}", dice.pick(&["Doctor", "Inspector", "Captain", "Our"])),
        "News" => dice.pick(&["News", "The Day in Brief", "Regional News", "Weather"]).to_string(),
        "Documentary" => format!("{} of the {noun}", dice.pick(&["Secrets", "Stories", "Makers"])),
        "Music" => format!("{} {}", noun, dice.pick(&["Sessions", "Concert", "Orchestra"])),
        "Sport" => format!("{} {}", noun, dice.pick(&["Cup", "League", "Trophy"])),
        "Children" => format!("{name} and the {noun}"),
        _ => format!("{} with {name}", dice.pick(&["Late", "At Table", "An Hour", "Talking"])),
    }
}

/// Start at 05:00 on 2 March 2026, a Monday; the examples' current time is that evening.
const FIRST_HOUR: usize = 5;
const NOW: &str = "20260302201700 +0000";

fn stamp(minute: usize) -> String {
    let minute = minute + FIRST_HOUR * 60;
    // A guide has at most some weeks, so two months are enough.
    let day = minute / 1440 + 2;
    let (month, day) = if day > 31 { (4, day - 31) } else { (3, day) };
    format!("2026{month:02}{day:02}{:02}{:02}00 +0000", minute / 60 % 24, minute % 60)
}

fn guide(dice: &mut Dice, amounts: Amounts) -> String {
    let channels = amounts.channels.clamp(1, 999);
    let mut out = format!("{HEADER}<tv now=\"{NOW}\">\n");
    for number in 0..channels {
        let name = CHANNELS[number % CHANNELS.len()];
        let name = match number / CHANNELS.len() {
            0 => name.to_string(),
            round => format!("{name} {}", ["HD", "Extra", "Plus"][(round - 1) % 3]),
        };
        let number = number + 1;
        _ = writeln!(
            out,
            "  <channel id=\"{number}\"><display-name>{name}</display-name></channel>"
        );
    }
    for channel in 0..channels {
        let count =
            amounts.programmes / channels + usize::from(channel < amounts.programmes % channels);
        let mut minute = 0;
        for _ in 0..count {
            let length = [15, 30, 30, 45, 45, 60, 60, 75, 90, 105][dice.below(10)];
            let category = dice.pick(CATEGORIES);
            let title = programme_title(dice, category);
            let synopsis = format!("{} {}", sentence(dice), sentence(dice));
            let (start, stop) = (stamp(minute), stamp(minute + length));
            let id = channel + 1;
            _ = writeln!(
                out,
                "  <programme channel=\"{id}\" start=\"{start}\" stop=\"{stop}\">\n    \
                 <title>{title}</title>\n    <desc>{synopsis}</desc>\n    \
                 <category>{category}</category>\n  </programme>"
            );
            minute += length;
        }
    }
    out + "</tv>\n"
}
