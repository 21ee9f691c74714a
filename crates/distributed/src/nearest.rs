//! The name that somebody probably meant.

/// Of several names the one most like what was written, if any is like it at all.
pub fn nearest<'a>(written: &str, names: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let far = (written.chars().count() / 3).max(1);
    let distance = |name: &'a str| (distance(&written.to_lowercase(), &name.to_lowercase()), name);
    names.into_iter().map(distance).filter(|(distance, _)| *distance <= far).min().map(|(_, name)| name)
}

/// How many letters must be put in, taken out, changed, or swapped with their neighbour.
fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let mut rows = vec![vec![0; b.len() + 1]; a.len() + 1];
    for i in 0..=a.len() {
        for j in 0..=b.len() {
            rows[i][j] = match (i, j) {
                (0, _) => j,
                (_, 0) => i,
                _ => {
                    let changed = rows[i - 1][j - 1] + usize::from(a[i - 1] != b[j - 1]);
                    let is_swap = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
                    let swapped = if is_swap { rows[i - 2][j - 2] + 1 } else { usize::MAX };
                    changed.min(rows[i - 1][j] + 1).min(rows[i][j - 1] + 1).min(swapped)
                }
            };
        }
    }
    rows[a.len()][b.len()]
}

#[cfg(test)]
mod tests {
    use super::nearest;

    #[test]
    fn the_likeliest_name_is_found() {
        let names = ["ps", "worker", "evaluator"];
        for (written, want) in [
            ("wroker", Some("worker")),
            ("Worker", Some("worker")),
            ("pss", Some("ps")),
            ("chief", None),
            ("evalutor", Some("evaluator")),
        ] {
            assert_eq!(nearest(written, names), want, "{written}");
        }
        assert_eq!(nearest("x", []), None);
    }
}
