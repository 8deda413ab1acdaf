//! A program and the machine it is simulated on: every parameter with its unit and where its value comes from.
//!
//! A profile is text. It says what is simulated unless something else is asked for (a device, a mode), and of each value whether it was measured,
//! published, or fitted. Reading one checks all of it: who holds a profile can simulate with it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use toml::{Table, Value};

use super::Error;
use super::device::{Device, Flash, Reading};
use super::model::Mode;
use super::parameters::{DeviceKey, Key, SPECIFICATIONS, full_name, of_device, specification};

/// The profiles that come with this crate: name and text.
pub const PROFILES: [(&str, &str); 2] = [
    ("bahn2019", include_str!("profiles/bahn2019.toml")),
    ("measured", include_str!("profiles/measured.toml")),
];

/// More than any profile needs.
const TEXT_BYTES_MAX: usize = 1 << 20;
const DEVICES_MAX: usize = 64;

/// A value, and where it comes from.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Parameter {
    /// In the unit that its name ends in.
    pub value: f64,
    /// Where it comes from.
    pub source: String,
    /// Whether it was chosen so that results come out as published.
    #[serde(default)]
    pub fitted: bool,
}

/// A program and a machine.
///
/// ```
/// use evermap_lane::simulate::Profile;
///
/// let mut profile = Profile::built_in("bahn2019")?;
/// profile.set("capacity", 70.0)?;
/// profile.set("devices.nand.read_us_per_page", 40.0)?;
/// assert!(profile.set("capacity", 170.0).is_err());
/// let again: Profile = profile.to_toml().parse()?;
/// assert_eq!(again, profile);
/// # Ok::<(), evermap_lane::simulate::Error>(())
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
    /// One that comes with this crate.
    ///
    /// # Errors
    ///
    /// There is none of that name.
    pub fn built_in(name: &str) -> Result<Self, Error> {
        let found = PROFILES.iter().find(|(known, _)| *known == name);
        let Some((_, text)) = found else {
            let known = PROFILES.map(|(known, _)| format!("`{known}`")).join(" and ");
            return Err(Error::UnknownProfile { name: name.into(), known });
        };
        text.parse()
    }

    /// What it calls itself.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What it stands for, in a sentence or two.
    pub fn about(&self) -> &str {
        &self.about
    }

    /// Whether its program blocks for I/O, unless something else is asked for.
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// What its program reads from, unless something else is asked for.
    pub fn device(&self) -> &str {
        &self.device
    }

    /// The names of its devices.
    pub fn devices(&self) -> Vec<String> {
        let names = self.parameters.keys().filter_map(|key| of_device(key));
        let names: BTreeSet<&str> = names.map(|(name, _)| name).collect();
        names.into_iter().map(str::to_string).collect()
    }

    /// All parameters by name.
    pub fn parameters(&self) -> impl Iterator<Item = (&str, &Parameter)> {
        self.parameters.iter().map(|(key, parameter)| (key.as_str(), parameter))
    }

    /// A parameter by its name, or by a short one such as `capacity`.
    pub fn get(&self, name: &str) -> Option<&Parameter> {
        self.parameters.get(full_name(name))
    }

    /// Gives a parameter another value, of which the user is the source.
    ///
    /// # Errors
    ///
    /// There is no such parameter, or it cannot be that.
    pub fn set(&mut self, name: &str, value: f64) -> Result<(), Error> {
        self.put(name, Parameter { value, source: "set for this run".into(), fitted: false })
    }

    /// As [`set`](Self::set), with the source said.
    pub(super) fn put(&mut self, name: &str, parameter: Parameter) -> Result<(), Error> {
        let key = full_name(name);
        specification(key)?.check(key, parameter.value)?;
        if let Some((device, _)) = of_device(key) {
            self.check_device(device)?;
        }
        self.parameters.insert(key.into(), parameter);
        Ok(())
    }

    /// The device of this name.
    ///
    /// # Errors
    ///
    /// There is none; it lacks a parameter; or it has to collect garbage for others all the time.
    pub fn device_of(&self, name: &str) -> Result<Device, Error> {
        self.check_device(name)?;
        let said = |key: DeviceKey| self.parameters.get(&key.of(name)).map(|found| found.value);
        let needed = |key: DeviceKey| {
            let meaning = key.specification().meaning;
            said(key).ok_or_else(|| Error::MissingKey { key: key.of(name), meaning })
        };
        let reading = Reading {
            request_us: needed(DeviceKey::Request)?,
            page_us: needed(DeviceKey::Page)?,
            stall_percent: said(DeviceKey::StallPercent).unwrap_or(0.0),
            stall_ms: said(DeviceKey::StallMs).unwrap_or(0.0),
        };
        let flash = match DeviceKey::OF_FLASH.into_iter().any(|key| said(key).is_some()) {
            true => Some(Flash {
                program_us: needed(DeviceKey::Program)?,
                erase_us: needed(DeviceKey::Erase)?,
                block_pages: needed(DeviceKey::BlockPages)?,
                valid_percent: needed(DeviceKey::ValidPercent)?,
            }),
            false => None,
        };
        let pages_per_ms = self.value(Key::Background) * self.value(Key::Rate) / 1e3;
        Device::of(reading, flash, pages_per_ms).map_err(|why| {
            let value = self.value(Key::Background).to_string();
            Error::Impossible { key: "background.pages_per_period".into(), value, why }
        })
    }

    fn check_device(&self, name: &str) -> Result<(), Error> {
        let known = self.devices();
        if known.iter().any(|device| device == name) {
            return Ok(());
        }
        Err(Error::UnknownDevice { name: name.into(), profile: self.name.clone(), known })
    }

    /// One that every profile has.
    pub(super) fn value(&self, key: Key) -> f64 {
        let found = self.parameters.get(key.specification().key);
        debug_assert!(found.is_some(), "read or set, so it is complete");
        found.map_or(0.0, |parameter| parameter.value)
    }

    pub(super) fn renamed(mut self, name: String, about: String) -> Self {
        (self.name, self.about) = (name, about);
        self
    }

    /// As text that reads as the same profile.
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
        let mut of_devices: Vec<&str> = of_devices.filter(|key| of_device(key).is_some()).collect();
        // By whole names: `a.b` is another device than `a`, and would stand among its parameters.
        of_devices.sort_unstable_by(|one, other| of_device(one).cmp(&of_device(other)));
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

/// `devices."a name"`, where the name needs it.
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

    /// Reads TOML: `name`, `about`, `mode`, `device`, and sections of parameters, each `{ value = 8, source = "..." }` or a number alone.
    fn from_str(text: &str) -> Result<Self, Error> {
        let syntax = |why: String| Error::Syntax { what: "the profile", why };
        if text.len() > TEXT_BYTES_MAX {
            return Err(syntax(format!(
                "{} bytes are too many, {TEXT_BYTES_MAX} at most",
                text.len()
            )));
        }
        let mut table: Table = text.parse().map_err(|e: toml::de::Error| syntax(e.to_string()))?;
        let mut words = |key: &str| match table.remove(key) {
            Some(Value::String(text)) => Ok(text),
            Some(other) => Err(syntax(format!("`{key}` is a text, not {other}"))),
            None => Err(syntax(format!("it has no `{key}`; add {key} = \"...\""))),
        };
        let (name, about) = (words("name")?, words("about")?);
        let (mode, device) = (words("mode")?.parse()?, words("device")?);
        let mut parameters = BTreeMap::new();
        for (section, value) in table {
            match value {
                Value::Table(devices) if section == "devices" => {
                    if devices.len() > DEVICES_MAX {
                        return Err(syntax(format!("{DEVICES_MAX} devices are the most")));
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
            why: format!("`{section}` is no section"),
        });
    };
    for (field, value) in fields {
        let key = format!("{section}.{field}");
        let specification = specification(&key)?;
        let unsaid = |value| Parameter { value, source: "not said".into(), fitted: false };
        let parameter = match value {
            Value::Integer(value) => unsaid(value as f64),
            Value::Float(value) => unsaid(value),
            value => value.clone().try_into().map_err(|error: toml::de::Error| {
                let why = format!(
                    "it is a number, or {{ value = 8, source = \"...\" }}: {}",
                    error.message()
                );
                Error::Impossible { key: key.clone(), value: value.to_string(), why }
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
    fn every_value_of_the_profiles_here_has_a_source() {
        for (name, text) in PROFILES {
            let profile: Profile = text.parse().unwrap();
            assert_eq!(profile.name(), name);
            for (key, parameter) in profile.parameters() {
                let is_told = parameter.source.len() > 10 && parameter.source != "not said";
                assert!(is_told, "{name}: {key}");
            }
        }
    }

    #[test]
    fn a_profile_is_the_same_after_writing_and_reading() {
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
    fn devices_whose_names_begin_alike_stay_apart() {
        let text = PROFILES[0].1.replace("[devices.nand]", "[devices.\"hdd.b\"]");
        let text = text.replace("device = \"nand\"", "device = \"hdd.b\"");
        let profile: Profile = text.parse().unwrap();
        assert_eq!(profile.devices(), ["dram", "hdd", "hdd.b", "pcram"]);
        assert_eq!(profile.to_toml().parse::<Profile>().unwrap(), profile);
    }

    #[test]
    fn a_part_of_what_makes_a_device_flash_is_not_passed_over() {
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

    /// The text of a profile with this instead of that; says what reading it says.
    fn refused(what: &str, instead: &str) -> String {
        let text = PROFILES[0].1;
        assert!(text.contains(what), "{what}");
        text.replacen(what, instead, 1).parse::<Profile>().unwrap_err().to_string()
    }

    #[test]
    fn malformed_profiles_are_refused_by_name() {
        let text = PROFILES[0].1;
        let capacity = text.lines().find(|line| line.starts_with("capacity_percent")).unwrap();
        for (what, instead, told) in [
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
            let error = refused(what, instead);
            assert!(error.contains(told), "{instead}: {error}");
        }
    }

    #[test]
    fn a_device_that_is_not_there_cannot_be_changed() {
        let mut profile = Profile::built_in("bahn2019").unwrap();
        let error = profile.set("devices.tape.read_us_per_page", 1.0).unwrap_err().to_string();
        assert!(error.contains("tape") && error.contains("nand"), "{error}");
        assert!(Profile::built_in("bahn").unwrap_err().to_string().contains("measured"));
    }
}
