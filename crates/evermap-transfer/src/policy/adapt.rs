//! How many lanes: more while filling waits and each one gains, fewer when one does not.
//!
//! A splice runs in windows. Each window's figures decide what the next one is done with. A second lane is of use only where
//! filling waits (for a slow disk, for decompression): two drains into one file take turns at its lock. Where filling waits because
//! nothing is read ahead, advice to the kernel gains most of it without a lane, so that is tried first.

/// Bytes of a window: long enough for a disk to show its rate.
pub(crate) const WINDOW_BYTES: u64 = 16 << 20;
/// Filling is waited for when it takes more than this share of the time.
const WAITING_SHARE_MIN: f64 = 0.4;
/// A change that gains less than this is taken back.
const GAIN_MIN: f64 = 1.10;
/// More lanes than this are not tried: eight readers keep any device busy that one cannot.
const LANES_MAX: usize = 8;

/// What the next window is to be done with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Setting {
    pub(crate) lanes: usize,
    /// Ask the kernel to read the next windows ahead.
    pub(crate) read_ahead: bool,
}

/// What a window was like.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Window {
    pub(crate) bytes: u64,
    pub(crate) wall_ns: u64,
    /// Summed over lanes.
    pub(crate) fill_ns: u64,
    pub(crate) drain_ns: u64,
}

/// Decides from window to window.
#[derive(Debug)]
pub(crate) struct Adapt {
    setting: Setting,
    /// What is gone back to when the change that is on trial does not gain, and its rate in bytes a nanosecond.
    before: Option<(Setting, f64)>,
    settled: bool,
    log: Vec<String>,
}

impl Adapt {
    /// Begins with one lane and no advice.
    pub(crate) fn new() -> Adapt {
        Adapt {
            setting: Setting { lanes: 1, read_ahead: false },
            before: None,
            settled: false,
            log: Vec::new(),
        }
    }

    /// For the next window.
    pub(crate) fn setting(&self) -> Setting {
        self.setting
    }

    /// Whether nothing will be changed any more.
    pub(crate) fn is_settled(&self) -> bool {
        self.settled
    }

    /// What was changed and why, for the report.
    pub(crate) fn into_log(self) -> Vec<String> {
        self.log
    }

    /// A window is over.
    pub(crate) fn observe(&mut self, window: Window) {
        if self.settled || window.bytes == 0 || window.wall_ns == 0 {
            return;
        }
        let rate = window.bytes as f64 / window.wall_ns as f64;
        if let Some((before, rate_before)) = self.before.take() {
            let gain = rate / rate_before;
            if gain < GAIN_MIN {
                self.log.push(format!(
                    "{} gained {:.0} %: dropped",
                    describe(self.setting),
                    (gain - 1.0) * 100.0
                ));
                let was_advice = before.read_ahead != self.setting.read_ahead;
                self.setting = before;
                match was_advice {
                    // Advice that does not help (it is ignored, or decompression is what is waited for) leaves lanes to be tried.
                    true => {
                        self.try_next(rate_before, Setting { lanes: before.lanes + 1, ..before })
                    }
                    false => self.settled = true,
                }
                return;
            }
            self.log.push(format!(
                "{} gained {:.0} %: kept",
                describe(self.setting),
                (gain - 1.0) * 100.0
            ));
        }
        let busy_ns = (window.fill_ns + window.drain_ns).max(1);
        let waiting = window.fill_ns as f64 / busy_ns as f64;
        if waiting < WAITING_SHARE_MIN {
            self.log.push(format!(
                "filling takes {:.0} % of the time: no further lane",
                waiting * 100.0
            ));
            self.settled = true;
        } else if self.setting.lanes == 1 && !self.setting.read_ahead {
            self.try_next(rate, Setting { lanes: 1, read_ahead: true });
        } else if self.setting.lanes < LANES_MAX {
            self.try_next(rate, Setting { lanes: self.setting.lanes * 2, ..self.setting });
        } else {
            self.settled = true;
        }
    }

    fn try_next(&mut self, rate: f64, next: Setting) {
        self.before = Some((self.setting, rate));
        self.setting = next;
    }
}

fn describe(setting: Setting) -> String {
    match (setting.lanes, setting.read_ahead) {
        (1, true) => "read-ahead advice".to_string(),
        (lanes, true) => format!("{lanes} lanes with read-ahead advice"),
        (lanes, false) => format!("{lanes} lanes"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A source whose filling takes `fill_ns` of the kernel's time for a window with these settings.
    fn run(fill_ns: impl Fn(Setting) -> u64, drain_ns: u64) -> (Setting, Adapt) {
        let mut adapt = Adapt::new();
        for _ in 0..20 {
            let fill = fill_ns(adapt.setting());
            let lanes = adapt.setting().lanes as u64;
            adapt.observe(Window {
                bytes: WINDOW_BYTES,
                // Fills go side by side, drains one after the other.
                wall_ns: fill / lanes + drain_ns,
                fill_ns: fill,
                drain_ns,
            });
        }
        (adapt.setting(), adapt)
    }

    #[test]
    fn where_draining_takes_the_time_one_lane_stays_alone() {
        let (setting, adapt) = run(|_| 1_000_000, 4_000_000);
        assert_eq!(setting, Setting { lanes: 1, read_ahead: false });
        assert!(adapt.is_settled());
    }

    #[test]
    fn advice_is_tried_before_a_lane_and_kept_when_it_is_enough() {
        let (setting, _) =
            run(|setting| if setting.read_ahead { 500_000 } else { 8_000_000 }, 4_000_000);
        assert_eq!(setting, Setting { lanes: 1, read_ahead: true });
    }

    #[test]
    fn lanes_are_added_as_long_as_each_gains() {
        let (setting, _) = run(|_| 100_000_000, 1_000_000);
        assert_eq!(setting.lanes, 8);
    }

    #[test]
    fn a_lane_that_does_not_gain_is_dropped() {
        // A disk that serves one reader at a time: the fills of two lanes take twice as long each.
        let (setting, adapt) = run(|setting| 50_000_000 * setting.lanes as u64, 1_000_000);
        assert_eq!(setting, Setting { lanes: 1, read_ahead: false });
        assert!(adapt.is_settled());
        assert!(adapt.into_log().iter().any(|line| line.contains("dropped")));
    }
}
