//! Sets of cores in the kernel's format: `0-3,5`.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use serde::{Serialize, Serializer};

/// Maximum number of a core: eight times the largest kernel configuration. Limits the memory that a
/// file can make this program use.
const CORE_MAX: u32 = 65_535;

/// Set of core numbers, in order.
///
/// ```
/// use evermap_lane::machine::CpuList;
/// let cores: CpuList = "0-3,5".parse()?;
/// assert!(cores.contains(5) && !cores.contains(4));
/// assert_eq!(cores.to_string(), "0-3,5");
/// # Ok::<(), String>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CpuList(BTreeSet<u32>);

impl CpuList {
    /// Returns true if the set contains the core.
    pub fn contains(&self, core: u32) -> bool {
        self.0.contains(&core)
    }

    /// Iterates over the cores in ascending order.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = u32> + '_ {
        self.0.iter().copied()
    }

    /// Number of cores.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns true if the set is empty.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Cores in both sets.
    pub fn and(&self, other: &CpuList) -> CpuList {
        CpuList(self.0.intersection(&other.0).copied().collect())
    }

    /// Cores of this set that are not in `other`.
    pub fn without(&self, other: &CpuList) -> CpuList {
        CpuList(self.0.difference(&other.0).copied().collect())
    }
}

impl FromIterator<u32> for CpuList {
    fn from_iter<I: IntoIterator<Item = u32>>(cores: I) -> Self {
        CpuList(cores.into_iter().collect())
    }
}

impl FromStr for CpuList {
    type Err = String;

    /// Parses numbers and ranges separated by commas; empty text is the empty set. Accepts
    /// `0-6:1/2` (every second core), as `cpuset` files and boot parameters do.
    fn from_str(text: &str) -> Result<Self, String> {
        let mut cores = BTreeSet::new();
        for part in text.trim().split(',').map(str::trim).filter(|part| !part.is_empty()) {
            let (low, high, used, group) = range(part).ok_or_else(|| {
                format!("`{part}` in `{}` is not a list of cores, as in 0-3,5", text.trim())
            })?;
            cores.extend((low..=high).filter(|core| (core - low) % group < used));
        }
        Ok(CpuList(cores))
    }
}

/// Parses `LOW`, `LOW-HIGH` or `LOW-HIGH:USED/GROUP`.
fn range(part: &str) -> Option<(u32, u32, u32, u32)> {
    let (bounds, step) = part.split_once(':').unwrap_or((part, "1/1"));
    let (low, high) = bounds.split_once('-').unwrap_or((bounds, bounds));
    let (used, group) = step.split_once('/')?;
    let (low, high): (u32, u32) = (low.parse().ok()?, high.parse().ok()?);
    let (used, group): (u32, u32) = (used.parse().ok()?, group.parse().ok()?);
    (low <= high && high <= CORE_MAX && group > 0 && used <= group)
        .then_some((low, high, used, group))
}

impl fmt::Display for CpuList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_empty() {
            return f.write_str("none");
        }
        let mut cores = self.iter().peekable();
        let mut separator = "";
        while let Some(low) = cores.next() {
            let mut high = low;
            while let Some(next) = cores.next_if(|next| *next == high + 1) {
                high = next;
            }
            match low == high {
                true => write!(f, "{separator}{low}")?,
                false => write!(f, "{separator}{low}-{high}")?,
            }
            separator = ",";
        }
        Ok(())
    }
}

impl Serialize for CpuList {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.iter())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn cores(text: &str) -> Vec<u32> {
        text.parse::<CpuList>().unwrap().iter().collect()
    }

    #[test]
    fn lists_in_the_kernel_s_format_are_parsed() {
        assert_eq!(cores("0-3,5\n"), [0, 1, 2, 3, 5]);
        assert_eq!(cores("7"), [7]);
        assert_eq!(cores("0-6:1/2,9"), [0, 2, 4, 6, 9]);
        assert_eq!(cores("\n"), [] as [u32; 0]);
        assert_eq!(CpuList::default().to_string(), "none");
    }

    #[test]
    fn invalid_and_huge_lists_are_refused() {
        for text in ["x", "3-1", "-1", "0-", "0-4294967295", "99999", "0-3:1", "0-3:1/0", "0-3:2/1"]
        {
            assert!(text.parse::<CpuList>().is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn lists_survive_a_round_trip_through_text(numbers in proptest::collection::vec(0_u32..200, 1..60)) {
            let list: CpuList = numbers.into_iter().collect();
            prop_assert_eq!(list.to_string().parse::<CpuList>(), Ok(list));
        }
    }
}
