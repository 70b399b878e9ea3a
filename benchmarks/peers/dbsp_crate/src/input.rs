//! Columns that lie in a folder, and the rows of every step made of them.
//!
//! Numbers are little-endian 64-bit words in `<table>.<column>.i64`; of texts the bytes lie in `<table>.<column>.text` one after the
//! other, and where each ends in `<table>.<column>.ends.i64`. `<table>.rows.i64` has the number of rows of each step.

use std::{
    fs,
    path::{Path, PathBuf},
};

/// What texts are to the crate's users.
pub type Text = String;

/// Where the columns are.
pub struct Folder(PathBuf);

/// The columns of one table.
pub struct Table<'a> {
    folder: &'a Folder,
    name: &'static str,
}

/// Texts without an allocation each.
pub struct Texts {
    ends: Vec<i64>,
    bytes: String,
}

impl Texts {
    pub fn at(&self, row: usize) -> Text {
        let first = if row == 0 { 0 } else { self.ends[row - 1] as usize };
        self.bytes[first..self.ends[row] as usize].to_owned()
    }
}

impl Folder {
    pub fn at(path: &Path) -> Self {
        Self(path.to_owned())
    }

    pub fn table(&self, name: &'static str) -> Table<'_> {
        Table { folder: self, name }
    }
}

impl Table<'_> {
    pub fn numbers(&self, column: &str) -> Vec<i64> {
        let bytes = self.bytes(&format!("{column}.i64"));
        bytes.chunks_exact(8).map(|word| i64::from_le_bytes(word.try_into().unwrap())).collect()
    }

    pub fn texts(&self, column: &str) -> Texts {
        let bytes = String::from_utf8(self.bytes(&format!("{column}.text"))).expect("texts are UTF-8");
        Texts { ends: self.numbers(&format!("{column}.ends")), bytes }
    }

    /// The rows of every step.
    pub fn steps<R>(&self, row: impl Fn(usize) -> R) -> Vec<Vec<R>> {
        let mut first = 0usize;
        self.numbers("rows")
            .iter()
            .map(|&rows| {
                let made = (first..first + rows as usize).map(&row).collect();
                first += rows as usize;
                made
            })
            .collect()
    }

    fn bytes(&self, file: &str) -> Vec<u8> {
        let path = self.folder.0.join(format!("{}.{file}", self.name));
        fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    }
}
