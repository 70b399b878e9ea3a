//! The benchmarks' workloads on the Rust `dbsp` crate: `peer <workload> <folder>`.
//!
//! The folder has the columns of the tables (`input`). Each line on standard input asks for one run of all steps in a new circuit,
//! with one worker. It holds the folder in which the answer is left, added up from what came out of every step, or nothing where the
//! time is wanted instead, or `profile` for the crate's own profile. After each run a line of JSON tells the seconds and processor seconds of its steps; the
//! rows of all steps are in memory before the clock runs.

mod answer;
mod input;
mod play;
mod queries;
mod timing;

use std::{env, io, path::Path};

use crate::{input::Folder, play::Play};

/// What the crate's own benchmarks allocate with.
#[global_allocator]
static ALLOCATOR: dbsp::mimalloc::MiMalloc = dbsp::mimalloc::MiMalloc;

fn main() {
    let arguments: Vec<String> = env::args().collect();
    let [_, workload, folder] = &arguments[..] else { panic!("peer <workload> <folder>") };
    let query = queries::named(workload).unwrap_or_else(|| panic!("no such workload: {workload}"));
    let folder = Folder::at(Path::new(folder));
    for line in io::stdin().lines() {
        let wanted = line.expect("a line");
        let mut play = Play::asked(wanted.trim());
        query(&folder, &mut play);
        println!("{}", play.end());
    }
}
