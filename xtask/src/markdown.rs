//! Rows of text to a Markdown table.

/// The table with one line for each row, its columns aligned.
pub fn table(head: &[impl AsRef<str>], rows: &[Vec<String>]) -> String {
    let head: Vec<String> = head.iter().map(|cell| cell.as_ref().to_owned()).collect();
    let width = |column: usize| {
        let cells = std::iter::once(&head).chain(rows);
        let widths = cells.map(|row| row.get(column).map_or(0, |cell| cell.chars().count()));
        widths.max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..head.len()).map(width).collect();
    let line = |cells: &Vec<String>| {
        let cells = widths.iter().zip(cells);
        let cells: Vec<_> = cells
            .map(|(&width, cell)| format!("{cell:<width$}"))
            .collect();
        format!("| {} |\n", cells.join(" | "))
    };
    let rule = widths.iter().map(|&width| "-".repeat(width)).collect();
    line(&head) + &line(&rule) + &rows.iter().map(line).collect::<String>()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that columns are as wide as their widest cell.
    #[test]
    fn aligned() {
        let rows = [vec!["a".to_owned(), "long".to_owned()]];
        assert_eq!(
            table(&["name", "b"], &rows),
            "| name | b    |\n| ---- | ---- |\n| a    | long |\n"
        );
    }
}
