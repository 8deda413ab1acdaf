//! The table of goals: what was wanted, what was measured, and against what.

use crate::samples::{figure, head, row};

/// One line: a figure against its floor, or against a goal of its own.
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
    /// `got` shall be at most `most` times `floor`.
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

    /// `got` itself shall be at most `most`.
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

    /// `got` shall fit into `whole` at least `least` times.
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
            "The ratio is to what stands under `against` where the goal says `x`; for `1 in`, how \
             often it fits; else to the goal.\n"
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
