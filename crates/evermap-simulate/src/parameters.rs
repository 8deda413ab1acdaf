//! Parameters of a profile: names with units, valid values and meanings.
//!
//! A profile has exactly these parameters, so a misspelled name is an error. Sweeps and fits use
//! the same names.

use crate::error::Error;

/// Description of a parameter.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Specification {
    /// Name in a profile: `section.name`, or the field name alone for parameters of devices.
    pub(crate) key: &'static str,
    pub(crate) least: f64,
    pub(crate) most: f64,
    pub(crate) is_whole: bool,
    pub(crate) meaning: &'static str,
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

/// Parameters that every profile has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Key {
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
pub(crate) const SPECIFICATIONS: [(Key, Specification); 17] = [
    (Key::Rate, number("frames.rate_per_s", (0.001, 1e6), "periods per second")),
    (
        Key::Deadline,
        number("frames.deadline_percent", (0.1, 100.0), "deadline as a share of the period"),
    ),
    (Key::Frames, whole("frames.count", (1.0, 1e6), "frames per run")),
    (Key::DecodeMean, number("frames.decode_ms_mean", (0.0, 1e6), "processor time of a frame")),
    (
        Key::DecodeCv,
        number("frames.decode_cv", (0.0, 3.0), "coefficient of variation of the processor time"),
    ),
    (
        Key::ReferencesMean,
        number("frames.references_mean", (0.0, 1e7), "page references per frame"),
    ),
    (
        Key::ReferencesSigma,
        number(
            "frames.references_sigma",
            (0.0, 3.0),
            "standard deviation of the logarithm of the references",
        ),
    ),
    (
        Key::ReferencesCorrelation,
        number(
            "frames.references_correlation",
            (-0.999, 0.999),
            "correlation of that logarithm between consecutive frames",
        ),
    ),
    (
        Key::Footprint,
        whole("frames.footprint_pages", (1.0, 16_777_216.0), "pages of 4 KiB that are referenced"),
    ),
    (
        Key::Capacity,
        number(
            "cache.capacity_percent",
            (0.0, 100.0),
            "size of the cache as a share of the footprint",
        ),
    ),
    (Key::Hit, number("cache.hit_us", (0.0, 1e6), "cost of a reference, hit or miss")),
    (Key::RequestPages, whole("io.request_pages", (1.0, 1e6), "missed pages per read request")),
    (Key::ContextSwitch, number("io.context_switch_us", (0.0, 1e6), "time of a context switch")),
    (Key::Slice, number("io.slice_ms", (0.0, 1e4), "time slice of other programs")),
    (
        Key::Wait,
        number(
            "io.wait_percent",
            (0.0, 100.0),
            "wait for the processor after each request, as a share of a time slice",
        ),
    ),
    (
        Key::Cores,
        whole("cores.count", (1.0, 4_096.0), "number of cores; a nonblocking program holds one"),
    ),
    (
        Key::Background,
        number(
            "background.pages_per_period",
            (0.0, 1e6),
            "pages written to the device by other programs",
        ),
    ),
];

const _: () = {
    let mut place = 0;
    while place < SPECIFICATIONS.len() {
        assert!(
            SPECIFICATIONS[place].0 as usize == place,
            "the specifications must be in the order of `Key`"
        );
        place += 1;
    }
};

impl Key {
    pub(crate) fn specification(self) -> &'static Specification {
        let all: &'static [(Key, Specification)] = &SPECIFICATIONS;
        &all[self as usize].1
    }
}

/// Parameters of a device. Those for stalls are optional. Those for flash must be given together or
/// not at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DeviceKey {
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
const DEVICE_SPECIFICATIONS: [(DeviceKey, Specification); 8] = [
    (DeviceKey::Request, number("read_us_per_request", (0.0, 1e7), "fixed cost of a read request")),
    (DeviceKey::Page, number("read_us_per_page", (0.0, 1e7), "cost of each page of 4 KiB")),
    (
        DeviceKey::StallPercent,
        number("stall_percent", (0.0, 100.0), "share of requests that stall"),
    ),
    (DeviceKey::StallMs, number("stall_ms", (0.0, 1e6), "duration of a stall")),
    (DeviceKey::Program, number("program_us_per_page", (0.0, 1e7), "time to program a page")),
    (DeviceKey::Erase, number("erase_us_per_block", (0.0, 1e7), "time to erase a block")),
    (DeviceKey::BlockPages, whole("block_pages", (1.0, 1e6), "pages per block")),
    (
        DeviceKey::ValidPercent,
        number(
            "valid_percent",
            (0.0, 99.0),
            "share of pages in a collected block that are still valid",
        ),
    ),
];

const _: () = {
    let mut place = 0;
    while place < DEVICE_SPECIFICATIONS.len() {
        assert!(
            DEVICE_SPECIFICATIONS[place].0 as usize == place,
            "the specifications must be in the order of `DeviceKey`"
        );
        place += 1;
    }
};

impl DeviceKey {
    /// Parameters that make a device flash.
    pub(crate) const FLASH: [DeviceKey; 4] =
        [DeviceKey::Program, DeviceKey::Erase, DeviceKey::BlockPages, DeviceKey::ValidPercent];

    pub(crate) fn specification(self) -> &'static Specification {
        let all: &'static [(DeviceKey, Specification)] = &DEVICE_SPECIFICATIONS;
        &all[self as usize].1
    }

    /// Returns the full name for a device.
    pub(crate) fn of(self, device: &str) -> String {
        format!("devices.{device}.{}", self.specification().key)
    }
}

/// Short names of the most used parameters.
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
    /// Checks that the parameter with this full name can have this value.
    pub(crate) fn check(&self, name: &str, value: f64) -> Result<(), Error> {
        let is_within = value >= self.least && value <= self.most;
        if is_within && (!self.is_whole || value == value.trunc()) {
            return Ok(());
        }
        let kind = if self.is_whole { "a whole number" } else { "a number" };
        let why =
            format!("it must be {kind} from {} to {} ({})", self.least, self.most, self.meaning);
        Err(Error::InvalidValue { key: name.into(), value: value.to_string(), why })
    }
}

/// Resolves a short name.
pub(crate) fn full_name(name: &str) -> &str {
    ALIASES.iter().find(|(short, _)| *short == name).map_or(name, |(_, full)| full)
}

/// Returns the specification of the parameter with this full name.
pub(crate) fn specification(name: &str) -> Result<&'static Specification, Error> {
    let found = match split_device_key(name) {
        Some((_, field)) => {
            DEVICE_SPECIFICATIONS.iter().map(|(_, of)| of).find(|of| of.key == field)
        }
        None => SPECIFICATIONS.iter().map(|(_, of)| of).find(|of| of.key == name),
    };
    found.ok_or_else(|| Error::UnknownKey { key: name.into(), remedy: similar_names(name) })
}

/// Splits `devices.NAME.FIELD` into name and field.
pub(crate) fn split_device_key(name: &str) -> Option<(&str, &str)> {
    name.strip_prefix("devices.")?.rsplit_once('.')
}

fn similar_names(name: &str) -> String {
    if name.starts_with("devices.") {
        let fields: Vec<&str> = DEVICE_SPECIFICATIONS.iter().map(|(_, of)| of.key).collect();
        return format!(
            "a device parameter is `devices.NAME.` followed by one of {}",
            fields.join(", ")
        );
    }
    let section = name.split_once('.').map(|(section, _)| section);
    let in_section: Vec<&str> = SPECIFICATIONS
        .iter()
        .map(|(_, of)| of.key)
        .filter(|key| section.is_some_and(|section| key.split('.').next() == Some(section)))
        .collect();
    if in_section.is_empty() {
        "the sections are frames, cache, io, cores, background and devices.NAME; print a built-in profile to see all parameters"
            .into()
    } else {
        format!("this section has {}", in_section.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_names_resolve_to_parameters() {
        for (short, full) in ALIASES {
            assert_eq!(specification(full_name(short)).unwrap().key, full);
        }
    }

    #[test]
    fn an_unknown_name_is_reported_with_similar_names() {
        let error = specification("io.wait_percnt").unwrap_err().to_string();
        assert!(error.contains("`io.wait_percnt`") && error.contains("io.wait_percent"), "{error}");
        let error = specification("devices.nand.read").unwrap_err().to_string();
        assert!(error.contains("read_us_per_page"), "{error}");
    }

    #[test]
    fn invalid_values_are_refused_by_name() {
        let of = specification("cache.capacity_percent").unwrap();
        for value in [-1.0, 100.1, f64::NAN, f64::INFINITY] {
            let error = of.check("cache.capacity_percent", value).unwrap_err().to_string();
            assert!(error.contains("cache.capacity_percent"), "{error}");
        }
        assert!(specification("frames.count").unwrap().check("frames.count", 1.5).is_err());
    }
}
