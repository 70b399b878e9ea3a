//! The workloads by name, by family: rows alone, joins, groups, the first of groups.

mod bids;
mod groups;
mod joins;
mod micro;
mod tops;

use crate::{input::Folder, play::Play};

pub type Query = fn(&Folder, &mut Play);

pub fn named(name: &str) -> Option<Query> {
    Some(match name {
        "count_per_key" => micro::count_per_key,
        "join_sum" => micro::join_sum,
        "q0" => bids::q0,
        "q1" => bids::q1,
        "q2" => bids::q2,
        "q3" => joins::q3,
        "q4" => joins::q4,
        "q9" => joins::q9,
        "q15" => groups::q15,
        "q16" => groups::q16,
        "q17" => groups::q17,
        "q18" => tops::q18,
        "q19" => tops::q19,
        "q20" => joins::q20,
        "q21" => bids::q21,
        "q22" => bids::q22,
        _ => return None,
    })
}
