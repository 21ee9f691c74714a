//! Draws curves in a terminal, with the eight dots of a braille letter as pixels.

use std::fmt::Write as _;

/// Two dots across and four down in each letter.
const DOTS: [[u8; 2]; 4] = [[0x01, 0x08], [0x02, 0x10], [0x04, 0x20], [0x40, 0x80]];

/// A curve of points in order of x, in a field of so many letters, with its range at the axes. Points that are no
/// numbers are left out.
pub fn plot(points: &[(f64, f64)], width: usize, height: usize) -> String {
    let points: Vec<(f64, f64)> = points.iter().copied().filter(|(x, y)| x.is_finite() && y.is_finite()).collect();
    let (Some(&(first, _)), Some(&(last, _))) = (points.first(), points.last()) else {
        return "no points\n".into();
    };
    let (low, high) = points.iter().fold((f64::MAX, f64::MIN), |(low, high), (_, y)| (low.min(*y), high.max(*y)));
    let mut field = Field { letters: vec![vec![0; width]; height] };
    let (columns, rows) = ((width * 2 - 1) as f64, (height * 4 - 1) as f64);
    let share = |value: f64, from: f64, to: f64| if to > from { (value - from) / (to - from) } else { 0.5 };
    let dots: Vec<(i64, i64)> = points
        .iter()
        .map(|(x, y)| ((share(*x, first, last) * columns) as i64, ((1.0 - share(*y, low, high)) * rows) as i64))
        .collect();
    dots.first().into_iter().for_each(|&(x, y)| field.dot(x, y));
    dots.windows(2).for_each(|pair| field.line(pair[0], pair[1]));

    let (top, bottom) = (number(high), number(low));
    let margin = top.len().max(bottom.len());
    let mut out = String::new();
    for (i, row) in field.letters.iter().enumerate() {
        let label = if i == 0 {
            &top
        } else if i + 1 == height {
            &bottom
        } else {
            ""
        };
        let text: String = row.iter().map(|dots| char::from_u32(0x2800 + u32::from(*dots)).unwrap_or(' ')).collect();
        let _ = writeln!(out, "{label:>margin$} ┤{text}");
    }
    let (start, end) = (number(first), number(last));
    let gap = width.saturating_sub(start.len());
    let _ = writeln!(out, "{:margin$} └{}", "", "─".repeat(width));
    let _ = writeln!(out, "{:margin$}  {start}{end:>gap$}", "");
    out
}

struct Field {
    letters: Vec<Vec<u8>>,
}

impl Field {
    fn dot(&mut self, x: i64, y: i64) {
        let (x, y) = (x.max(0) as usize, y.max(0) as usize);
        if let Some(letter) = self.letters.get_mut(y / 4).and_then(|row| row.get_mut(x / 2)) {
            *letter |= DOTS[y % 4][x % 2];
        }
    }

    fn line(&mut self, from: (i64, i64), to: (i64, i64)) {
        let steps = (to.0 - from.0).abs().max((to.1 - from.1).abs()).max(1);
        for i in 0..=steps {
            let between = |a: i64, b: i64| a + (b - a) * i / steps;
            self.dot(between(from.0, to.0), between(from.1, to.1));
        }
    }
}

/// A number in few letters.
pub fn number(value: f64) -> String {
    let size = value.abs();
    if value == value.trunc() && size < 1e7 {
        format!("{value:.0}")
    } else if (0.001..10.0).contains(&size) {
        format!("{value:.3}")
    } else if (10.0..1e6).contains(&size) {
        format!("{value:.1}")
    } else {
        format!("{value:.2e}")
    }
}

/// The mean of each of so many equal stretches of a noisy curve, at most.
pub fn smooth(points: &[(f64, f64)], count: usize) -> Vec<(f64, f64)> {
    let size = points.len().div_ceil(count.max(1)).max(1);
    let mean = |values: &[(f64, f64)]| {
        let (x, y) = values.iter().fold((0.0, 0.0), |sum, value| (sum.0 + value.0, sum.1 + value.1));
        (x / values.len() as f64, y / values.len() as f64)
    };
    points.chunks(size).map(mean).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_curve_falls_from_left_to_right() {
        let points: Vec<(f64, f64)> = (0..40).map(|i| (f64::from(i), 1.0 / f64::from(i + 1))).collect();
        expect_test::expect![[r#"
                1 ┤⡇⠀⠀⠀⠀⠀⠀⠀⠀⠀⠀⠀⠀⠀⠀⠀⠀⠀⠀⠀
                  ┤⢇⠀⠀⠀⠀⠀⠀⠀⠀⠀⠀⠀⠀⠀⠀⠀⠀⠀⠀⠀
                  ┤⠘⢄⠀⠀⠀⠀⠀⠀⠀⠀⠀⠀⠀⠀⠀⠀⠀⠀⠀⠀
            0.025 ┤⠀⠀⠉⠒⠒⠢⠤⠤⠤⠤⠤⠤⠤⠤⠤⠤⠤⠤⠤⢄
                  └────────────────────
                   0                 39
        "#]]
        .assert_eq(&plot(&points, 20, 4));
    }

    #[test]
    fn any_points_can_be_drawn() {
        assert_eq!(plot(&[], 5, 2), "no points\n");
        assert_eq!(plot(&[(0.0, f64::NAN)], 5, 2), "no points\n");
        for points in [vec![(1.0, 2.0)], vec![(0.0, 5.0), (1.0, 5.0)], vec![(0.0, -1e300), (1e300, 1e300)]] {
            assert_eq!(plot(&points, 5, 2).lines().count(), 4, "{points:?}");
        }
    }

    #[test]
    fn numbers_are_short() {
        let cases =
            [(0.0, "0"), (1500.0, "1500"), (0.12345, "0.123"), (12.345, "12.3"), (1e-9, "1.00e-9"), (-2.5, "-2.500")];
        for (value, want) in cases {
            assert_eq!(number(value), want);
        }
    }

    #[test]
    fn a_long_curve_is_made_shorter() {
        let points: Vec<(f64, f64)> = (0..1000).map(|i| (f64::from(i), f64::from(i % 2))).collect();
        let short = smooth(&points, 100);
        assert_eq!((short.len(), short[3].1), (100, 0.5));
    }
}
