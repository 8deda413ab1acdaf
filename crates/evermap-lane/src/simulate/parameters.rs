//! What can be said in a profile: each parameter's name with its unit, what it can be, and what it means.
//!
//! A profile is these and no others, so that a misspelt one is an error; sweeps and fits go by the same names.

use super::Error;

/// What a parameter is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Specification {
    /// As in a profile: section, dot, name; the field's name alone for those of devices.
    pub(super) key: &'static str,
    pub(super) least: f64,
    pub(super) most: f64,
    pub(super) is_whole: bool,
    pub(super) meaning: &'static str,
}

const fn of(
    key: &'static str,
    (least, most): (f64, f64),
    is_whole: bool,
    meaning: &'static str,
) -> Specification {
    Specification { key, least, most, is_whole, meaning }
}

const NUMBER: bool = false;
const WHOLE: bool = true;

/// Those of every profile; [`Key`] is the place in it.
pub(super) const SPECIFICATIONS: [Specification; 17] = [
    of("frames.rate_per_s", (0.001, 1e6), NUMBER, "periods in a second"),
    of("frames.deadline_percent", (0.1, 100.0), NUMBER, "the deadline, of the period"),
    of("frames.count", (1.0, 1e6), WHOLE, "frames of a run"),
    of("frames.decode_ms_mean", (0.0, 1e6), NUMBER, "processor time of a frame"),
    of("frames.decode_cv", (0.0, 3.0), NUMBER, "its deviation, of its mean"),
    of("frames.references_mean", (0.0, 1e7), NUMBER, "references to pages in a frame"),
    of("frames.references_sigma", (0.0, 3.0), NUMBER, "deviation of their logarithm"),
    of(
        "frames.references_correlation",
        (-0.999, 0.999),
        NUMBER,
        "of that logarithm with the frame's before",
    ),
    of(
        "frames.footprint_pages",
        (1.0, 16_777_216.0),
        WHOLE,
        "pages of 4 KiB that references go to",
    ),
    of(
        "cache.capacity_percent",
        (0.0, 100.0),
        NUMBER,
        "pages that the cache holds, of the footprint",
    ),
    of("cache.hit_us", (0.0, 1e6), NUMBER, "of a reference, whether it hits or misses"),
    of("io.request_pages", (1.0, 1e6), WHOLE, "missed pages that are read at once"),
    of("io.context_switch_us", (0.0, 1e6), NUMBER, "from one program to another"),
    of("io.slice_ms", (0.0, 1e4), NUMBER, "the time slice of other programs"),
    of(
        "io.wait_percent",
        (0.0, 100.0),
        NUMBER,
        "of a slice, waited for the processor after each request",
    ),
    of(
        "cores.count",
        (1.0, 4_096.0),
        WHOLE,
        "cores, of which the program holds one while it doesn't block",
    ),
    of("background.pages_per_period", (0.0, 1e6), NUMBER, "pages that others write to the device"),
];

/// Where a parameter stands in [`SPECIFICATIONS`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Key {
    Rate,
    Deadline,
    Frames,
    DecodeMean,
    DecodeCv,
    ReferencesMean,
    ReferencesSigma,
    ReferencesCorrelation,
    Footprint,
    Capacity,
    Hit,
    RequestPages,
    ContextSwitch,
    Slice,
    Wait,
    Cores,
    Background,
}

/// Those of a device, after `devices.NAME.`; the last four are for flash, all or none.
pub(super) const OF_DEVICES: [Specification; 8] = [
    of("read_us_per_request", (0.0, 1e7), NUMBER, "of a request, whatever its size"),
    of("read_us_per_page", (0.0, 1e7), NUMBER, "of each page of 4 KiB"),
    of("stall_percent", (0.0, 100.0), NUMBER, "requests that the device keeps waiting"),
    of("stall_ms", (0.0, 1e6), NUMBER, "how long it does"),
    of("program_us_per_page", (0.0, 1e7), NUMBER, "to write a page"),
    of("erase_us_per_block", (0.0, 1e7), NUMBER, "to erase a block"),
    of("block_pages", (1.0, 1e6), WHOLE, "pages of a block"),
    of("valid_percent", (0.0, 99.0), NUMBER, "pages of a collected block that are still needed"),
];
/// Where those for flash begin.
pub(super) const OF_FLASH: usize = 4;

/// Shorter names for what is changed most.
const ALIASES: [(&str, &str); 10] = [
    ("capacity", "cache.capacity_percent"),
    ("wait", "io.wait_percent"),
    ("frames", "frames.count"),
    ("rate", "frames.rate_per_s"),
    ("decode", "frames.decode_ms_mean"),
    ("references", "frames.references_mean"),
    ("slice", "io.slice_ms"),
    ("request", "io.request_pages"),
    ("background", "background.pages_per_period"),
    ("cores", "cores.count"),
];

impl Specification {
    /// Whether the parameter of this name, in full, can be this.
    pub(super) fn check(&self, name: &str, value: f64) -> Result<(), Error> {
        let is_within = value >= self.least && value <= self.most;
        if is_within && (!self.is_whole || value == value.trunc()) {
            return Ok(());
        }
        let kind = if self.is_whole { "a whole number" } else { "a number" };
        let why = format!("it is {kind} from {} to {} ({})", self.least, self.most, self.meaning);
        Err(Error::Impossible { key: name.into(), value: value.to_string(), why })
    }
}

/// The full name of what may be said shortly.
pub(super) fn full_name(name: &str) -> &str {
    ALIASES.iter().find(|(short, _)| *short == name).map_or(name, |(_, full)| full)
}

/// What the parameter of this full name is.
pub(super) fn specification(name: &str) -> Result<&'static Specification, Error> {
    let found = match of_device(name) {
        Some((_, field)) => OF_DEVICES.iter().find(|of| of.key == field),
        None => SPECIFICATIONS.iter().find(|of| of.key == name),
    };
    found.ok_or_else(|| Error::UnknownKey { key: name.into(), remedy: names_like(name) })
}

/// `devices.NAME.FIELD`, taken apart.
pub(super) fn of_device(name: &str) -> Option<(&str, &str)> {
    name.strip_prefix("devices.")?.rsplit_once('.')
}

fn names_like(name: &str) -> String {
    if name.starts_with("devices.") {
        let fields: Vec<&str> = OF_DEVICES.iter().map(|of| of.key).collect();
        return format!("a device is `devices.NAME.` and one of {}", fields.join(", "));
    }
    let section = name.split_once('.').map(|(section, _)| section);
    let in_section: Vec<&str> = SPECIFICATIONS
        .iter()
        .map(|of| of.key)
        .filter(|key| section.is_some_and(|section| key.split('.').next() == Some(section)))
        .collect();
    if in_section.is_empty() {
        "sections are frames, cache, io, cores, background and devices.NAME; a built-in profile shows them all"
            .into()
    } else {
        format!("there are {}", in_section.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_stand_where_they_say() {
        let at = |key: Key| SPECIFICATIONS[key as usize].key;
        assert_eq!(at(Key::Rate), "frames.rate_per_s");
        assert_eq!(at(Key::Footprint), "frames.footprint_pages");
        assert_eq!(at(Key::Wait), "io.wait_percent");
        assert_eq!(at(Key::Background), "background.pages_per_period");
        assert_eq!(OF_DEVICES[OF_FLASH].key, "program_us_per_page");
    }

    #[test]
    fn short_names_lead_to_parameters() {
        for (short, full) in ALIASES {
            assert_eq!(specification(full_name(short)).unwrap().key, full);
        }
    }

    #[test]
    fn an_unknown_name_is_told_with_those_beside_it() {
        let error = specification("io.wait_percnt").unwrap_err().to_string();
        assert!(error.contains("`io.wait_percnt`") && error.contains("io.wait_percent"), "{error}");
        let error = specification("devices.nand.read").unwrap_err().to_string();
        assert!(error.contains("read_us_per_page"), "{error}");
    }

    #[test]
    fn what_cannot_be_is_refused_by_name() {
        let of = specification("cache.capacity_percent").unwrap();
        for value in [-1.0, 100.1, f64::NAN, f64::INFINITY] {
            let error = of.check("cache.capacity_percent", value).unwrap_err().to_string();
            assert!(error.contains("cache.capacity_percent"), "{error}");
        }
        assert!(specification("frames.count").unwrap().check("frames.count", 1.5).is_err());
    }
}
