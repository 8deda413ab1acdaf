//! Table of goals: the goal, the measured figure, and the figure it was compared with.

use crate::samples::{figure, head, row};

/// One line: a figure and its floor, or an absolute goal.
struct Goal {
    what: String,
    goal: String,
    got: String,
    floor: String,
    ratio: f64,
    met: bool,
}

#[derive(Default)]
pub struct Goals {
    lines: Vec<Goal>,
}

impl Goals {
    /// Judges that `got` is at most `most` times `floor`.
    pub fn ratio(
        &mut self,
        what: &str,
        most: f64,
        (got, shown): (f64, String),
        floor: (f64, &str),
    ) {
        self.lines.push(Goal {
            what: what.to_string(),
            goal: format!("{most} x"),
            got: shown,
            floor: format!("{}: {}", floor.1, figure(floor.0)),
            ratio: got / floor.0,
            met: got <= most * floor.0,
        });
    }

    /// Judges that `got` itself is at most `most`.
    pub fn at_most(
        &mut self,
        what: &str,
        most: (f64, &str),
        (got, shown): (f64, String),
        floor: String,
    ) {
        self.lines.push(Goal {
            what: what.to_string(),
            goal: format!("{} {}", figure(most.0), most.1),
            got: shown,
            floor,
            ratio: got / most.0,
            met: got <= most.0,
        });
    }

    /// Judges that `got` is at most `whole` divided by `least`.
    pub fn at_least(
        &mut self,
        what: &str,
        least: f64,
        (got, shown): (f64, String),
        whole: (f64, &str),
    ) {
        self.lines.push(Goal {
            what: what.to_string(),
            goal: format!("1 in {least}"),
            got: shown,
            floor: format!("{}: {}", whole.1, figure(whole.0)),
            ratio: whole.0 / got,
            met: whole.0 >= least * got,
        });
    }

    pub fn print(&self) {
        println!("\n### Goals\n");
        println!(
            "For goals with `x`, the ratio is to the figure under `against`; for `1 in`, it is that \
             figure divided by the result; for all others it is to the goal.\n"
        );
        head(&["", "goal", "got", "against", "ratio", ""]);
        for line in &self.lines {
            row(&[
                line.what.clone(),
                line.goal.clone(),
                line.got.clone(),
                line.floor.clone(),
                figure(line.ratio),
                if line.met { "met" } else { "**missed**" }.to_string(),
            ]);
        }
    }
}
