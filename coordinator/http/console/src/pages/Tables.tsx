// Tables and where their rows come from; what receives the results.

import { count, plural, rate } from "../format";
import { Badge, Card, Cell, Empty, Facts, Grid, Page, Problem } from "../parts/basics";
import { useRates } from "../rates";
import { useSignal } from "../signal";
import { status, useRead } from "../state";
import type { Dataflow, FlowTable, Status } from "../types";

const INPUTS: Record<string, string> = {
  embedded: "rows are pushed over HTTP", kafka: "rows are read from Kafka topics", files: "rows are read from files",
};
const OUTPUTS: Record<string, string> = {
  embedded: "changes of views are kept here, and can be followed", kafka: "changes of views go to Kafka topics", files: "changes of views go to files",
};

export function Tables({ name }: { name: string }) {
  const now = useSignal(status)!;
  const { found, error } = useRead<Dataflow>("/v1/dataflow", null, 2000);
  const rates = useRates(found);
  if (error && !found) return <Problem>{error}</Problem>;
  if (!found) return <Empty>Asking for the tables …</Empty>;
  const shown = found.tables.find((table) => table.name === name);
  const speed = (table: FlowTable) => table.nodes.reduce((sum, node) => sum + (rates.get(node)?.out ?? 0), 0);
  return (
    <Page title="Tables and connectors" lead={`Input (${found.connectors.input}): ${INPUTS[found.connectors.input] ?? found.connectors.input}. Output (${found.connectors.output}): ${OUTPUTS[found.connectors.output] ?? found.connectors.output}.`}>
      <Card title="Tables">
        <Grid label="Tables" columns={["Table", "Health", { name: "Changes per second", number: true }, { name: "Waiting rows", number: true }, { name: "Rows processed", number: true }, "Primary key", "Last error"]}
          rows={found.tables.map((table) => {
            const health = now.inputs.find((each) => each.table === table.name);
            const copy = now.copies.find((each) => each.table === table.name);
            return [
              <a href={`#/tables/${encodeURIComponent(table.name)}`} aria-current={table.name === name ? "true" : undefined}>{table.name}</a>,
              <Health now={now} table={table.name} />, rate(speed(table)),
              health?.waiting_rows === null || health === undefined ? "unknown" : count(health.waiting_rows),
              count(processed(now, table.name).reduce((sum, each) => sum + each.offset, 0)),
              table.primary_key.join(", ") || <span class="soft">none</span>,
              copy?.error ?? health?.away ?? <span class="soft">none</span>,
            ];
          })} />
      </Card>
      {shown && <Details table={shown} now={now} />}
      {now.copies.length > 0 && (
        <Card title="Copied topics">
          <Grid label="Copied topics" columns={["Table", "Topic", { name: "Messages behind", number: true }, "Last error"]}
            rows={now.copies.map((each) => [each.table, each.topic, count(each.behind_messages), each.error ?? <span class="soft">none</span>])} />
        </Card>
      )}
      <Outputs now={now} />
      {now.waterlines.length > 0 && <Card title="Watermarks"><Waterlines of={now.waterlines} /></Card>}
    </Page>
  );
}

const processed = (now: Status, table: string) => now.processed.filter((each) => each.table === table);

function Health({ now, table }: { now: Status; table: string }) {
  const health = now.inputs.find((each) => each.table === table);
  const copy = now.copies.find((each) => each.table === table);
  if (health?.away || copy?.error) return <Badge tone="bad">Not reached</Badge>;
  if (now.state === "Paused") return <Badge tone="warn">Paused</Badge>;
  if ((health?.waiting_rows ?? 0) > 0) return <Badge tone="info">Catching up</Badge>;
  return <Badge tone="good">Up to date</Badge>;
}

const Details = ({ table, now }: { table: FlowTable; now: Status }) => (
  <div class="columns">
    <Card title={`Columns of ${table.name}`}>
      <Grid label={`Columns of ${table.name}`} columns={["Column", "Type"]} rows={table.columns.map((column) => [column.name, column.type])} />
    </Card>
    <Card title={`Partitions of ${table.name}`}>
      <Grid label={`Partitions of ${table.name}`} columns={[{ name: "Partition", number: true }, { name: "Processed up to offset", number: true }]}
        rows={processed(now, table.name).map((each) => [each.partition, count(each.offset)])} />
      <p class="soft">Push rows: <code>POST /v1/tables/{table.name}/rows</code></p>
    </Card>
  </div>
);

const Outputs = ({ now }: { now: Status }) => (
  <Card title="Other outputs">
    {now.delta.length === 0 && !now.postgres && <Empty>No Delta table and no PostgreSQL port is set.</Empty>}
    {now.delta.length > 0 && (
      <Grid label="Delta tables" columns={["View", "Delta table", "Health", { name: "Steps behind", number: true }, "Last error"]}
        rows={now.delta.map((each) => [each.view, <code>{each.uri}</code>, each.error ? <Badge tone="bad">Not written</Badge> : <Badge tone="good">Written</Badge>, count(each.behind_steps), each.error ?? <span class="soft">none</span>])} />
    )}
    {now.postgres && <Facts of={Object.entries(now.postgres).map(([name, found]) => [`PostgreSQL: ${name.replaceAll("_", " ")}`, <Cell of={found} />])} />}
  </Card>
);

function Waterlines({ of }: { of: Record<string, unknown>[] }) {
  const names = Object.keys(of[0] ?? {});
  return <><p class="soft">{plural(of.length, "watermark")}: rows below the waterline are late.</p><Grid label="Watermarks" columns={names.map((name) => name.replaceAll("_", " "))} rows={of.map((each) => names.map((name) => <Cell of={each[name]} />))} /></>;
}
