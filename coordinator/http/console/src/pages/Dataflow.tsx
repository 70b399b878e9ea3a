// The dataflow drawn: operators, exchanges between workers, live rates, time, state, and uneven work.

import { useEffect, useMemo, useState } from "preact/hooks";
import { bytes, count, percent, plural, rate, seconds } from "../format";
import { Graph, type Figures } from "../graph/Graph";
import { draw, groupOf, viewId, type Box } from "../graph/shape";
import { Badge, Card, Empty, Facts, Field, Grid, Meter, Page, Problem } from "../parts/basics";
import { skewOf, sumsOf, useRates, type NodeRate } from "../rates";
import { useRead } from "../state";
import type { Dataflow, FlowNode } from "../types";

const ALL_UP_TO = 30;
const UNEVEN = 1.6;

const allGroups = (flow: Dataflow): Set<string> => new Set(flow.nodes.map(groupOf));

export function DataflowPage({ name }: { name: string }) {
  const { found, error } = useRead<Dataflow>("/v1/dataflow", null, 2000);
  const rates = useRates(found);
  if (error && !found) return <Problem>{error}</Problem>;
  return found ? <Drawn flow={found} rates={rates} asked={name} /> : <Empty>Asking for the dataflow …</Empty>;
}

function Drawn({ flow, rates, asked }: { flow: Dataflow; rates: Map<string, NodeRate>; asked: string }) {
  const [collapsed, setCollapsed] = useState<Set<string>>(() => (flow.nodes.length > ALL_UP_TO ? allGroups(flow) : new Set()));
  const [focus, setFocus] = useState("");
  const [chosen, setChosen] = useState("");
  const [zoom, setZoom] = useState(1);
  const shape = useMemo(() => JSON.stringify([flow.nodes.map((node) => node.id), flow.edges]), [flow]);
  const drawing = useMemo(() => draw(flow, collapsed, focus), [shape, collapsed, focus]);
  const whole = flow.nodes.reduce((sum, node) => sum + sumsOf(node).seconds, 0) || 1;
  const figures = new Map(drawing.boxes.map((box) => [box.id, figuresOf(box, current(flow, box), flow, rates, whole)]));
  const box = drawing.boxes.find((each) => each.id === chosen);

  useEffect(() => {
    const node = flow.nodes.find((each) => each.id === asked);
    if (node) setChosen(collapsed.has(groupOf(node)) && flow.nodes.filter((each) => groupOf(each) === groupOf(node)).length > 1 ? groupOf(node) : node.id);
  }, [asked]);

  const toggle = (group: string) => {
    setCollapsed((now) => {
      const next = new Set(now);
      if (!next.delete(group)) next.add(group);
      return next;
    });
    setChosen("");
  };
  const zoomTo = (next: number) => setZoom(Math.min(2, Math.max(0.2, next)));
  const fit = () => {
    const frame = document.querySelector(".graph");
    if (frame) zoomTo(Math.min(1, frame.clientWidth / drawing.width, frame.clientHeight / drawing.height));
  };
  const operators = flow.nodes.filter((node) => node.kind !== "receive").length;
  const exchanges = flow.edges.filter((edge) => edge.by).length;
  return (
    <Page title="Dataflow" lead={`${plural(operators, "operator")}, ${plural(exchanges, "exchange")}. Figures are live; the bar in a box is its share of the time of all operators.`}>
      <div class="bar">
        <Field label="Show">{(id) => (
          <select id={id} value={focus} onChange={(event) => { setFocus(event.currentTarget.value); setChosen(""); }}>
            <option value="">everything</option>
            <optgroup label="what leads to a view">{flow.views.map((view) => <option value={viewId(view.name)}>{view.name}</option>)}</optgroup>
            <optgroup label="what a table leads to">{flow.tables.map((table) => <option value={`table ${table.name}`}>{table.name}</option>)}</optgroup>
          </select>
        )}</Field>
        <button type="button" onClick={() => { setCollapsed(allGroups(flow)); setChosen(""); }} title="One box for all operators that one line of the program made">Group by source line</button>
        <button type="button" onClick={() => { setCollapsed(new Set()); setChosen(""); }}>Show all operators</button>
        <span class="buttons">
          <button type="button" aria-label="Zoom out" onClick={() => zoomTo(zoom / 1.25)}>−</button>
          <button type="button" aria-label="Zoom in" onClick={() => zoomTo(zoom * 1.25)}>+</button>
          <button type="button" onClick={fit}>Fit</button>
        </span>
      </div>
      <div class={`split ${box ? "open" : ""}`}>
        <Graph drawing={drawing} figures={figures} chosen={chosen} zoom={zoom} onZoom={zoomTo} onChoose={(id) => setChosen(id === chosen ? "" : id)}
          onOpen={(each) => { if (each.kind === "group") toggle(each.id); }} />
        {box && (
          <aside class="profile" aria-label="Profile" aria-live="polite">
            {box.kind === "group" ? <GroupProfile box={box} nodes={current(flow, box)} rates={rates} whole={whole} open={() => toggle(box.id)} />
              : <NodeProfile box={box} node={current(flow, box)[0]!} rates={rates} whole={whole} flow={flow} collapse={toggle} />}
          </aside>
        )}
      </div>
      <p class="soft legend-line">⇄ is an exchange: rows move to the worker that owns their key. A thicker line has more rows per second. “Uneven” means that one worker has most of the rows.</p>
    </Page>
  );
}

// The drawing keeps its place while figures change, so the newest nodes are looked up for each box.
function current(flow: Dataflow, box: Box): FlowNode[] {
  const ids = new Set(box.nodes.map((node) => node.id));
  return flow.nodes.filter((node) => ids.has(node.id));
}

function figuresOf(box: Box, nodes: FlowNode[], flow: Dataflow, rates: Map<string, NodeRate>, whole: number): Figures {
  const ids = new Set(nodes.map((node) => node.id));
  const senders = nodes.length === 1 ? nodes : nodes.filter((node) => flow.edges.some((edge) => edge.from === node.id && !ids.has(edge.to)) || flow.views.some((view) => view.node === node.id));
  const skews = nodes.filter((node) => node.kind !== "source").map((node) => ({ skew: skewOf(node), workers: node.workers.length, rows: sumsOf(node).in })).filter((each) => each.skew !== null && each.rows > 1000);
  const worst = skews.reduce<(typeof skews)[number] | null>((most, each) => (most === null || each.skew! * each.workers > most.skew! * most.workers ? each : most), null);
  return {
    out: senders.reduce((sum, node) => sum + (rates.get(node.id)?.out ?? 0), 0),
    share: box.kind === "view" ? 0 : nodes.reduce((sum, node) => sum + sumsOf(node).seconds, 0) / whole,
    bytes: box.kind === "view" ? 0 : nodes.reduce((sum, node) => sum + sumsOf(node).bytes, 0),
    skew: worst?.skew ?? null, skewed: box.kind !== "view" && worst !== null && worst.skew! * worst.workers > UNEVEN,
  };
}

const Source = ({ node }: { node: FlowNode }) => node.source
  ? <div class="source"><span class="soft">{node.source.file}, line {node.source.line}</span>{node.source.text && <pre>{node.source.text}</pre>}</div>
  : <p class="soft">No line of your program made this.</p>;

function NodeProfile({ box, node, rates, whole, flow, collapse }: { box: Box; node: FlowNode; rates: Map<string, NodeRate>; whole: number; flow: Dataflow; collapse: (group: string) => void }) {
  const sums = sumsOf(node);
  const speed = rates.get(node.id);
  const most = Math.max(1, ...node.workers.map((each) => each.rows_in));
  const siblings = flow.nodes.filter((each) => groupOf(each) === groupOf(node)).length;
  return (
    <Card title={box.kind === "view" ? `View ${box.label}` : box.kind === "exchange" ? "Exchange" : node.operator} aside={<Badge>{node.id}</Badge>}>
      {box.kind === "exchange" && <p>Rows move to their owners: {box.label}.</p>}
      {box.kind === "view" && <p><a href={`#/views/${encodeURIComponent(box.label)}`}>Rows and changes</a></p>}
      <Source node={node} />
      <Facts of={[
        ["Rows per second", `${rate(speed?.in ?? 0)} in, ${rate(speed?.out ?? 0)} out`], ["Rows since this start", `${count(sums.in)} in, ${count(sums.out)} out`],
        ["Time", `${seconds(sums.seconds)}, ${percent(sums.seconds / whole)} of all operators`],
        ["State", sums.rows ? `${plural(sums.rows, "row")}, ${bytes(sums.bytes)} (${count(sums.bytes / sums.rows)} B a row)` : "none"],
        ...(node.traces.length ? [["Kept by key", node.traces.map((trace) => `(${trace.key.join(", ")})${trace.owner === null ? "" : ` shared with #${trace.owner}`}`).join(", ")] as [string, string]] : []),
        ["Segment", node.loop === null ? String(node.segment) : `${node.segment} of loop ${node.loop}`],
      ]} />
      {node.workers.length > 0 && (
        <>
          <h3>By worker</h3>
          <Grid label="Figures by worker" columns={[{ name: "Worker", number: true }, { name: "Rows in", number: true }, "Share", { name: "Time", number: true }, { name: "State", number: true }]}
            rows={node.workers.map((each) => [each.worker, count(each.rows_in), <Meter share={each.rows_in / most} label={`Rows of worker ${each.worker}, against the busiest`} />, seconds(each.seconds), bytes(each.state_bytes)])} />
        </>
      )}
      <h3>Columns</h3>
      <p class="columns-line">{node.columns.map((column) => <span><code>{column.name}</code> <span class="soft">{column.type}</span></span>)}</p>
      {siblings > 1 && box.kind !== "view" && <button type="button" onClick={() => collapse(groupOf(node))}>Group the {siblings} operators of this line</button>}
    </Card>
  );
}

function GroupProfile({ box, nodes, rates, whole, open }: { box: Box; nodes: FlowNode[]; rates: Map<string, NodeRate>; whole: number; open: () => void }) {
  const totals = nodes.map(sumsOf);
  return (
    <Card title={`${nodes.length} operators`} aside={<button type="button" class="primary" onClick={open}>Show them</button>}>
      {box.nodes[0] && <Source node={box.nodes[0]} />}
      <Facts of={[
        ["Time", `${seconds(totals.reduce((sum, each) => sum + each.seconds, 0))}, ${percent(totals.reduce((sum, each) => sum + each.seconds, 0) / whole)} of all operators`],
        ["State", bytes(totals.reduce((sum, each) => sum + each.bytes, 0))],
      ]} />
      <Grid label="Operators of the group" columns={["Operator", { name: "Out per second", number: true }, { name: "Time", number: true }]}
        rows={nodes.map((node) => [<span class="cell-wrap">{node.kind === "receive" ? "exchange" : node.operator}</span>, rate(rates.get(node.id)?.out ?? 0), percent(sumsOf(node).seconds / whole)])} />
    </Card>
  );
}
