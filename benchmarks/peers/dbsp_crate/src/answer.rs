//! The answer: what came out of all steps, added up, and written as columns of the format that `input` reads.

use std::{collections::HashMap, fs, path::Path};

use crate::input::Text;

#[derive(Clone, PartialEq, Eq, Hash)]
pub enum Cell {
    Number(i64),
    Text(Text),
}

impl From<i64> for Cell {
    fn from(number: i64) -> Self {
        Self::Number(number)
    }
}

impl From<Text> for Cell {
    fn from(text: Text) -> Self {
        Self::Text(text)
    }
}

/// A row of the answer, of numbers and texts.
#[macro_export]
macro_rules! row {
    ($($cell:expr),* $(,)?) => { vec![$($crate::answer::Cell::from($cell)),*] };
}

pub type Row = Vec<Cell>;

#[derive(Default)]
pub struct Answer(HashMap<Row, i64>);

impl Answer {
    pub fn add(&mut self, row: Row, weight: i64) {
        *self.0.entry(row).or_default() += weight;
    }

    /// Column `n` as `answer.<n>`, each row as often as it is there.
    pub fn write(&self, folder: &Path) {
        let rows: Vec<&Row> = self
            .0
            .iter()
            .flat_map(|(row, &weight)| {
                assert!(weight >= 0, "a row is there less than not at all");
                std::iter::repeat(row).take(weight as usize)
            })
            .collect();
        for column in 0..rows.first().map_or(0, |row| row.len()) {
            write_column(folder, &rows, column);
        }
    }
}

fn write_column(folder: &Path, rows: &[&Row], column: usize) {
    let (mut words, mut bytes, mut texts) = (Vec::new(), Vec::new(), false);
    for row in rows {
        match &row[column] {
            Cell::Number(number) => words.extend(number.to_le_bytes()),
            Cell::Text(text) => {
                texts = true;
                bytes.extend(text.as_bytes());
                words.extend((bytes.len() as i64).to_le_bytes());
            }
        }
    }
    let kind = if texts { "ends.i64" } else { "i64" };
    fs::write(folder.join(format!("answer.{column}.{kind}")), words).expect("the answer");
    if texts {
        fs::write(folder.join(format!("answer.{column}.text")), bytes).expect("the answer");
    }
}
