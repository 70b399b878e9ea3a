//! The benchmarks' workloads on the Rust `dbsp` crate: `peer <workload> <folder> <answer file>`.
//!
//! The folder has raw little-endian 64-bit columns `<table>.<column>.i64`, and `<table>.rows.i64` with the rows of each step.
//! Everything is read before the clock runs. One worker. Prints seconds and processor seconds of all steps as JSON; the answer,
//! summed from what came out of every step outside of the time measured, goes to the file as 64-bit words, row by row.

use std::{collections::BTreeMap, env, fs, time::Instant};

use dbsp::{
    operator::Max,
    typed_batch::{IndexedZSetReader, SpineSnapshot},
    utils::{Tup2, Tup3},
    OrdIndexedZSet, OutputHandle, Runtime,
};

const TICKS: f64 = 100.0;

fn column(folder: &str, table: &str, name: &str) -> Vec<i64> {
    let path = format!("{folder}/{table}.{name}.i64");
    let bytes = fs::read(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
    bytes.chunks_exact(8).map(|word| i64::from_le_bytes(word.try_into().unwrap())).collect()
}

/// The rows of every step of a table, with weight 1.
fn steps<R: dbsp::DBData>(folder: &str, table: &str, row: impl Fn(usize) -> R) -> Vec<Vec<Tup2<R, i64>>> {
    let mut first = 0usize;
    column(folder, table, "rows")
        .iter()
        .map(|&rows| {
            let made = (first..first + rows as usize).map(|at| Tup2(row(at), 1)).collect();
            first += rows as usize;
            made
        })
        .collect()
}

fn cpu_s() -> f64 {
    let text = fs::read_to_string("/proc/self/stat").unwrap();
    let fields: Vec<&str> = text[text.rfind(')').unwrap() + 2..].split(' ').collect();
    (fields[11].parse::<f64>().unwrap() + fields[12].parse::<f64>().unwrap()) / TICKS
}

/// Adds up what came out of every step.
#[derive(Default)]
struct Answer(BTreeMap<Vec<i64>, i64>);

impl Answer {
    fn add<V: dbsp::DBData>(
        &mut self,
        output: &OutputHandle<SpineSnapshot<OrdIndexedZSet<i64, V>>>,
        row: impl Fn(i64, V) -> Vec<i64>,
    ) {
        for (key, value, weight) in output.concat().consolidate().iter() {
            *self.0.entry(row(key, value)).or_default() += weight;
        }
    }

    fn write(&self, path: &str) {
        let mut bytes = Vec::new();
        for (row, weight) in self.0.iter().filter(|(_, weight)| **weight != 0) {
            assert_eq!(*weight, 1, "a group has one row");
            row.iter().for_each(|word| bytes.extend(word.to_le_bytes()));
        }
        fs::write(path, bytes).unwrap();
    }
}

/// Time of the steps alone.
#[derive(Default)]
struct Timer {
    seconds: f64,
    cpu_seconds: f64,
}

impl Timer {
    fn run(&mut self, work: impl FnOnce()) {
        let (cpu, clock) = (cpu_s(), Instant::now());
        work();
        self.seconds += clock.elapsed().as_secs_f64();
        self.cpu_seconds += cpu_s() - cpu;
    }

    fn print(&self) {
        println!("{{\"seconds\": {}, \"cpu_seconds\": {}}}", self.seconds, self.cpu_seconds);
    }
}

fn count_per_key(folder: &str, path: &str) {
    let k = column(folder, "t", "k");
    let (mut circuit, (input, output)) = Runtime::init_circuit(1, |circuit| {
        let (rows, input) = circuit.add_input_zset::<i64>();
        Ok((input, rows.map_index(|k| (*k, ())).weighted_count().accumulate_output()))
    })
    .unwrap();
    let (mut timer, mut answer) = (Timer::default(), Answer::default());
    for mut step in steps(folder, "t", |at| k[at]) {
        timer.run(|| {
            input.append(&mut step);
            circuit.transaction().unwrap();
        });
        answer.add(&output, |key, count| vec![key, count]);
    }
    timer.print();
    answer.write(path);
    circuit.kill().unwrap();
}

fn join_sum(folder: &str, path: &str) {
    let (item, quantity) = (column(folder, "orders", "item"), column(folder, "orders", "quantity"));
    let (key, category, price) =
        (column(folder, "items", "item"), column(folder, "items", "category"), column(folder, "items", "price"));
    let (mut circuit, (orders, items, output)) = Runtime::init_circuit(1, |circuit| {
        let (order_rows, orders) = circuit.add_input_zset::<Tup2<i64, i64>>();
        let (item_rows, items) = circuit.add_input_zset::<Tup3<i64, i64, i64>>();
        let by_item = order_rows.map_index(|Tup2(item, quantity)| (*item, *quantity));
        let prices = item_rows.map_index(|Tup3(item, category, price)| (*item, Tup2(*category, *price)));
        let paid = by_item
            .join_index(&prices, |_, quantity, Tup2(category, price)| Some((*category, quantity * price)))
            .aggregate_linear(|paid| Tup2(*paid, 1i64));
        Ok((orders, items, paid.accumulate_output()))
    })
    .unwrap();
    let (mut timer, mut answer) = (Timer::default(), Answer::default());
    let mut prices: Vec<_> = (0..key.len()).map(|at| Tup2(Tup3(key[at], category[at], price[at]), 1)).collect();
    items.append(&mut prices);
    circuit.transaction().unwrap();
    answer.add(&output, |key, Tup2(paid, count)| vec![key, paid, count]);
    for mut step in steps(folder, "orders", |at| Tup2(item[at], quantity[at])) {
        timer.run(|| {
            orders.append(&mut step);
            circuit.transaction().unwrap();
        });
        answer.add(&output, |key, Tup2(paid, count)| vec![key, paid, count]);
    }
    timer.print();
    answer.write(path);
    circuit.kill().unwrap();
}

/// Nexmark's q4, of the columns that it needs: the average of the highest bid in time of every auction, per category.
fn q4(folder: &str, path: &str) {
    let (id, category, begins, expires) = (
        column(folder, "auction", "id"),
        column(folder, "auction", "category"),
        column(folder, "auction", "ts"),
        column(folder, "auction", "expires"),
    );
    let (auction, price, ts) =
        (column(folder, "bid", "auction"), column(folder, "bid", "price"), column(folder, "bid", "ts"));
    let (mut circuit, (auctions, bids, output)) = Runtime::init_circuit(1, |circuit| {
        let (auction_rows, auctions) = circuit.add_input_indexed_zset::<i64, Tup3<i64, i64, i64>>();
        let (bid_rows, bids) = circuit.add_input_indexed_zset::<i64, Tup2<i64, i64>>();
        let average = auction_rows
            .join_index(&bid_rows, |id, Tup3(category, begins, expires), Tup2(price, ts)| {
                (begins <= ts && ts <= expires).then_some((Tup2(*id, *category), *price))
            })
            .aggregate(Max)
            .map_index(|(Tup2(_, category), price)| (*category, *price))
            .aggregate_linear(|price| Tup2(*price, 1i64));
        Ok((auctions, bids, average.accumulate_output()))
    })
    .unwrap();
    let (mut timer, mut answer) = (Timer::default(), Answer::default());
    let auction_steps = steps(folder, "auction", |at| Tup2(id[at], Tup3(category[at], begins[at], expires[at])));
    let bid_steps = steps(folder, "bid", |at| Tup2(auction[at], Tup2(price[at], ts[at])));
    for (auction_step, bid_step) in auction_steps.into_iter().zip(bid_steps) {
        let mut auction_rows: Vec<_> =
            auction_step.into_iter().map(|Tup2(Tup2(key, row), weight)| Tup2(key, Tup2(row, weight))).collect();
        let mut bid_rows: Vec<_> =
            bid_step.into_iter().map(|Tup2(Tup2(key, row), weight)| Tup2(key, Tup2(row, weight))).collect();
        timer.run(|| {
            auctions.append(&mut auction_rows);
            bids.append(&mut bid_rows);
            circuit.transaction().unwrap();
        });
        answer.add(&output, |key, Tup2(sum, count)| vec![key, sum / count]);
    }
    timer.print();
    answer.write(path);
    circuit.kill().unwrap();
}

fn main() {
    let arguments: Vec<String> = env::args().collect();
    let [_, workload, folder, path] = &arguments[..] else { panic!("peer <workload> <folder> <answer file>") };
    match workload.as_str() {
        "count_per_key" => count_per_key(folder, path),
        "join_sum" => join_sum(folder, path),
        "q4" => q4(folder, path),
        _ => panic!("no such workload: {workload}"),
    }
}
