//! One run: a new circuit, every step a transaction, its changes taken out.

use std::path::PathBuf;

use dbsp::{
    circuit::CircuitConfig,
    operator::{IndexedZSetHandle, ZSetHandle},
    typed_batch::{IndexedZSet, IndexedZSetReader},
    utils::Tup2,
    DBData, RootCircuit, Runtime, Stream,
};

use crate::{
    answer::{Answer, Row},
    timing::{Taken, Timer},
};

/// What takes the rows of a step: the handle of one table, or of two.
pub trait Handle: Clone + Send + 'static {
    type Step;

    fn push(&self, step: &mut Self::Step);
}

impl<R: DBData> Handle for ZSetHandle<R> {
    type Step = Vec<Tup2<R, i64>>;

    fn push(&self, step: &mut Self::Step) {
        self.append(step);
    }
}

impl<K: DBData, V: DBData> Handle for IndexedZSetHandle<K, V> {
    type Step = Vec<Tup2<K, Tup2<V, i64>>>;

    fn push(&self, step: &mut Self::Step) {
        self.append(step);
    }
}

impl<A: Handle, B: Handle> Handle for (A, B) {
    type Step = (A::Step, B::Step);

    fn push(&self, (left, right): &mut Self::Step) {
        self.0.push(left);
        self.1.push(right);
    }
}

/// A run that was asked for, its time and its answer. Its time is that of all steps together, so that merges which threads of
/// the crate's go on with between two steps count; where an answer is collected it is in there too, and says nothing.
#[derive(Default)]
pub struct Play {
    taken: Taken,
    answer: Option<(PathBuf, Answer)>,
    profile: Option<String>,
    profiled: bool,
}

impl Play {
    /// What a line of standard input says.
    pub fn asked(wanted: &str) -> Self {
        match wanted {
            "" => Self::default(),
            "profile" => Self { profiled: true, ..Self::default() },
            folder => Self { answer: Some((folder.into(), Answer::default())), ..Self::default() },
        }
    }

    /// All steps. The first `before` of them are there before the clock runs.
    pub fn steps<H: Handle, B>(
        &mut self,
        before: usize,
        steps: Vec<H::Step>,
        circuit: impl FnOnce(&mut RootCircuit) -> (H, Stream<RootCircuit, B>) + Clone + Send + 'static,
        row: impl Fn(B::Key, B::Val) -> Row,
    ) where
        B: IndexedZSet + Send,
        B::InnerBatch: Send,
    {
        let (mut running, (handle, output)) =
            Runtime::init_circuit(CircuitConfig::with_workers(1), |builder: &mut RootCircuit| {
                let (handle, view) = circuit(builder);
                Ok((handle, view.accumulate_output()))
            })
            .unwrap();
        if self.profiled {
            running.enable_cpu_profiler().unwrap();
        }
        let mut timer = Timer::started();
        for (number, mut step) in steps.into_iter().enumerate() {
            if number == before {
                timer = Timer::started();
            }
            handle.push(&mut step);
            running.transaction().unwrap();
            let changes = output.concat();
            if let Some((_, answer)) = &mut self.answer {
                changes.consolidate().iter().for_each(|(key, value, weight)| answer.add(row(key, value), weight));
            }
        }
        self.taken = timer.taken();
        if self.profiled {
            self.profile = Some(running.retrieve_profile().unwrap().as_json());
        }
        running.kill().unwrap();
    }

    /// The answer is written, if it was wanted; the figures as JSON.
    pub fn end(self) -> String {
        if let Some((folder, answer)) = &self.answer {
            answer.write(folder);
        }
        self.taken.json(self.profile.as_deref().unwrap_or("null"))
    }
}
