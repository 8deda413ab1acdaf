//! RGB colours: a ramp of perceptually even hues, and mixing.
//!
//! The ramp must keep neighbouring ranks distinguishable, because they stand for block sizes.

/// RGB colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Colour {
    /// Red.
    pub red: u8,
    /// Green.
    pub green: u8,
    /// Blue.
    pub blue: u8,
}

/// Hues of the ramp's ends in degrees of OKLCH: from blue through green and yellow to red.
const HUES: (f64, f64) = (250.0, 25.0);

impl Colour {
    /// Creates a colour from its components.
    pub const fn new(red: u8, green: u8, blue: u8) -> Colour {
        Colour { red, green, blue }
    }

    /// Returns colour number `rank` of `count` distinguishable ones: hues from blue to red, every
    /// second one lighter.
    pub fn of_rank(rank: usize, count: usize) -> Colour {
        let share = match count {
            0 | 1 => 0.0,
            count => rank as f64 / (count - 1) as f64,
        };
        let lightness = if rank.is_multiple_of(2) { 0.62 } else { 0.73 };
        Colour::of_oklch(lightness, 0.14, HUES.0 + (HUES.1 - HUES.0) * share)
    }

    /// Blends this colour over another one. `share` is the opacity.
    pub fn over(self, below: Colour, share: f32) -> Colour {
        let mix =
            |a: u8, b: u8| (f32::from(a) * share + f32::from(b) * (1.0 - share)).round() as u8;
        Colour {
            red: mix(self.red, below.red),
            green: mix(self.green, below.green),
            blue: mix(self.blue, below.blue),
        }
    }

    /// Converts from lightness, chroma and hue of Björn Ottosson's OKLab
    /// (<https://bottosson.github.io/posts/oklab/>).
    fn of_oklch(lightness: f64, chroma: f64, hue_degrees: f64) -> Colour {
        let (sin, cos) = hue_degrees.to_radians().sin_cos();
        let (a, b) = (chroma * cos, chroma * sin);
        let l = (lightness + 0.396_337_777_4 * a + 0.215_803_757_3 * b).powi(3);
        let m = (lightness - 0.105_561_345_8 * a - 0.063_854_172_8 * b).powi(3);
        let s = (lightness - 0.089_484_177_5 * a - 1.291_485_548_0 * b).powi(3);
        let gamma = |linear: f64| {
            let linear = linear.clamp(0.0, 1.0);
            let encoded = match linear <= 0.003_130_8 {
                true => 12.92 * linear,
                false => 1.055 * linear.powf(1.0 / 2.4) - 0.055,
            };
            (encoded * 255.0).round() as u8
        };
        Colour {
            red: gamma(4.076_741_662_1 * l - 3.307_711_591_3 * m + 0.230_969_929_2 * s),
            green: gamma(-1.268_438_004_6 * l + 2.609_757_401_1 * m - 0.341_319_396_5 * s),
            blue: gamma(-0.004_196_086_3 * l - 0.703_418_614_7 * m + 1.707_614_701_0 * s),
        }
    }
}

/// Formats as `#rrggbb`.
impl std::fmt::Display for Colour {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "#{:02x}{:02x}{:02x}", self.red, self.green, self.blue)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn forty_ranks_have_different_colours_and_known_colours_convert_correctly() {
        let all: HashSet<String> = (0..40).map(|n| Colour::of_rank(n, 40).to_string()).collect();
        assert_eq!(all.len(), 40);
        assert_eq!(Colour::of_oklch(1.0, 0.0, 0.0).to_string(), "#ffffff");
        assert_eq!(Colour::of_oklch(0.627_96, 0.257_68, 29.234).to_string(), "#ff0000");
        let (black, white) = (Colour::new(0, 0, 0), Colour::new(255, 255, 255));
        assert_eq!(white.over(black, 0.5).to_string(), "#808080");
    }
}
