//! Queries that join bids or persons to auctions.

use dbsp::{
    operator::{Max, Min},
    utils::{Tup2, Tup3, Tup4, Tup6, Tup9},
};

use crate::{
    input::{Folder, Text},
    play::Play,
    row,
};

const CATEGORY: i64 = 10;
const STATES: [&str; 3] = ["OR", "ID", "CA"];

type Keyed<V> = Vec<Vec<Tup2<i64, Tup2<V, i64>>>>;

pub fn q3(folder: &Folder, play: &mut Play) {
    let (auction, person) = (folder.table("auction"), folder.table("person"));
    let (id, seller, category) = (auction.numbers("id"), auction.numbers("seller"), auction.numbers("category"));
    let who = person.numbers("id");
    let (name, city, state) = (person.texts("name"), person.texts("city"), person.texts("state"));
    let auctions = auction.steps(|at| Tup2(seller[at], Tup2(Tup2(id[at], category[at]), 1)));
    let persons = person.steps(|at| Tup2(who[at], Tup2(Tup3(name.at(at), city.at(at), state.at(at)), 1)));
    play.steps(
        0,
        auctions.into_iter().zip(persons).collect(),
        |circuit| {
            let (auction_rows, auctions) = circuit.add_input_indexed_zset::<i64, Tup2<i64, i64>>();
            let (person_rows, persons) = circuit.add_input_indexed_zset::<i64, Tup3<Text, Text, Text>>();
            let local = person_rows.filter(|(_, Tup3(_, _, state))| STATES.contains(&state.as_str()));
            let sold = auction_rows.filter(|(_, Tup2(_, category))| *category == CATEGORY);
            let sellers = sold.join(&local, |_, Tup2(id, _), Tup3(name, city, state)| {
                Tup4(name.clone(), city.clone(), state.clone(), *id)
            });
            ((auctions, persons), sellers)
        },
        |Tup4(name, city, state, id), ()| row![name, city, state, id],
    );
}

/// The average of the highest bid in time of every auction, per category.
pub fn q4(folder: &Folder, play: &mut Play) {
    let (auction, bid) = (folder.table("auction"), folder.table("bid"));
    let (id, category, begins, expires) =
        (auction.numbers("id"), auction.numbers("category"), auction.numbers("ts"), auction.numbers("expires"));
    let (on, price, ts) = (bid.numbers("auction"), bid.numbers("price"), bid.numbers("ts"));
    let auctions = auction.steps(|at| Tup2(id[at], Tup2(Tup3(category[at], begins[at], expires[at]), 1)));
    let bids = bid.steps(|at| Tup2(on[at], Tup2(Tup2(price[at], ts[at]), 1)));
    play.steps(
        0,
        auctions.into_iter().zip(bids).collect(),
        |circuit| {
            let (auction_rows, auctions) = circuit.add_input_indexed_zset::<i64, Tup3<i64, i64, i64>>();
            let (bid_rows, bids) = circuit.add_input_indexed_zset::<i64, Tup2<i64, i64>>();
            let sums = auction_rows
                .join_index(&bid_rows, |id, Tup3(category, begins, expires), Tup2(price, ts)| {
                    (begins <= ts && ts <= expires).then_some((Tup2(*id, *category), *price))
                })
                .aggregate(Max)
                .map_index(|(Tup2(_, category), price)| (*category, *price))
                .aggregate_linear(|price| Tup2(*price, 1i64));
            ((auctions, bids), sums)
        },
        |category, Tup2(sum, count)| row![category, sum / count],
    );
}

/// Item, description, initial price, reserve, beginning, end, seller, category, extra.
type Auction = Tup9<Text, Text, i64, i64, i64, i64, i64, i64, Text>;
/// Price, bidder, channel, url, time, extra.
type Bid = Tup6<i64, i64, Text, Text, i64, Text>;
/// Bids in the order of an auction's winner: price below nothing, time, bidder, channel, url, extra.
type Ranked = Tup6<i64, i64, i64, Text, Text, Text>;

fn auctions(folder: &Folder) -> Keyed<Auction> {
    let table = folder.table("auction");
    let (id, initial, reserve, ts) =
        (table.numbers("id"), table.numbers("initial"), table.numbers("reserve"), table.numbers("ts"));
    let (expires, seller, category) = (table.numbers("expires"), table.numbers("seller"), table.numbers("category"));
    let (item, description, extra) = (table.texts("item"), table.texts("description"), table.texts("extra"));
    table.steps(|at| {
        let (texts, end) = ((item.at(at), description.at(at)), extra.at(at));
        let auction = Tup9(
            texts.0, texts.1, initial[at], reserve[at], ts[at], expires[at], seller[at], category[at], end,
        );
        Tup2(id[at], Tup2(auction, 1))
    })
}

fn bids<B>(
    folder: &Folder,
    bid: impl Fn(i64, i64, Text, Text, i64, Text) -> B,
) -> Keyed<B> {
    let table = folder.table("bid");
    let (auction, bidder, price, ts) =
        (table.numbers("auction"), table.numbers("bidder"), table.numbers("price"), table.numbers("ts"));
    let (channel, url, extra) = (table.texts("channel"), table.texts("url"), table.texts("extra"));
    table.steps(|at| {
        let row = bid(price[at], bidder[at], channel.at(at), url.at(at), ts[at], extra.at(at));
        Tup2(auction[at], Tup2(row, 1))
    })
}

/// The winner is found before the auction's texts are fetched, so that they are not copied for every bid.
pub fn q9(folder: &Folder, play: &mut Play) {
    let ranked = bids(folder, |price, bidder, channel, url, ts, extra| Tup6(-price, ts, bidder, channel, url, extra));
    play.steps(
        0,
        auctions(folder).into_iter().zip(ranked).collect(),
        |circuit| {
            let (auction_rows, auctions) = circuit.add_input_indexed_zset::<i64, Auction>();
            let (bid_rows, bids) = circuit.add_input_indexed_zset::<i64, Ranked>();
            let open = auction_rows.map_index(|(id, Tup9(_, _, _, _, begins, expires, _, _, _))| {
                (*id, Tup2(*begins, *expires))
            });
            let winners = open
                .join_index(&bid_rows, |id, Tup2(begins, expires), bid| {
                    (*begins <= bid.1 && bid.1 <= *expires).then(|| (*id, bid.clone()))
                })
                .aggregate(Min);
            let won = auction_rows
                .join_index(&winners, |id, auction, bid| Some((*id, Tup2(auction.clone(), bid.clone()))));
            ((auctions, bids), won)
        },
        |id, Tup2(auction, bid)| {
            let Tup9(item, description, initial, reserve, ts, expires, seller, category, extra) = auction;
            let Tup6(below, ts_bid, bidder, channel, url, extra_bid) = bid;
            row![
                id, item, description, initial, reserve, ts, expires, seller, category, extra, bidder, -below,
                channel, url, ts_bid, extra_bid
            ]
        },
    );
}

pub fn q20(folder: &Folder, play: &mut Play) {
    let bids = bids(folder, |price, bidder, channel, url, ts, extra| Tup6(price, bidder, channel, url, ts, extra));
    play.steps(
        0,
        auctions(folder).into_iter().zip(bids).collect(),
        |circuit| {
            let (auction_rows, auctions) = circuit.add_input_indexed_zset::<i64, Auction>();
            let (bid_rows, bids) = circuit.add_input_indexed_zset::<i64, Bid>();
            let chosen = auction_rows.filter(|(_, auction)| auction.7 == CATEGORY);
            let joined = bid_rows
                .join_index(&chosen, |auction, bid, row| Some((*auction, Tup2(bid.clone(), row.clone()))));
            ((auctions, bids), joined)
        },
        |on, Tup2(Tup6(price, bidder, channel, url, ts_bid, extra_bid), auction)| {
            let Tup9(item, description, initial, reserve, ts, expires, seller, category, extra) = auction;
            row![
                on, bidder, price, channel, url, ts_bid, extra_bid, item, description, initial, reserve, ts, expires,
                seller, category, extra
            ]
        },
    );
}

