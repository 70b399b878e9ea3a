// The workers, what each of them holds, and a rescale to another number of them.

import { useState } from "preact/hooks";
import { post, textOf } from "../api";
import { bytes, count, percent, plural, seconds } from "../format";
import { Badge, Card, Empty, Facts, Field, Grid, Meter, Page, Problem, Refused } from "../parts/basics";
import { Progress, rescaling } from "../parts/Progress";
import { useSignal } from "../signal";
import { status, useRead } from "../state";
import type { Dataflow, Layout, MovedPartition, Placed, RescalePlan } from "../types";

const STRATEGIES: { key: string; label: string; says: string }[] = [
  { key: "", label: "As the settings say", says: "The strategy of [layout] in the settings; cold unless it is set." },
  { key: "cold", label: "Cold", says: "Steps stop while the moving part of the state is copied. The least is copied. For small states, and when a pause does not matter." },
  { key: "warmup", label: "Warm-up", says: "State is copied ahead while steps run; then steps stop for a moment. For large states under traffic; what changes meanwhile is copied again." },
  { key: "icadd", label: "Key by key, known to the owners (icadd)", says: "Every step moves some keys of each owner. No long pause and no second copy; steps take longer until the last key has moved." },
  { key: "redistribute", label: "Key by key, known to all (redistribute)", says: "As icadd, but all workers know which keys have moved." },
];

export function Workers() {
  const now = useSignal(status)!;
  const layout = useRead<Layout>("/v1/layout", now.layout_version, 3000);
  const flow = useRead<Dataflow>("/v1/dataflow", null, 3000);
  const total = layout.found?.rows.reduce((sum, row) => sum + (row.state_bytes ?? 0), 0) ?? 0;
  return (
    <Page title="Workers and rescale" lead={`${plural(now.workers, "worker")}, layout ${count(now.layout_version)}. Every key is owned by one worker.`}>
      <Progress now={now} />
      <Card title="Workers">
        <Refused error={layout.error} refused={layout.refused} />
        {!layout.found ? <Empty>Asking for the layout …</Empty> : (
          <Grid label="Workers" columns={[{ name: "Worker", number: true }, "Host", { name: "Shards", number: true }, { name: "State", number: true }, "Share of the state", { name: "Time in operators", number: true }, "Answers", "Input partitions"]}
            rows={layout.found.rows.map((row) => [
              row.worker, row.host || <span class="soft">this host</span>, count(row.shards), row.state_bytes === null ? <span class="soft">not known yet</span> : bytes(row.state_bytes),
              <Meter share={total ? (row.state_bytes ?? 0) / total : 0} label={`Share of worker ${row.worker} in the state`} />,
              seconds(busy(flow.found, row.worker)),
              now.doing?.workers_awaited.includes(row.worker) ? <Badge tone="warn">Awaited</Badge> : <Badge tone="good">Yes</Badge>,
              Object.entries(row.partitions).filter(([, kept]) => kept.length).map(([table, kept]) => `${table} ${kept.join(" ")}`).join(", ") || <span class="soft">none</span>,
            ])} />
        )}
        {now.doing && now.doing.hosts_away.length > 0 && <Problem>Hosts that do not answer: {now.doing.hosts_away.join(", ")}</Problem>}
      </Card>
      <Rescale hosts={layout.found?.offered ?? []} />
    </Page>
  );
}

const busy = (flow: Dataflow | null, worker: number): number =>
  flow?.nodes.reduce((sum, node) => sum + (node.workers.find((each) => each.worker === worker)?.seconds ?? 0), 0) ?? 0;

// The hosts with their weights that a text names, as on the command line: "a, b=2".
const named = (text: string): Record<string, number> | null =>
  text.trim() ? Object.fromEntries(text.split(",").map((part) => {
    const [host, weight] = part.split("=").map((each) => each.trim());
    return [host, weight === undefined ? 1 : Number(weight)];
  })) : null;
const written = (hosts: [string, number][]): string => hosts.map(([host, weight]) => (weight === 1 ? host : `${host}=${weight}`)).join(", ");
const placed = (of: Placed[]): string => of.map((each) => `worker ${each.worker}${each.host ? ` on ${each.host}` : ""}`).join(", ") || "none";

function Rescale({ hosts }: { hosts: [string, number][] }) {
  const now = useSignal(status)!;
  const [workers, setWorkers] = useState(now.workers);
  const [strategy, setStrategy] = useState("");
  const [wanted, setWanted] = useState("");
  const [planned, setPlanned] = useState<RescalePlan | null>(null);
  const [error, setError] = useState("");
  const body = { workers, strategy: strategy || null, hosts: named(wanted) };
  const preview = async () => {
    setPlanned(null);
    setError("");
    try {
      setPlanned(await post<RescalePlan>("/v1/rescale", { ...body, dry_run: true }));
    } catch (problem) {
      setError(textOf(problem));
    }
  };
  const go = () => {
    setPlanned(null);
    void rescaling(`Rescaling to ${plural(workers, "worker")}`, async () => {
      const done = await post<RescalePlan>("/v1/rescale", body);
      const what = [
        ...(done.shards_moved ? [`${count(done.shards_moved)} of ${plural(done.shards, "shard")}`] : []),
        ...(done.partitions_moved.length ? [plural(done.partitions_moved.length, "input partition")] : []),
      ];
      return what.length ? `${plural(workers, "worker")}: ${what.join(" and ")} moved` : `There are ${plural(workers, "worker")} already`;
    });
  };
  return (
    <Card title="Rescale">
      <p class="soft">Results stay right throughout, and a crash at any moment leaves the old or the new number of workers.</p>
      <form onSubmit={(event) => { event.preventDefault(); void preview(); }}>
        <Field label="Workers">{(id) => <input id={id} type="number" min={1} max={4096} required value={workers} onInput={(event) => { setWorkers(Number(event.currentTarget.value)); setPlanned(null); }} />}</Field>
        {hosts.length > 0 && <Field label="Hosts, perhaps with weights (empty: as they are)">{(id) => <input id={id} placeholder={written(hosts)} value={wanted} onInput={(event) => { setWanted(event.currentTarget.value); setPlanned(null); }} />}</Field>}
        <fieldset>
          <legend>How the state moves</legend>
          {STRATEGIES.map((each) => (
            <label class="choice">
              <input type="radio" name="strategy" checked={strategy === each.key} onChange={() => setStrategy(each.key)} />
              <span><b>{each.label}</b><small class="soft">{each.says}</small></span>
            </label>
          ))}
        </fieldset>
        <div class="bar"><button>Show what would move</button></div>
      </form>
      {error && <Problem>{error}</Problem>}
      {planned && (
        <div class="trouble info">
          <h2>From {plural(planned.workers_before, "worker")} to {planned.workers}</h2>
          <Facts of={[
            ["Shards that move", `${count(planned.shards_moved)} of ${count(planned.shards)} (${percent(planned.share)}; at least ${percent(planned.least)} must)`],
            ["State that moves", moved(planned)],
            ["Workers that join", placed(planned.joining)],
            ["Workers that leave", placed(planned.leaving)],
            ...(planned.partitions_moved.length ? [["Input partitions that move", partitions(planned.partitions_moved)] as [string, string]] : []),
            ...(planned.hosts_leaving.length ? [["Hosts without a worker afterwards", planned.hosts_leaving.join(", ")] as [string, string]] : []),
            ["Pause of steps, if cold", planned.pause_seconds === null ? "not known yet" : `about ${seconds(planned.pause_seconds)}, from ${planned.pause_from}`],
          ]} />
          <div class="bar"><button type="button" class="primary" onClick={go}>Rescale to {plural(workers, "worker")}</button><button type="button" onClick={() => setPlanned(null)}>Not now</button></div>
        </div>
      )}
    </Card>
  );
}

const PARTITIONS_SHOWN = 8;
const partitions = (of: MovedPartition[]): string =>
  of.length > PARTITIONS_SHOWN ? count(of.length)
  : of.map((each) => `${each.table} ${each.partition}: worker ${each.worker_before} to ${each.worker}`).join(", ");

// The size is that of the last step: before one has run, nothing is known, which is not 0.
const moved = (of: RescalePlan): string =>
  of.bytes_moved === null ? "not known yet: no step has run since this start"
  : of.shards_moved > 0 && of.bytes_total === 0 ? "none: the pipeline has no state yet"
  : `about ${bytes(of.bytes_moved)}${of.bytes_total ? ` of ${bytes(of.bytes_total)}` : ""}`;
