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

const fn number(
    key: &'static str,
    (least, most): (f64, f64),
    meaning: &'static str,
) -> Specification {
    Specification { key, least, most, is_whole: false, meaning }
}

const fn whole(
    key: &'static str,
    (least, most): (f64, f64),
    meaning: &'static str,
) -> Specification {
    Specification { key, least, most, is_whole: true, meaning }
}

/// A parameter that every profile has.
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

/// In the order of [`Key`].
pub(super) const SPECIFICATIONS: [(Key, Specification); 17] = [
    (Key::Rate, number("frames.rate_per_s", (0.001, 1e6), "periods in a second")),
    (Key::Deadline, number("frames.deadline_percent", (0.1, 100.0), "the deadline, of the period")),
    (Key::Frames, whole("frames.count", (1.0, 1e6), "frames of a run")),
    (Key::DecodeMean, number("frames.decode_ms_mean", (0.0, 1e6), "processor time of a frame")),
    (Key::DecodeCv, number("frames.decode_cv", (0.0, 3.0), "its deviation, of its mean")),
    (
        Key::ReferencesMean,
        number("frames.references_mean", (0.0, 1e7), "references to pages in a frame"),
    ),
    (
        Key::ReferencesSigma,
        number("frames.references_sigma", (0.0, 3.0), "deviation of their logarithm"),
    ),
    (
        Key::ReferencesCorrelation,
        number(
            "frames.references_correlation",
            (-0.999, 0.999),
            "of that logarithm with the frame's before",
        ),
    ),
    (
        Key::Footprint,
        whole(
            "frames.footprint_pages",
            (1.0, 16_777_216.0),
            "pages of 4 KiB that references go to",
        ),
    ),
    (
        Key::Capacity,
        number(
            "cache.capacity_percent",
            (0.0, 100.0),
            "pages that the cache holds, of the footprint",
        ),
    ),
    (Key::Hit, number("cache.hit_us", (0.0, 1e6), "of a reference, whether it hits or misses")),
    (
        Key::RequestPages,
        whole("io.request_pages", (1.0, 1e6), "missed pages that are read at once"),
    ),
    (Key::ContextSwitch, number("io.context_switch_us", (0.0, 1e6), "from one program to another")),
    (Key::Slice, number("io.slice_ms", (0.0, 1e4), "the time slice of other programs")),
    (
        Key::Wait,
        number(
            "io.wait_percent",
            (0.0, 100.0),
            "of a slice, waited for the processor after each request",
        ),
    ),
    (
        Key::Cores,
        whole(
            "cores.count",
            (1.0, 4_096.0),
            "cores, of which the program holds one while it doesn't block",
        ),
    ),
    (
        Key::Background,
        number("background.pages_per_period", (0.0, 1e6), "pages that others write to the device"),
    ),
];

const _: () = {
    let mut place = 0;
    while place < SPECIFICATIONS.len() {
        assert!(SPECIFICATIONS[place].0 as usize == place, "they stand in the order of `Key`");
        place += 1;
    }
};

impl Key {
    pub(super) fn specification(self) -> &'static Specification {
        let all: &'static [(Key, Specification)] = &SPECIFICATIONS;
        &all[self as usize].1
    }
}

/// A parameter of a device. Stalls may be left out; what makes it flash is there whole or not at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DeviceKey {
    Request,
    Page,
    StallPercent,
    StallMs,
    Program,
    Erase,
    BlockPages,
    ValidPercent,
}

/// In the order of [`DeviceKey`].
const OF_DEVICES: [(DeviceKey, Specification); 8] = [
    (
        DeviceKey::Request,
        number("read_us_per_request", (0.0, 1e7), "of a request, whatever its size"),
    ),
    (DeviceKey::Page, number("read_us_per_page", (0.0, 1e7), "of each page of 4 KiB")),
    (
        DeviceKey::StallPercent,
        number("stall_percent", (0.0, 100.0), "requests that the device keeps waiting"),
    ),
    (DeviceKey::StallMs, number("stall_ms", (0.0, 1e6), "how long it does")),
    (DeviceKey::Program, number("program_us_per_page", (0.0, 1e7), "to write a page")),
    (DeviceKey::Erase, number("erase_us_per_block", (0.0, 1e7), "to erase a block")),
    (DeviceKey::BlockPages, whole("block_pages", (1.0, 1e6), "pages of a block")),
    (
        DeviceKey::ValidPercent,
        number("valid_percent", (0.0, 99.0), "pages of a collected block that are still needed"),
    ),
];

const _: () = {
    let mut place = 0;
    while place < OF_DEVICES.len() {
        assert!(OF_DEVICES[place].0 as usize == place, "they stand in the order of `DeviceKey`");
        place += 1;
    }
};

impl DeviceKey {
    /// Those that make a device flash.
    pub(super) const OF_FLASH: [DeviceKey; 4] =
        [DeviceKey::Program, DeviceKey::Erase, DeviceKey::BlockPages, DeviceKey::ValidPercent];

    pub(super) fn specification(self) -> &'static Specification {
        let all: &'static [(DeviceKey, Specification)] = &OF_DEVICES;
        &all[self as usize].1
    }

    /// Its full name, of the device of this name.
    pub(super) fn of(self, device: &str) -> String {
        format!("devices.{device}.{}", self.specification().key)
    }
}

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
        Some((_, field)) => OF_DEVICES.iter().map(|(_, of)| of).find(|of| of.key == field),
        None => SPECIFICATIONS.iter().map(|(_, of)| of).find(|of| of.key == name),
    };
    found.ok_or_else(|| Error::UnknownKey { key: name.into(), remedy: names_like(name) })
}

/// `devices.NAME.FIELD`, taken apart.
pub(super) fn of_device(name: &str) -> Option<(&str, &str)> {
    name.strip_prefix("devices.")?.rsplit_once('.')
}

fn names_like(name: &str) -> String {
    if name.starts_with("devices.") {
        let fields: Vec<&str> = OF_DEVICES.iter().map(|(_, of)| of.key).collect();
        return format!("a device is `devices.NAME.` and one of {}", fields.join(", "));
    }
    let section = name.split_once('.').map(|(section, _)| section);
    let in_section: Vec<&str> = SPECIFICATIONS
        .iter()
        .map(|(_, of)| of.key)
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
