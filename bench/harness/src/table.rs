//! Tables in Markdown.

use std::fmt;

/// Table with a head and rows of equally many cells.
#[derive(Clone, Debug, Default)]
pub struct Table {
    head: Vec<String>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// Creates a table with these titles.
    pub fn new<T: ToString>(titles: &[T]) -> Table {
        Table { head: titles.iter().map(ToString::to_string).collect(), rows: Vec::new() }
    }

    /// Adds a row; missing cells are empty.
    pub fn row<T: ToString>(&mut self, cells: &[T]) {
        let mut cells: Vec<String> = cells.iter().map(ToString::to_string).collect();
        cells.resize(self.head.len().max(cells.len()), String::new());
        self.rows.push(cells);
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut line = |cells: &[String]| {
            // A bar would end the cell.
            let cells: Vec<String> = cells.iter().map(|cell| cell.replace('|', "\\|")).collect();
            writeln!(f, "| {} |", cells.join(" | "))
        };
        line(&self.head)?;
        let mut rule = vec!["---:".to_string(); self.head.len()];
        if let Some(first) = rule.first_mut() {
            *first = "---".to_string();
        }
        line(&rule)?;
        self.rows.iter().try_for_each(|row| line(row))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_has_a_head_a_rule_and_right_aligned_figures() {
        let mut table = Table::new(&["", "files", "heap"]);
        table.row(&["read", "1.0", "2.0"]);
        let text = "|  | files | heap |\n| --- | ---: | ---: |\n| read | 1.0 | 2.0 |\n";
        assert_eq!(table.to_string(), text);
    }

    #[test]
    fn short_rows_are_filled_and_bars_are_escaped() {
        let mut table = Table::new(&["a", "b"]);
        table.row(&["x|y"]);
        assert!(table.to_string().ends_with("| x\\|y |  |\n"));
    }
}
