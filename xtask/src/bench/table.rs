//! Rows of text to a Markdown table.

/// The table with one line for each row, its columns aligned.
pub fn markdown(head: &[&str], rows: &[Vec<String>]) -> String {
    let head: Vec<String> = head.iter().map(|&cell| cell.to_owned()).collect();
    let mut widths: Vec<usize> = head.iter().map(|cell| cell.chars().count()).collect();
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let line = |cells: &[String]| {
        let cells: Vec<String> = widths
            .iter()
            .zip(cells)
            .map(|(&width, cell)| format!("{cell:<width$}"))
            .collect();
        format!("| {} |\n", cells.join(" | "))
    };
    let rule: Vec<String> = widths.iter().map(|&width| "-".repeat(width)).collect();
    let mut text = line(&head) + &line(&rule);
    for row in rows {
        text += &line(row);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that columns are as wide as their widest cell.
    #[test]
    fn aligned() {
        let rows = [vec!["a".to_owned(), "long".to_owned()]];
        assert_eq!(
            markdown(&["name", "b"], &rows),
            "| name | b    |\n| ---- | ---- |\n| a    | long |\n"
        );
    }
}
