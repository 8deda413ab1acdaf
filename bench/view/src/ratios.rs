//! Combines the ratios of many pages.

use harness::samples::figure;

/// Ratios of a section's pages.
#[derive(Default)]
pub struct Ratios {
    of: Vec<(String, f64)>,
}

impl Ratios {
    pub fn push(&mut self, page: &str, ratio: f64) {
        self.of.push((page.to_string(), ratio));
    }

    pub fn count(&self) -> usize {
        self.of.len()
    }

    pub fn geometric_mean(&self) -> f64 {
        let logarithms: f64 = self.of.iter().map(|(_, ratio)| ratio.ln()).sum();
        (logarithms / self.of.len() as f64).exp()
    }

    fn least(&self) -> Option<&(String, f64)> {
        self.of.iter().min_by(|a, b| a.1.total_cmp(&b.1))
    }

    fn most(&self) -> Option<&(String, f64)> {
        self.of.iter().max_by(|a, b| a.1.total_cmp(&b.1))
    }

    /// Formats the geometric mean, the page with the worst (lowest) ratio, and the page with the
    /// best.
    pub fn summary(&self) -> String {
        let (Some(worst), Some(best)) = (self.least(), self.most()) else {
            return "no pages".to_string();
        };
        format!(
            "geometric mean {} x over {} pages; worst {} x ({}), best {} x ({})",
            figure(self.geometric_mean()),
            self.count(),
            figure(worst.1),
            worst.0,
            figure(best.1),
            best.0
        )
    }

    /// Like [`summary`](Self::summary), for costs, where the lowest ratio is the best.
    pub fn summary_of_cost(&self) -> String {
        let (Some(best), Some(worst)) = (self.least(), self.most()) else {
            return "no pages".to_string();
        };
        format!(
            "geometric mean {} over {} pages; worst {} ({}), best {} ({})",
            figure(self.geometric_mean()),
            self.count(),
            figure(worst.1),
            worst.0,
            figure(best.1),
            best.0
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_geometric_mean_treats_twice_and_half_alike() {
        let mut ratios = Ratios::default();
        ratios.push("a", 2.0);
        ratios.push("b", 0.5);
        assert!((ratios.geometric_mean() - 1.0).abs() < 1e-12);
    }

    #[test]
    fn the_worst_page_is_named() {
        let mut ratios = Ratios::default();
        for (page, ratio) in [("fair", 4.0), ("bad", 0.5), ("good", 32.0)] {
            ratios.push(page, ratio);
        }
        let text = ratios.summary();
        assert!(
            text.contains("worst 0.500 x (bad)") || text.contains("worst 0.50 x (bad)"),
            "{text}"
        );
        assert!(text.contains("best 32.0 x (good)") && text.contains("mean 4.00 x"), "{text}");
        assert!(ratios.summary_of_cost().contains("worst 32.0 (good)"));
    }

    #[test]
    fn a_summary_of_no_pages_says_so() {
        assert_eq!(Ratios::default().summary(), "no pages");
    }
}
