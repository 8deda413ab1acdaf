//! Parses a program's output: lines of `WORKLOAD.VARIANT.STEP.WHAT VALUE UNIT`.

use std::collections::BTreeMap;

use harness::Outcome;

/// Figures of one step, by name.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Figures {
    values: BTreeMap<String, String>,
}

impl Figures {
    /// Parses a program's output.
    pub fn read(output: &str) -> Outcome<Figures> {
        let mut values = BTreeMap::new();
        for line in output.lines() {
            let parts: Vec<&str> = line.split(' ').collect();
            let [name, value, _unit] = parts[..] else {
                return Err(format!("expected a name, a value and a unit: `{line}`").into());
            };
            let what = name.splitn(4, '.').nth(3);
            let what =
                what.ok_or_else(|| format!("expected a workload, variant and step: `{line}`"))?;
            values.insert(what.to_string(), value.to_string());
        }
        Ok(Figures { values })
    }

    /// Returns a number. The error names the figure if it is missing.
    pub fn number(&self, what: &str) -> Outcome<f64> {
        let value = self.values.get(what).ok_or_else(|| {
            let found: Vec<&str> = self.values.keys().map(String::as_str).collect();
            format!("the program printed no `{what}`, only {}", found.join(", "))
        })?;
        value.parse().map_err(|_| format!("`{what}` is not a number: {value}").into())
    }

    /// Returns the checksums, which must be equal for all contestants.
    pub fn checksums(&self) -> BTreeMap<&str, &str> {
        let ours = |what: &&String| what.ends_with("checksum");
        let all = self.values.iter().filter(|(what, _)| ours(what));
        all.map(|(what, value)| (what.as_str(), value.as_str())).collect()
    }

    /// Returns names and values of all figures.
    pub fn all(&self) -> impl Iterator<Item = (&str, &str)> {
        self.values.iter().map(|(what, value)| (what.as_str(), value.as_str()))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    const OUTPUT: &str = "fasta.file.run.time 12.500 ms\nfasta.file.run.checksum 00ff xxh3\n";

    #[test]
    fn figures_are_found_by_name() {
        let figures = Figures::read(OUTPUT).unwrap();
        assert_eq!(figures.number("time").unwrap(), 12.5);
        assert_eq!(figures.checksums(), BTreeMap::from([("checksum", "00ff")]));
        let parted = Figures::read("calls.heap.run.commit.first 3 ms\n").unwrap();
        assert_eq!(parted.number("commit.first").unwrap(), 3.0);
        assert_eq!(figures.all().nth(1), Some(("time", "12.500")));
    }

    #[test]
    fn a_missing_figure_is_an_error_that_lists_the_others() {
        let figures = Figures::read(OUTPUT).unwrap();
        let error = figures.number("load").unwrap_err().to_string();
        assert!(error.contains("`load`") && error.contains("checksum, time"), "{error}");
        assert!(Figures::read("fasta: out of memory\n").is_err());
        assert!(Figures::read("time 1 ms\n").is_err());
    }
}
