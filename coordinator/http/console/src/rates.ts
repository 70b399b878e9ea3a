// Rates of the nodes of the dataflow, from two readings of their sums.

import { useEffect, useState } from "preact/hooks";
import type { Dataflow, FlowNode } from "./types";

export interface NodeRate { in: number; out: number; busy: number }
interface Reading { at: number; sums: Map<string, { in: number; out: number; seconds: number }> }

const KEPT_MS = 12_000;
const sum = (node: FlowNode, of: (worker: FlowNode["workers"][number]) => number): number => node.workers.reduce((total, each) => total + of(each), 0);

export const sumsOf = (node: FlowNode) => ({
  in: sum(node, (each) => each.rows_in), out: sum(node, (each) => each.rows_out), seconds: sum(node, (each) => each.seconds),
  rows: sum(node, (each) => each.state_rows), bytes: sum(node, (each) => each.state_bytes),
});

// The share of the busiest worker in a node's rows: 1 / workers is even.
export function skewOf(node: FlowNode): number | null {
  const total = sum(node, (each) => each.rows_in);
  return node.workers.length < 2 || total === 0 ? null : Math.max(...node.workers.map((each) => each.rows_in)) / total;
}

// Rates over the last seconds: steps that take long must not make them jump between 0 and too much.
export function useRates(found: Dataflow | null): Map<string, NodeRate> {
  const [readings] = useState<Reading[]>([]);
  const [rates, setRates] = useState<Map<string, NodeRate>>(new Map());
  useEffect(() => {
    if (!found) return;
    const now: Reading = { at: performance.now(), sums: new Map(found.nodes.map((node) => [node.id, sumsOf(node)])) };
    readings.push(now);
    while (readings.length > 2 && now.at - readings[0]!.at > KEPT_MS) readings.shift();
    const first = readings[0]!;
    const seconds = (now.at - first.at) / 1000;
    if (seconds <= 0) return;
    const made = new Map<string, NodeRate>();
    for (const [id, sums] of now.sums) {
      const before = first.sums.get(id);
      if (!before || before.in > sums.in) continue;
      made.set(id, { in: (sums.in - before.in) / seconds, out: (sums.out - before.out) / seconds, busy: (sums.seconds - before.seconds) / seconds });
    }
    setRates(made);
  }, [found]);
  return rates;
}
