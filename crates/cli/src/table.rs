//! Lines up columns.

/// Rows of cells as lines whose columns stand under each other.
pub fn lines(rows: &[Vec<String>]) -> Vec<String> {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max();
    let widths: Vec<usize> = (0..columns).map(|column| width(column).unwrap_or(0)).collect();
    let line = |row: &Vec<String>| {
        let cells: Vec<String> = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}")).collect();
        cells.join("  ").trim_end().to_string()
    };
    rows.iter().map(line).collect()
}

/// Rows below a header, as one text.
pub fn table<const N: usize>(header: [&str; N], rows: impl IntoIterator<Item = [String; N]>) -> String {
    let header = header.map(String::from).to_vec();
    let rows: Vec<Vec<String>> = std::iter::once(header).chain(rows.into_iter().map(Vec::from)).collect();
    lines(&rows).into_iter().map(|line| line + "\n").collect()
}

/// A number of bytes for people.
pub fn bytes(count: u64) -> String {
    match count {
        0..10_000 => format!("{count} B"),
        10_000..10_000_000 => format!("{} KB", count / 1000),
        10_000_000..10_000_000_000 => format!("{} MB", count / 1_000_000),
        _ => format!("{} GB", count / 1_000_000_000),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_stand_under_each_other() {
        let rows = [["a", "long cell", "1"], ["longer", "b", ""]].map(|row| row.map(String::from));
        assert_eq!(table(["X", "Y", "Z"], rows), "X       Y          Z\na       long cell  1\nlonger  b\n");
        assert_eq!([bytes(12), bytes(12_345), bytes(12_345_678)], ["12 B", "12 KB", "12 MB"]);
    }
}
