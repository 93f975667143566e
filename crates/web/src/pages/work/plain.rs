//! Tables without links for sorting: lists beside the page's own table.

use crate::frame::{Cell, Column};
use serde::Serialize;

/// A table that is always in the order in which it is given.
#[derive(Debug, Clone, Serialize)]
pub struct Plain {
    caption: String,
    columns: Vec<Column>,
    rows: Vec<Vec<Cell>>,
}

impl Plain {
    /// A table.
    pub fn of(caption: impl Into<String>, columns: Vec<Column>, rows: Vec<Vec<Cell>>) -> Self {
        Self {
            caption: caption.into(),
            columns,
            rows,
        }
    }

    /// Keeps the columns with these keys.
    pub fn keep(self, keys: &[&str]) -> Self {
        // Rows have no keys, so cells are kept by place.
        let is_kept: Vec<bool> = self
            .columns
            .iter()
            .map(|one| keys.contains(&&*one.key))
            .collect();
        Self {
            rows: self
                .rows
                .into_iter()
                .map(|row| kept(row, &is_kept))
                .collect(),
            columns: kept(self.columns, &is_kept),
            caption: self.caption,
        }
    }
}

fn kept<T>(all: Vec<T>, is_kept: &[bool]) -> Vec<T> {
    all.into_iter()
        .zip(is_kept)
        .filter(|(_, kept)| **kept)
        .map(|(one, _)| one)
        .collect()
}
