//! Queries for the first rows of groups.

use std::cmp::Ordering;

use dbsp::{
    operator::{CmpFunc, Min},
    utils::{Tup2, Tup5, Tup6, Tup7},
};

use crate::{
    input::{Folder, Text},
    play::Play,
    row,
};

const FIRST: usize = 10;

/// Time before nothing, price, channel, url, extra: the latest bid is the least.
type Dated = Tup5<i64, i64, Text, Text, Text>;
/// Price below nothing, bidder, channel, url, time, extra: the highest bid is the least.
type Priced = Tup6<i64, i64, Text, Text, i64, Text>;

pub fn q18(folder: &Folder, play: &mut Play) {
    let table = folder.table("bid");
    let (auction, bidder, price, ts) =
        (table.numbers("auction"), table.numbers("bidder"), table.numbers("price"), table.numbers("ts"));
    let (channel, url, extra) = (table.texts("channel"), table.texts("url"), table.texts("extra"));
    let steps = table.steps(|at| {
        let bid = Tup5(-ts[at], price[at], channel.at(at), url.at(at), extra.at(at));
        Tup2(Tup2(bidder[at], auction[at]), Tup2(bid, 1))
    });
    play.steps(
        0,
        steps,
        |circuit| {
            let (bids, handle) = circuit.add_input_indexed_zset::<Tup2<i64, i64>, Dated>();
            (handle, bids.aggregate(Min))
        },
        |Tup2(bidder, auction), Tup5(before, price, channel, url, extra)| {
            row![auction, bidder, price, channel, url, -before, extra]
        },
    );
}

/// The order of the values themselves.
struct Natural;

impl CmpFunc<Priced> for Natural {
    fn cmp(left: &Priced, right: &Priced) -> Ordering {
        left.cmp(right)
    }
}

pub fn q19(folder: &Folder, play: &mut Play) {
    let table = folder.table("bid");
    let (auction, bidder, price, ts) =
        (table.numbers("auction"), table.numbers("bidder"), table.numbers("price"), table.numbers("ts"));
    let (channel, url, extra) = (table.texts("channel"), table.texts("url"), table.texts("extra"));
    let steps = table.steps(|at| {
        let bid = Tup6(-price[at], bidder[at], channel.at(at), url.at(at), ts[at], extra.at(at));
        Tup2(auction[at], Tup2(bid, 1))
    });
    play.steps(
        0,
        steps,
        |circuit| {
            let (bids, handle) = circuit.add_input_indexed_zset::<i64, Priced>();
            let placed = bids.topk_row_number_custom_order::<Natural, _, _>(FIRST, |place, bid| {
                let Tup6(below, bidder, channel, url, ts, extra) = bid.clone();
                Tup7(-below, bidder, channel, url, ts, extra, place)
            });
            (handle, placed)
        },
        |auction, Tup7(price, bidder, channel, url, ts, extra, place)| {
            row![auction, bidder, price, channel, url, ts, extra, place]
        },
    );
}
