//! Axis of a sweep or target: a parameter and its values.

use std::str::FromStr;

use crate::error::{Error, at_most};
use crate::parameters::{full_name, specification};

/// Maximum number of values of an axis, which bounds the run time.
pub(crate) const VALUES_MAX: u64 = 10_000;

/// Parameter and its values, such as `capacity=10..100:10` or `wait=0,20,50`.
///
/// ```
/// use evermap_simulate::Axis;
///
/// let axis: Axis = "capacity=10..30:10".parse()?;
/// assert_eq!(axis.parameter(), "cache.capacity_percent");
/// assert_eq!(axis.values(), [10.0, 20.0, 30.0]);
/// # Ok::<(), evermap_simulate::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Axis {
    parameter: String,
    values: Vec<f64>,
}

impl Axis {
    /// Returns the full name of the parameter.
    pub fn parameter(&self) -> &str {
        &self.parameter
    }

    /// Returns the values, in order.
    pub fn values(&self) -> &[f64] {
        &self.values
    }

    pub(crate) fn label(&self) -> String {
        let meaning = specification(&self.parameter).map_or("", |of| of.meaning);
        format!("{} ({meaning})", self.parameter)
    }
}

impl FromStr for Axis {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let wrong = |why: &str| Error::Axis { text: text.into(), why: why.into() };
        let (name, values) = text.split_once('=').ok_or_else(|| wrong("it has no `=`"))?;
        let parameter = full_name(name.trim());
        let specification = specification(parameter)?;
        let number = |text: &str| {
            let number = text.trim().parse::<f64>().ok().filter(|number| number.is_finite());
            number.ok_or_else(|| wrong(&format!("`{text}` is not a number")))
        };
        let values = match values.split_once("..") {
            Some((from, rest)) => {
                let (to, step) =
                    rest.split_once(':').ok_or_else(|| wrong("a range needs a step after `:`"))?;
                let (from, to, step) = (number(from)?, number(to)?, number(step)?);
                if step <= 0.0 || to < from {
                    return Err(wrong("a range must go up, with a step above 0"));
                }
                // The tolerance makes a range reach its end although the step is inexact in binary.
                let count = ((to - from) / step + 1e-9).floor();
                let values = (count as u64).saturating_add(1);
                at_most("values of a range", values, VALUES_MAX, "take a larger step")?;
                (0..=count as u64).map(|n| from + n as f64 * step).collect()
            }
            None => values.split(',').map(number).collect::<Result<Vec<f64>, Error>>()?,
        };
        at_most("values of a list", values.len() as u64, VALUES_MAX, "give fewer")?;
        values.iter().try_for_each(|&value| specification.check(parameter, value))?;
        Ok(Self { parameter: parameter.into(), values })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_include_their_end_and_lists_keep_their_values() {
        let values = |text: &str| text.parse::<Axis>().unwrap().values;
        assert_eq!(values("wait=0..0.3:0.1").len(), 4);
        assert_eq!(values("capacity=10..100:30"), [10.0, 40.0, 70.0, 100.0]);
        assert_eq!(values("devices.nand.read_us_per_page=40, 20"), [40.0, 20.0]);
        assert_eq!(values("frames=5..5:1"), [5.0]);
    }

    #[test]
    fn an_invalid_axis_is_refused_with_a_remedy() {
        for (text, expected) in [
            ("capacity", "no `=`"),
            ("capacity=", "not a number"),
            ("capacity=10..100", "step"),
            ("capacity=10..100:0", "above 0"),
            ("capacity=90..10:10", "must go up"),
            ("capacity=10..200:10", "cache.capacity_percent"),
            ("capacity=inf", "not a number"),
            ("capacty=10", "capacty"),
            ("frames=1..2:0.5", "whole"),
            ("references=0..100000:0.001", "larger step"),
            ("references=0..1e300:1", "larger step"),
            ("references=-1e308..1e308:1", "larger step"),
        ] {
            let error = text.parse::<Axis>().unwrap_err().to_string();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }
}
