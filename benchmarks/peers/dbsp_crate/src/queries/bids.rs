//! Queries that look at one bid at a time.

use dbsp::utils::{Tup2, Tup5, Tup7};

use crate::{
    input::{Folder, Text},
    play::Play,
    row,
};

const EURO_THOUSANDTHS: i64 = 908;

type Bid = Tup5<i64, i64, i64, i64, Text>;

/// Bids without channel and url.
fn bids(folder: &Folder) -> Vec<Vec<Tup2<Bid, i64>>> {
    let table = folder.table("bid");
    let (auction, bidder, price, ts) =
        (table.numbers("auction"), table.numbers("bidder"), table.numbers("price"), table.numbers("ts"));
    let extra = table.texts("extra");
    table.steps(|at| Tup2(Tup5(auction[at], bidder[at], price[at], ts[at], extra.at(at)), 1))
}

pub fn q0(folder: &Folder, play: &mut Play) {
    play.steps(
        0,
        bids(folder),
        |circuit| {
            let (bids, handle) = circuit.add_input_zset::<Bid>();
            (handle, bids)
        },
        |Tup5(auction, bidder, price, ts, extra), ()| row![auction, bidder, price, ts, extra],
    );
}

/// In thousandths of euros, whole numbers.
pub fn q1(folder: &Folder, play: &mut Play) {
    play.steps(
        0,
        bids(folder),
        |circuit| {
            let (bids, handle) = circuit.add_input_zset::<Bid>();
            let priced = bids.map(|Tup5(auction, bidder, price, ts, extra)| {
                Tup5(*auction, *bidder, *ts, extra.clone(), price * EURO_THOUSANDTHS)
            });
            (handle, priced)
        },
        |Tup5(auction, bidder, ts, extra, euros), ()| row![auction, bidder, ts, extra, euros],
    );
}

pub fn q2(folder: &Folder, play: &mut Play) {
    let table = folder.table("bid");
    let (auction, price) = (table.numbers("auction"), table.numbers("price"));
    play.steps(
        0,
        table.steps(|at| Tup2(Tup2(auction[at], price[at]), 1)),
        |circuit| {
            let (bids, handle) = circuit.add_input_zset::<Tup2<i64, i64>>();
            (handle, bids.filter(|Tup2(auction, _)| auction % 123 == 0))
        },
        |Tup2(auction, price), ()| row![auction, price],
    );
}

/// What follows `channel_id=` at the beginning or behind an `&`, up to the next `&`, if anything does.
fn channel_id(url: &str) -> Option<&str> {
    const NAME: &str = "channel_id=";
    let (at, _) = url.match_indices(NAME).find(|(at, _)| *at == 0 || url.as_bytes()[at - 1] == b'&')?;
    url[at + NAME.len()..].split('&').next().filter(|id| !id.is_empty())
}

fn channel_number<'a>(channel: &str, url: &'a str) -> Option<&'a str> {
    match channel.to_lowercase().as_str() {
        "apple" => Some("0"),
        "google" => Some("1"),
        "facebook" => Some("2"),
        "baidu" => Some("3"),
        _ => channel_id(url),
    }
}

type Visit = Tup5<i64, i64, i64, Text, Text>;

/// Bids with where they came from.
fn visits(folder: &Folder) -> Vec<Vec<Tup2<Visit, i64>>> {
    let table = folder.table("bid");
    let (auction, bidder, price) = (table.numbers("auction"), table.numbers("bidder"), table.numbers("price"));
    let (channel, url) = (table.texts("channel"), table.texts("url"));
    table.steps(|at| Tup2(Tup5(auction[at], bidder[at], price[at], channel.at(at), url.at(at)), 1))
}

pub fn q21(folder: &Folder, play: &mut Play) {
    play.steps(
        0,
        visits(folder),
        |circuit| {
            let (bids, handle) = circuit.add_input_zset::<Visit>();
            let numbered = bids.flat_map(|Tup5(auction, bidder, price, channel, url)| {
                channel_number(channel, url)
                    .map(|number| Tup5(*auction, *bidder, *price, channel.clone(), number.to_owned()))
            });
            (handle, numbered)
        },
        |Tup5(auction, bidder, price, channel, number), ()| row![auction, bidder, price, channel, number],
    );
}

pub fn q22(folder: &Folder, play: &mut Play) {
    play.steps(
        0,
        visits(folder),
        |circuit| {
            let (bids, handle) = circuit.add_input_zset::<Visit>();
            let split = bids.map(|Tup5(auction, bidder, price, channel, url)| {
                let mut parts = url.split('/').skip(3).map(str::to_owned);
                let mut next = || parts.next().unwrap_or_default();
                Tup7(*auction, *bidder, *price, channel.clone(), next(), next(), next())
            });
            (handle, split)
        },
        |Tup7(auction, bidder, price, channel, one, two, three), ()| {
            row![auction, bidder, price, channel, one, two, three]
        },
    );
}

