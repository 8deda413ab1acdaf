//! Encodes clusters: pieces of text that a highlight can't split, usually one character. A cluster
//! takes one record of two bytes, or several if it is long or wide.
//!
//! | bits | |
//! |---|---|
//! | 0-11 | advance in 1/16 pixel |
//! | 12-14 | bytes of text |
//! | 15 | continued: the next record belongs to the same cluster; advances and bytes are summed |
//!
//! Rounding errors do not accumulate: no edge of a cluster is more than 1/32 pixel from its exact
//! position, unless an advance is negative.

const ADVANCE_MAX: u32 = (1 << 12) - 1;
const BYTES_SHIFT: u32 = 12;
const BYTES_MAX: u32 = 7;
const CONTINUED: u16 = 1 << 15;
/// Units of stored advances.
const UNITS_PER_PIXEL: f64 = 16.0;

/// A cluster of a line.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Cluster {
    /// Width in pixels.
    pub advance: f64,
    /// Bytes of text.
    pub bytes: usize,
}

/// Encodes the clusters of a line.
#[derive(Default)]
pub(crate) struct ClusterWriter {
    /// Exact position in the line, in pixels.
    edge: f64,
    /// Sum of the stored advances, in 1/16 pixel.
    written: u64,
}

impl ClusterWriter {
    /// Appends a cluster's records.
    pub(crate) fn add(&mut self, records: &mut Vec<u16>, advance: f32, bytes: usize) {
        if advance.is_finite() {
            self.edge += f64::from(advance);
        }
        // Rounds to the nearest 1/16 pixel. A position left of the line's start becomes 0.
        let edge = (self.edge * UNITS_PER_PIXEL + 0.5) as u64;
        // A stored advance can't be negative. Later clusters make up for the difference.
        let mut advance = edge.saturating_sub(self.written).min(u64::from(u32::MAX)) as u32;
        self.written += u64::from(advance);
        let mut bytes = bytes as u32;
        loop {
            let (now, text) = (advance.min(ADVANCE_MAX), bytes.min(BYTES_MAX));
            (advance, bytes) = (advance - now, bytes - text);
            let record = (now | text << BYTES_SHIFT) as u16;
            if advance == 0 && bytes == 0 {
                records.push(record);
                return;
            }
            records.push(record | CONTINUED);
        }
    }
}

/// Decodes the clusters of some records.
pub(crate) fn clusters(records: &[u16]) -> impl Iterator<Item = Cluster> {
    let mut records = records.iter();
    std::iter::from_fn(move || {
        let mut cluster = Cluster::default();
        let mut any = false;
        for record in records.by_ref() {
            any = true;
            cluster.advance += f64::from(u32::from(*record) & ADVANCE_MAX) / UNITS_PER_PIXEL;
            cluster.bytes += usize::from(record >> BYTES_SHIFT) & BYTES_MAX as usize;
            if record & CONTINUED == 0 {
                break;
            }
        }
        any.then_some(cluster)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round_trip(input: &[(f32, usize)]) -> Vec<Cluster> {
        let (mut writer, mut records) = (ClusterWriter::default(), Vec::new());
        for (advance, bytes) in input {
            writer.add(&mut records, *advance, *bytes);
        }
        clusters(&records).collect()
    }

    #[test]
    fn rounding_errors_do_not_accumulate() {
        let input: Vec<(f32, usize)> = (0..5_000).map(|n| (7.03 + 0.001 * n as f32, 1)).collect();
        let (mut exact, mut decoded) = (0.0, 0.0);
        for ((advance, _), cluster) in input.iter().zip(round_trip(&input)) {
            exact += f64::from(*advance);
            decoded += cluster.advance;
            assert!((exact - decoded).abs() <= 1.0 / 32.0 + 1e-9, "{exact} became {decoded}");
        }
    }

    #[test]
    fn long_and_wide_clusters_take_several_records() {
        // An emoji of several code points (a family), a letter of a very large font, an empty
        // cluster, and one with the longest text.
        let input = [(20.0, 25), (9_000.0, 1), (0.0, 0), (5.0, 65_536)];
        let decoded = round_trip(&input);
        let decoded: Vec<(f32, usize)> =
            decoded.iter().map(|cluster| (cluster.advance as f32, cluster.bytes)).collect();
        assert_eq!(decoded, input);
    }

    #[test]
    fn negative_and_nan_advances_are_compensated() {
        let decoded = round_trip(&[(10.0, 1), (-4.0, 1), (f32::NAN, 1), (6.0, 1)]);
        let advances: Vec<f64> = decoded.iter().map(|cluster| cluster.advance).collect();
        assert_eq!(advances, [10.0, 0.0, 0.0, 2.0]);
    }
}
