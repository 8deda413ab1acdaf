//! Sets of cores as the kernel writes them: `0-3,5`.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use serde::{Serialize, Serializer};

/// No core has a higher number: eight times what any kernel is built for. Bounds what a file can make us remember.
const CORE_MAX: u32 = 65_535;

/// Cores by their numbers, in order.
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
    /// Whether this core is in it.
    pub fn contains(&self, core: u32) -> bool {
        self.0.contains(&core)
    }

    /// The cores, from the lowest number.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = u32> + '_ {
        self.0.iter().copied()
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Those that are in both.
    pub fn and(&self, other: &CpuList) -> CpuList {
        CpuList(self.0.intersection(&other.0).copied().collect())
    }

    /// Those that are here and not there.
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

    /// Numbers and ranges between commas; nothing is none. `0-6:1/2` (every second one) is what `cpuset` and boot parameters take, too.
    fn from_str(text: &str) -> Result<Self, String> {
        let mut cores = BTreeSet::new();
        for part in text.trim().split(',').map(str::trim).filter(|part| !part.is_empty()) {
            let (low, high, used, group) = range(part).ok_or_else(|| {
                format!("`{part}` in `{}`: cores are written as in 0-3,5", text.trim())
            })?;
            cores.extend((low..=high).filter(|core| (core - low) % group < used));
        }
        Ok(CpuList(cores))
    }
}

/// `LOW`, `LOW-HIGH` or `LOW-HIGH:USED/GROUP`.
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
    fn lists_are_read_as_the_kernel_writes_them() {
        assert_eq!(cores("0-3,5\n"), [0, 1, 2, 3, 5]);
        assert_eq!(cores("7"), [7]);
        assert_eq!(cores("0-6:1/2,9"), [0, 2, 4, 6, 9]);
        assert_eq!(cores("\n"), [] as [u32; 0]);
        assert_eq!(CpuList::default().to_string(), "none");
    }

    #[test]
    fn what_is_no_list_is_refused_and_nothing_large_is_made() {
        for text in ["x", "3-1", "-1", "0-", "0-4294967295", "99999", "0-3:1", "0-3:1/0", "0-3:2/1"]
        {
            assert!(text.parse::<CpuList>().is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_back(numbers in proptest::collection::vec(0_u32..200, 1..60)) {
            let list: CpuList = numbers.into_iter().collect();
            prop_assert_eq!(list.to_string().parse::<CpuList>(), Ok(list));
        }
    }
}
