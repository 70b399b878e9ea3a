//! Count per key; join, then sum.

use dbsp::utils::{Tup2, Tup3};

use crate::{input::Folder, play::Play, row};

pub fn count_per_key(folder: &Folder, play: &mut Play) {
    let table = folder.table("t");
    let k = table.numbers("k");
    play.steps(
        0,
        table.steps(|at| Tup2(k[at], 1)),
        |circuit| {
            let (rows, handle) = circuit.add_input_zset::<i64>();
            (handle, rows.map_index(|k| (*k, ())).weighted_count())
        },
        |key, count| row![key, count],
    );
}

/// The items are there before the first step.
pub fn join_sum(folder: &Folder, play: &mut Play) {
    let (orders, items) = (folder.table("orders"), folder.table("items"));
    let (item, quantity) = (orders.numbers("item"), orders.numbers("quantity"));
    let (key, category, price) = (items.numbers("item"), items.numbers("category"), items.numbers("price"));
    let mut first = items.steps(|at| Tup2(Tup3(key[at], category[at], price[at]), 1));
    let mut steps = vec![(Vec::new(), first.remove(0))];
    steps.extend(orders.steps(|at| Tup2(Tup2(item[at], quantity[at]), 1)).into_iter().map(|rows| (rows, Vec::new())));
    play.steps(
        1,
        steps,
        |circuit| {
            let (order_rows, orders) = circuit.add_input_zset::<Tup2<i64, i64>>();
            let (item_rows, items) = circuit.add_input_zset::<Tup3<i64, i64, i64>>();
            let by_item = order_rows.map_index(|Tup2(item, quantity)| (*item, *quantity));
            let prices = item_rows.map_index(|Tup3(item, category, price)| (*item, Tup2(*category, *price)));
            let paid = by_item
                .join_index(&prices, |_, quantity, Tup2(category, price)| Some((*category, quantity * price)))
                .aggregate_linear(|paid| Tup2(*paid, 1i64));
            ((orders, items), paid)
        },
        |key, Tup2(paid, count)| row![key, paid, count],
    );
}
