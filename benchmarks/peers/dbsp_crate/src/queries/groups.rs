//! Queries that count bids in bands of prices.

use dbsp::{
    operator::{Max, Min},
    utils::{Tup2, Tup3, Tup4, Tup5, Tup6},
    DBData, OrdIndexedZSet, OrdZSet, RootCircuit, Stream,
};

use crate::{
    answer::Row,
    input::{Folder, Text},
    play::Play,
    row,
};

const MICROSECONDS_PER_MINUTE: i64 = 60 * 1_000_000;
const MINUTES_PER_DAY: i64 = 24 * 60;
const MICROSECONDS_PER_DAY: i64 = MINUTES_PER_DAY * MICROSECONDS_PER_MINUTE;
const LOW: i64 = 10_000;
const HIGH: i64 = 1_000_000;

/// All, and those in each of three bands of prices.
type Bands = Tup4<i64, i64, i64, i64>;

fn bands(price: i64) -> Bands {
    Tup4(1, (price < LOW) as i64, (LOW..HIGH).contains(&price) as i64, (price >= HIGH) as i64)
}

fn seen(Tup4(all, low, middle, high): &Bands) -> Bands {
    Tup4((*all > 0) as i64, (*low > 0) as i64, (*middle > 0) as i64, (*high > 0) as i64)
}

/// `2015-07-15`, of days since 1970 (Hinnant's `civil_from_days`).
fn date(days: i64) -> Text {
    let shifted = days + 719_468;
    let era = shifted.div_euclid(146_097);
    let day_of_era = shifted.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    let year = year_of_era + era * 400 + (month <= 2) as i64;
    format!("{year:04}-{month:02}-{day:02}")
}

fn cells(bands: Bands) -> Row {
    let Tup4(all, low, middle, high) = bands;
    row![all, low, middle, high]
}

/// Different values per group, in each band: how often each value is there in each, then of how many that is more than never.
fn distinct<K: DBData>(
    valued: &Stream<RootCircuit, OrdIndexedZSet<Tup2<K, i64>, i64>>,
) -> Stream<RootCircuit, OrdIndexedZSet<K, Bands>> {
    valued
        .aggregate_linear(|price| bands(*price))
        .map_index(|(Tup2(key, _), found)| (key.clone(), seen(found)))
        .aggregate_linear(|found| *found)
}

/// Counts, different bidders and different auctions of every group.
fn counted<K: DBData>(
    bids: &Stream<RootCircuit, OrdZSet<Tup4<K, i64, i64, i64>>>,
) -> Stream<RootCircuit, OrdIndexedZSet<K, Tup3<Bands, Bands, Bands>>> {
    let totals = bids.map_index(|Tup4(key, _, _, price)| (key.clone(), *price)).aggregate_linear(|price| bands(*price));
    let bidders = distinct(&bids.map_index(|Tup4(key, bidder, _, price)| (Tup2(key.clone(), *bidder), *price)));
    let auctions = distinct(&bids.map_index(|Tup4(key, _, auction, price)| (Tup2(key.clone(), *auction), *price)));
    totals
        .join_index(&bidders, |key, totals, bidders| Some((key.clone(), Tup2(*totals, *bidders))))
        .join_index(&auctions, |key, Tup2(totals, bidders), auctions| {
            Some((key.clone(), Tup3(*totals, *bidders, *auctions)))
        })
}

/// Day, bidder, auction, price.
type Daily = Tup4<i64, i64, i64, i64>;

pub fn q15(folder: &Folder, play: &mut Play) {
    let table = folder.table("bid");
    let (auction, bidder, price, ts) =
        (table.numbers("auction"), table.numbers("bidder"), table.numbers("price"), table.numbers("ts"));
    play.steps(
        0,
        table.steps(|at| Tup2(Tup4(ts[at], bidder[at], auction[at], price[at]), 1)),
        |circuit| {
            let (rows, handle) = circuit.add_input_zset::<Daily>();
            let bids = rows.map(|Tup4(ts, bidder, auction, price)| {
                Tup4(ts.div_euclid(MICROSECONDS_PER_DAY), *bidder, *auction, *price)
            });
            (handle, counted(&bids).map_index(|(day, found)| (date(*day), *found)))
        },
        |day, Tup3(totals, bidders, auctions)| {
            [row![day], cells(totals), cells(bidders), cells(auctions)].concat()
        },
    );
}

type Place = Tup2<Text, i64>;

pub fn q16(folder: &Folder, play: &mut Play) {
    let table = folder.table("bid");
    let (auction, bidder, price, ts) =
        (table.numbers("auction"), table.numbers("bidder"), table.numbers("price"), table.numbers("ts"));
    let channel = table.texts("channel");
    play.steps(
        0,
        table.steps(|at| Tup2(Tup5(channel.at(at), ts[at], bidder[at], auction[at], price[at]), 1)),
        |circuit| {
            let (rows, handle) = circuit.add_input_zset::<Tup5<Text, i64, i64, i64, i64>>();
            let day = |ts: &i64| ts.div_euclid(MICROSECONDS_PER_DAY);
            let bids = rows.map(move |Tup5(channel, ts, bidder, auction, price)| {
                Tup4(Tup2(channel.clone(), day(ts)), *bidder, *auction, *price)
            });
            let minutes = rows
                .map_index(move |Tup5(channel, ts, _, _, _)| {
                    (Tup2(channel.clone(), day(ts)), ts.div_euclid(MICROSECONDS_PER_MINUTE) % MINUTES_PER_DAY)
                })
                .aggregate(Max);
            let counts: Stream<RootCircuit, OrdIndexedZSet<Place, _>> = counted(&bids);
            let view = counts.join_index(&minutes, |Tup2(channel, day), found, minute| {
                let time = format!("{:02}:{:02}", minute / 60, minute % 60);
                Some((channel.clone(), Tup3(date(*day), time, *found)))
            });
            (handle, view)
        },
        |channel, Tup3(day, minute, Tup3(totals, bidders, auctions))| {
            [row![channel, day, minute], cells(totals), cells(bidders), cells(auctions)].concat()
        },
    );
}

pub fn q17(folder: &Folder, play: &mut Play) {
    let table = folder.table("bid");
    let (auction, price, ts) = (table.numbers("auction"), table.numbers("price"), table.numbers("ts"));
    play.steps(
        0,
        table.steps(|at| Tup2(Tup3(auction[at], ts[at], price[at]), 1)),
        |circuit| {
            let (rows, handle) = circuit.add_input_zset::<Tup3<i64, i64, i64>>();
            let prices = rows.map_index(|Tup3(auction, ts, price)| {
                (Tup2(*auction, ts.div_euclid(MICROSECONDS_PER_DAY)), *price)
            });
            let sums = prices.aggregate_linear(|price| Tup2(bands(*price), *price));
            let (lowest, highest) = (prices.aggregate(Min), prices.aggregate(Max));
            let view = sums
                .join_index(&lowest, |key, sums, lowest| Some((*key, Tup2(*sums, *lowest))))
                .join_index(&highest, |Tup2(auction, day), Tup2(Tup2(counts, spent), lowest), highest| {
                    let average = spent / counts.0;
                    Some((*auction, Tup6(date(*day), *counts, *lowest, *highest, *spent, average)))
                });
            (handle, view)
        },
        |auction, Tup6(day, counts, lowest, highest, spent, average)| {
            [row![auction, day], cells(counts), row![lowest, highest, spent, average]].concat()
        },
    );
}
