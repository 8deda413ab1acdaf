//! Frame loop, generic over its clock: beginnings of frames, dropped periods and misses.

use super::clock::Clock;
use crate::Period;
use crate::report::Counts;

/// State of the loop. Period `n` begins `period.begin_ns(n)` after the first one, however long
/// frames take, so errors do not add up.
#[derive(Debug)]
pub(super) struct FrameLoop<C> {
    clock: C,
    period: Period,
    deadline_ns: u64,
    /// Beginning of the first period. `None` before the first frame.
    first_ns: Option<u64>,
    /// Period after the last frame's.
    next: u64,
    counts: Counts,
}

/// Beginning of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FrameStart {
    /// Number of the period, from 0.
    pub(super) period: u64,
    /// Beginning of the period.
    pub(super) begin_ns: u64,
    /// Time when the thread woke up.
    pub(super) woke_ns: u64,
}

impl<C: Clock> FrameLoop<C> {
    pub(super) fn new(clock: C, period: Period, deadline_ns: u64) -> Self {
        Self { clock, period, deadline_ns, first_ns: None, next: 0, counts: Counts::default() }
    }

    pub(super) fn now_ns(&self) -> u64 {
        self.clock.now_ns()
    }

    pub(super) fn counts(&self) -> Counts {
        self.counts
    }

    /// Beginning of the next period that has not passed entirely. Returns now for the first.
    pub(super) fn next_begin_ns(&self) -> u64 {
        let now_ns = self.clock.now_ns();
        let first_ns = self.first_ns.unwrap_or(now_ns);
        let period = self.next.max(self.period.at(now_ns.saturating_sub(first_ns)));
        first_ns.saturating_add(self.period.begin_ns(period))
    }

    /// Sleeps until the next period begins. Periods that have passed entirely are drops; a period
    /// in progress begins late.
    pub(super) fn wait(&mut self) -> FrameStart {
        let now_ns = self.clock.now_ns();
        let first_ns = *self.first_ns.get_or_insert(now_ns);
        let period = self.next.max(self.period.at(now_ns.saturating_sub(first_ns)));
        self.counts.drops += period - self.next;
        self.next = period + 1;
        let begin_ns = first_ns.saturating_add(self.period.begin_ns(period));
        if begin_ns > now_ns {
            self.clock.sleep_until_ns(begin_ns);
        }
        FrameStart { period, begin_ns, woke_ns: self.clock.now_ns() }
    }

    /// Ends the frame. Returns its completion.
    pub(super) fn end(&mut self, start: &FrameStart) -> u64 {
        let completion_ns = self.clock.now_ns().saturating_sub(start.begin_ns);
        self.counts.frames += 1;
        if completion_ns > self.deadline_ns {
            self.counts.misses += 1;
        }
        completion_ns
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    /// Clock that advances only by sleeping and working.
    #[derive(Default)]
    struct Simulated(Cell<u64>);

    impl Simulated {
        fn work(&self, ns: u64) {
            self.0.set(self.0.get() + ns);
        }
    }

    impl Clock for Simulated {
        fn now_ns(&self) -> u64 {
            self.0.get()
        }

        fn sleep_until_ns(&self, moment_ns: u64) {
            self.0.set(self.0.get().max(moment_ns));
        }
    }

    const MS: u64 = 1_000_000;

    fn frame_loop(rate: &str) -> FrameLoop<Simulated> {
        let period: Period = rate.parse().unwrap();
        FrameLoop::new(Simulated::default(), period, period.ns())
    }

    #[test]
    fn frames_begin_with_their_period_and_do_not_drift() {
        let mut frame_loop = frame_loop("23.976");
        frame_loop.clock.work(12_345);
        // An hour of film.
        let frames = 24_000 * 3_600 / 1_001;
        let mut last = None;
        for frame in 0..frames {
            let start = frame_loop.wait();
            assert_eq!(start.period, frame);
            // Each frame takes a different time within its period.
            frame_loop.clock.work(frame * 7_919 % (41 * MS));
            frame_loop.end(&start);
            last = Some(start);
        }
        let last = last.unwrap();
        let exact = (u128::from(frames - 1) * 1_001 * 1_000_000_000 / 24_000) as u64;
        assert_eq!(last.begin_ns, 12_345 + exact);
        assert_eq!(frame_loop.counts(), Counts { frames, misses: 0, drops: 0 });
    }

    #[test]
    fn periods_that_passed_entirely_are_drops() {
        let mut frame_loop = frame_loop("100");
        // Periods of 10 ms. Tuples: period, end of its frame in ms, next period. At 20 ms the
        // second period has just begun.
        let ends_ms = [(0, 9, 1), (1, 20, 2), (2, 41, 4), (4, 79, 7), (7, 130, 13)];
        let mut drops = 0;
        for (period, end_ms, next) in ends_ms {
            let start = frame_loop.wait();
            assert_eq!(start.period, period);
            frame_loop.clock.work(end_ms * MS - frame_loop.now_ns());
            frame_loop.end(&start);
            assert_eq!(
                frame_loop.next_begin_ns(),
                next * 10 * MS,
                "period {period}, until {end_ms} ms"
            );
            assert_eq!(
                frame_loop.counts().drops,
                drops,
                "drops are counted when the next frame is requested"
            );
            drops += next - period - 1;
        }
        assert_eq!(frame_loop.wait().period, 13);
        assert_eq!(frame_loop.counts(), Counts { frames: 5, misses: 3, drops: 8 });
    }

    #[test]
    fn completion_counts_from_the_period_even_if_a_frame_begins_late() {
        let mut frame_loop = frame_loop("100");
        let start = frame_loop.wait();
        frame_loop.clock.work(13 * MS);
        assert_eq!(frame_loop.end(&start), 13 * MS);
        let start = frame_loop.wait();
        assert_eq!((start.period, start.woke_ns - start.begin_ns), (1, 3 * MS));
        frame_loop.clock.work(6 * MS);
        assert_eq!(frame_loop.end(&start), 9 * MS, "the frame meets its deadline again");
        assert_eq!(frame_loop.counts(), Counts { frames: 2, misses: 1, drops: 0 });
    }

    #[test]
    fn a_deadline_may_be_shorter_than_the_period() {
        let mut frame_loop = FrameLoop::new(Simulated::default(), "100".parse().unwrap(), 4 * MS);
        for work_ms in [4, 5] {
            let start = frame_loop.wait();
            frame_loop.clock.work(work_ms * MS);
            frame_loop.end(&start);
        }
        assert_eq!(frame_loop.counts(), Counts { frames: 2, misses: 1, drops: 0 });
    }

    #[test]
    fn a_pause_of_a_day_drops_all_periods_of_the_day() {
        let mut frame_loop = frame_loop("1000");
        let start = frame_loop.wait();
        frame_loop.clock.work(86_400_000 * MS);
        frame_loop.end(&start);
        assert_eq!(frame_loop.wait().period, 86_400_000);
        assert_eq!(frame_loop.counts().drops, 86_399_999);
    }
}
