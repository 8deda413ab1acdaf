//! Profile: the parameters of a program and its machine, each with its unit and source.
//!
//! A profile is a text file. It sets the default device and mode of a simulation, and says for each
//! value whether it was measured, published or fitted. Parsing validates everything, so every
//! `Profile` can be simulated.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use toml::{Table, Value};

use crate::device::{Device, Flash, ReadCost};
use crate::error::Error;
use crate::mode::Mode;
use crate::parameters::{
    DeviceKey, Key, SPECIFICATIONS, full_name, specification, split_device_key,
};

/// Built-in profiles: name and text.
pub const PROFILES: [(&str, &str); 2] = [
    ("bahn2019", include_str!("profiles/bahn2019.toml")),
    ("measured", include_str!("profiles/measured.toml")),
];

/// Limits well above the needs of any profile.
const TEXT_BYTES_MAX: usize = 1 << 20;
const DEVICES_MAX: usize = 64;

/// Value with its source.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Parameter {
    /// Value, in the unit in which the parameter's name ends.
    pub value: f64,
    /// Source of the value.
    pub source: String,
    /// True if the value was chosen to reproduce published results.
    #[serde(default)]
    pub fitted: bool,
}

/// Parameters of a program and its machine.
///
/// ```
/// use evermap_simulate::Profile;
///
/// let mut profile = Profile::built_in("bahn2019")?;
/// profile.set("capacity", 70.0)?;
/// profile.set("devices.nand.read_us_per_page", 40.0)?;
/// assert!(profile.set("capacity", 170.0).is_err());
/// let again: Profile = profile.to_toml().parse()?;
/// assert_eq!(again, profile);
/// # Ok::<(), evermap_simulate::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Profile {
    name: String,
    about: String,
    mode: Mode,
    device: String,
    parameters: BTreeMap<String, Parameter>,
}

impl Profile {
    /// Returns a built-in profile.
    ///
    /// # Errors
    ///
    /// No built-in profile has this name.
    pub fn built_in(name: &str) -> Result<Self, Error> {
        let found = PROFILES.iter().find(|(known, _)| *known == name);
        let Some((_, text)) = found else {
            let known = PROFILES.map(|(known, _)| format!("`{known}`")).join(" and ");
            return Err(Error::UnknownProfile { name: name.into(), known });
        };
        text.parse()
    }

    /// Returns the name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns a description in one or two sentences.
    pub fn about(&self) -> &str {
        &self.about
    }

    /// Returns the default mode.
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// Returns the name of the default device.
    pub fn device(&self) -> &str {
        &self.device
    }

    /// Returns the names of all devices.
    pub fn devices(&self) -> Vec<String> {
        let names = self.parameters.keys().filter_map(|key| split_device_key(key));
        let names: BTreeSet<&str> = names.map(|(name, _)| name).collect();
        names.into_iter().map(str::to_string).collect()
    }

    /// Returns all parameters with their names.
    pub fn parameters(&self) -> impl Iterator<Item = (&str, &Parameter)> {
        self.parameters.iter().map(|(key, parameter)| (key.as_str(), parameter))
    }

    /// Returns a parameter by its full name or a short name such as `capacity`.
    pub fn get(&self, name: &str) -> Option<&Parameter> {
        self.parameters.get(full_name(name))
    }

    /// Sets a parameter. Its source becomes "set for this run".
    ///
    /// # Errors
    ///
    /// No such parameter exists, or the value is invalid.
    pub fn set(&mut self, name: &str, value: f64) -> Result<(), Error> {
        self.put(name, Parameter { value, source: "set for this run".into(), fitted: false })
    }

    /// Like [`set`](Self::set), with the given source.
    pub(crate) fn put(&mut self, name: &str, parameter: Parameter) -> Result<(), Error> {
        let key = full_name(name);
        specification(key)?.check(key, parameter.value)?;
        if let Some((device, _)) = split_device_key(key) {
            self.check_device(device)?;
        }
        self.parameters.insert(key.into(), parameter);
        Ok(())
    }

    /// Returns the device of this name.
    ///
    /// # Errors
    ///
    /// The device does not exist, lacks a parameter, or would collect garbage all the time.
    pub fn device_of(&self, name: &str) -> Result<Device, Error> {
        self.check_device(name)?;
        let value_of = |key: DeviceKey| self.parameters.get(&key.of(name)).map(|found| found.value);
        let needed = |key: DeviceKey| {
            let meaning = key.specification().meaning;
            value_of(key).ok_or_else(|| Error::MissingKey { key: key.of(name), meaning })
        };
        let read_cost = ReadCost {
            request_us: needed(DeviceKey::Request)?,
            page_us: needed(DeviceKey::Page)?,
            stall_percent: value_of(DeviceKey::StallPercent).unwrap_or(0.0),
            stall_ms: value_of(DeviceKey::StallMs).unwrap_or(0.0),
        };
        let flash = match DeviceKey::FLASH.into_iter().any(|key| value_of(key).is_some()) {
            true => Some(Flash {
                program_us: needed(DeviceKey::Program)?,
                erase_us: needed(DeviceKey::Erase)?,
                block_pages: needed(DeviceKey::BlockPages)?,
                valid_percent: needed(DeviceKey::ValidPercent)?,
            }),
            false => None,
        };
        let pages_per_ms = self.value(Key::Background) * self.value(Key::Rate) / 1e3;
        Device::of(read_cost, flash, pages_per_ms).map_err(|why| {
            let value = self.value(Key::Background).to_string();
            Error::InvalidValue { key: "background.pages_per_period".into(), value, why }
        })
    }

    fn check_device(&self, name: &str) -> Result<(), Error> {
        let known = self.devices();
        if known.iter().any(|device| device == name) {
            return Ok(());
        }
        Err(Error::UnknownDevice { name: name.into(), profile: self.name.clone(), known })
    }

    /// Returns the value of a parameter that every profile has.
    pub(crate) fn value(&self, key: Key) -> f64 {
        let found = self.parameters.get(key.specification().key);
        debug_assert!(found.is_some(), "a profile always has all parameters");
        found.map_or(0.0, |parameter| parameter.value)
    }

    pub(crate) fn renamed(mut self, name: String, about: String) -> Self {
        (self.name, self.about) = (name, about);
        self
    }

    /// Formats the profile as TOML. Parsing the text gives an equal profile.
    pub fn to_toml(&self) -> String {
        let quoted = |text: &str| Value::String(text.into()).to_string();
        let mut text = format!(
            "name = {}\nabout = {}\nmode = {}\ndevice = {}\n",
            quoted(&self.name),
            quoted(&self.about),
            quoted(self.mode.name()),
            quoted(&self.device)
        );
        let mut section = "";
        let in_order = SPECIFICATIONS.iter().map(|(_, of)| of.key);
        let of_devices = self.parameters.keys().map(String::as_str);
        let mut of_devices: Vec<&str> =
            of_devices.filter(|key| split_device_key(key).is_some()).collect();
        // Sort by device name: by full key, device `a.b` would come between the parameters of
        // device `a`.
        of_devices
            .sort_unstable_by(|one, other| split_device_key(one).cmp(&split_device_key(other)));
        for key in in_order.chain(of_devices) {
            let (Some(parameter), Some((of, field))) =
                (self.parameters.get(key), key.rsplit_once('.'))
            else {
                continue;
            };
            if of != section {
                section = of;
                let _ = write!(text, "\n[{}]\n", quoted_parts(section));
            }
            let value = Value::Float(parameter.value);
            let fitted = if parameter.fitted { ", fitted = true" } else { "" };
            let source = quoted(&parameter.source);
            let _ = writeln!(text, "{field} = {{ value = {value}, source = {source}{fitted} }}");
        }
        text
    }
}

/// Quotes the device name in a section, as in `devices."a name"`, if necessary.
fn quoted_parts(section: &str) -> String {
    let is_bare = |text: &str| {
        let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
        !text.is_empty() && text.chars().all(allowed)
    };
    match section.split_once('.') {
        Some((first, rest)) if !is_bare(rest) => format!("{first}.{}", Value::String(rest.into())),
        _ => section.into(),
    }
}

impl FromStr for Profile {
    type Err = Error;

    /// Parses TOML: `name`, `about`, `mode`, `device`, and sections of parameters. A parameter is a
    /// number or `{ value = 8, source = "..." }`.
    fn from_str(text: &str) -> Result<Self, Error> {
        let syntax = |why: String| Error::Syntax { what: "the profile", why };
        if text.len() > TEXT_BYTES_MAX {
            return Err(syntax(format!(
                "it has {} bytes, and {TEXT_BYTES_MAX} are allowed",
                text.len()
            )));
        }
        let mut table: Table = text.parse().map_err(|e: toml::de::Error| syntax(e.to_string()))?;
        let mut string_of = |key: &str| match table.remove(key) {
            Some(Value::String(text)) => Ok(text),
            Some(other) => Err(syntax(format!("`{key}` must be a string, not {other}"))),
            None => Err(syntax(format!("it has no `{key}`; add {key} = \"...\""))),
        };
        let (name, about) = (string_of("name")?, string_of("about")?);
        let (mode, device) = (string_of("mode")?.parse()?, string_of("device")?);
        let mut parameters = BTreeMap::new();
        for (section, value) in table {
            match value {
                Value::Table(devices) if section == "devices" => {
                    if devices.len() > DEVICES_MAX {
                        return Err(syntax(format!("at most {DEVICES_MAX} devices are allowed")));
                    }
                    for (device, fields) in devices {
                        read_section(&format!("devices.{device}"), fields, &mut parameters)?;
                    }
                }
                value => read_section(&section, value, &mut parameters)?,
            }
        }
        let profile = Self { name, about, mode, device, parameters };
        profile.check_complete()?;
        Ok(profile)
    }
}

fn read_section(
    section: &str,
    fields: Value,
    parameters: &mut BTreeMap<String, Parameter>,
) -> Result<(), Error> {
    let Value::Table(fields) = fields else {
        specification(section)?;
        return Err(Error::Syntax {
            what: "the profile",
            why: format!("`{section}` is not a section"),
        });
    };
    for (field, value) in fields {
        let key = format!("{section}.{field}");
        let specification = specification(&key)?;
        let without_source =
            |value| Parameter { value, source: "not stated".into(), fitted: false };
        let parameter = match value {
            Value::Integer(value) => without_source(value as f64),
            Value::Float(value) => without_source(value),
            value => value.clone().try_into().map_err(|error: toml::de::Error| {
                let why = format!(
                    "it must be a number or {{ value = 8, source = \"...\" }}: {}",
                    error.message()
                );
                Error::InvalidValue { key: key.clone(), value: value.to_string(), why }
            })?,
        };
        specification.check(&key, parameter.value)?;
        parameters.insert(key, parameter);
    }
    Ok(())
}

impl Profile {
    fn check_complete(&self) -> Result<(), Error> {
        for (_, of) in &SPECIFICATIONS {
            if !self.parameters.contains_key(of.key) {
                return Err(Error::MissingKey { key: of.key.into(), meaning: of.meaning });
            }
        }
        let mut devices = self.devices().into_iter().chain([self.device.clone()]);
        devices.try_for_each(|device| self.device_of(&device).map(drop))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_of_the_built_in_profiles_has_a_source() {
        for (name, text) in PROFILES {
            let profile: Profile = text.parse().unwrap();
            assert_eq!(profile.name(), name);
            for (key, parameter) in profile.parameters() {
                let has_source = parameter.source.len() > 10 && parameter.source != "not stated";
                assert!(has_source, "{name}: {key}");
            }
        }
    }

    #[test]
    fn formatting_and_parsing_a_profile_gives_an_equal_one() {
        for (_, text) in PROFILES {
            let mut profile: Profile = text.parse().unwrap();
            profile.set("wait", 12.5).unwrap();
            assert_eq!(profile.to_toml().parse::<Profile>().unwrap(), profile);
        }
        let odd = PROFILES[0].1.replace("nand", "\"a \\\"quoted\\\" name\"").replace(
            "device = \"\"a \\\"quoted\\\" name\"\"",
            "device = \"a \\\"quoted\\\" name\"",
        );
        let odd: Profile = odd.parse().unwrap();
        assert_eq!(odd.to_toml().parse::<Profile>().unwrap(), odd);
    }

    #[test]
    fn devices_with_a_common_name_prefix_stay_separate() {
        let text = PROFILES[0].1.replace("[devices.nand]", "[devices.\"hdd.b\"]");
        let text = text.replace("device = \"nand\"", "device = \"hdd.b\"");
        let profile: Profile = text.parse().unwrap();
        assert_eq!(profile.devices(), ["dram", "hdd", "hdd.b", "pcram"]);
        assert_eq!(profile.to_toml().parse::<Profile>().unwrap(), profile);
    }

    #[test]
    fn incomplete_flash_parameters_are_an_error() {
        let mut profile = Profile::built_in("bahn2019").unwrap();
        profile.set("devices.pcram.erase_us_per_block", 5.0).unwrap();
        let error = profile.device_of("pcram").unwrap_err().to_string();
        assert!(error.contains("devices.pcram.program_us_per_page"), "{error}");
        for (field, value) in
            [("program_us_per_page", 9.0), ("block_pages", 64.0), ("valid_percent", 50.0)]
        {
            profile.set(&format!("devices.pcram.{field}"), value).unwrap();
        }
        assert!(profile.device_of("pcram").unwrap().collection_ms().is_some());
    }

    /// Parses a built-in profile with one replacement. Returns the error.
    fn error_with(what: &str, instead: &str) -> String {
        let text = PROFILES[0].1;
        assert!(text.contains(what), "{what}");
        text.replacen(what, instead, 1).parse::<Profile>().unwrap_err().to_string()
    }

    #[test]
    fn malformed_profiles_are_refused_by_name() {
        let text = PROFILES[0].1;
        let capacity = text.lines().find(|line| line.starts_with("capacity_percent")).unwrap();
        for (what, instead, expected) in [
            (capacity, "", "cache.capacity_percent"),
            (capacity, "capacity_percent = -3", "cache.capacity_percent"),
            (capacity, "capacity_percent = nan", "cache.capacity_percent"),
            (capacity, "capacity_percent = \"all\"", "cache.capacity_percent"),
            (capacity, "capacity_percent = { value = 8 }", "cache.capacity_percent"),
            (capacity, "capacity_percent = { value = 8, source = \"x\", unit = 1 }", "unit"),
            (capacity, "capacity_prozent = 8", "cache.capacity_prozent"),
            ("[cache]", "[cash]", "cash."),
            ("[cache]", "speed = 3\n[cache]", "speed"),
            ("name =", "nom =", "name"),
            ("mode = \"blocking\"", "mode = \"quick\"", "quick"),
            ("device = \"nand\"", "device = \"tape\"", "tape"),
            ("block_pages =", "# ", "devices.nand.block_pages"),
            ("read_us_per_page =", "# ", "read_us_per_page"),
            ("read_us_per_page =", "read_us_per_pge =", "read_us_per_pge"),
            ("[cache]", "[[cache]]", "cache"),
            ("[cache]", "[cache", "line"),
            ("pages_per_period = { value = 5.07", "pages_per_period = { value = 507", "collect"),
        ] {
            let error = error_with(what, instead);
            assert!(error.contains(expected), "{instead}: {error}");
        }
    }

    #[test]
    fn parameters_of_an_unknown_device_cannot_be_set() {
        let mut profile = Profile::built_in("bahn2019").unwrap();
        let error = profile.set("devices.tape.read_us_per_page", 1.0).unwrap_err().to_string();
        assert!(error.contains("tape") && error.contains("nand"), "{error}");
        assert!(Profile::built_in("bahn").unwrap_err().to_string().contains("measured"));
    }
}
