// The views: their rows page by page as of one step, searched and sorted, and their changes as they come.

import { useEffect, useState } from "preact/hooks";
import { follow, part, post, read, textOf, type Change } from "../api";
import { count, plural, rate } from "../format";
import { Badge, Card, Cell, Empty, Field, Grid, Page, Problem, isNumber } from "../parts/basics";
import { identifier, literal } from "../sql";
import { useRates } from "../rates";
import { useRead } from "../state";
import type { Dataflow, FlowView, QueryResult, Row, ViewPage } from "../types";

export function Views({ name }: { name: string }) {
  const { found, error } = useRead<Dataflow>("/v1/dataflow", null, 2000);
  const rates = useRates(found);
  if (error && !found) return <Problem>{error}</Problem>;
  if (!found) return <Empty>Asking for the views …</Empty>;
  const view = found.views.find((each) => each.name === name);
  if (view) return <ViewOf view={view} key={view.name} speed={rates.get(view.node)?.out ?? 0} />;
  return (
    <Page title="Views" lead="The maintained results. Choose one to see its rows and its changes.">
      {name && <Problem>There is no view {name}.</Problem>}
      <Card title={plural(found.views.length, "view")}>
        <Grid label="Views" columns={["View", { name: "Changes per second", number: true }, { name: "Columns", number: true }, "Rows kept", "Columns with types"]}
          rows={found.views.map((each) => [
            <a href={`#/views/${part(each.name)}`}>{each.name}</a>, rate(rates.get(each.node)?.out ?? 0), each.columns.length,
            each.materialized ? "yes" : <span class="soft">changes only</span>,
            <span class="soft cell">{each.columns.map((column) => `${column.name} ${column.type}`).join(", ")}</span>,
          ])} />
      </Card>
    </Page>
  );
}

const ViewOf = ({ view, speed }: { view: FlowView; speed: number }) => (
  <Page title={view.name} lead={<><a href="#/views">All views</a> · {rate(speed)} changes per second</>}
    actions={<><a class="button" href={`#/dataflow/${part(view.node)}`}>In the dataflow</a><a class="button" href={`#/sql/${part(`SELECT * FROM ${identifier(view.name)}`)}`}>Query it</a></>}>
    {view.materialized ? <Rows view={view} /> : <Card title="Rows"><Empty>This view keeps no rows: only its changes can be followed.</Empty></Card>}
    <Changes view={view} />
  </Page>
);

const PAGE_ROWS = 50;
interface Shown { step: number; rows: Row[]; weights: number[]; more: boolean }
type Order = { column: string; down: boolean } | null;

function Rows({ view }: { view: FlowView }) {
  const [search, setSearch] = useState("");
  const [asked, setAsked] = useState("");
  const [order, setOrder] = useState<Order>(null);
  const [page, setPage] = useState(0);
  const [again, setAgain] = useState(0);
  const [cursors, setCursors] = useState<(string | null)[]>([""]);
  const [shown, setShown] = useState<Shown | null>(null);
  const [error, setError] = useState("");
  const plain = asked === "" && order === null;

  useEffect(() => {
    const abort = new AbortController();
    const go = async () => {
      try {
        if (plain) {
          const found = await read<ViewPage>(`/v1/views/${part(view.name)}?limit=${PAGE_ROWS}&cursor=${cursors[page] ?? ""}`, abort.signal);
          setCursors((known) => [...known.slice(0, page + 1), found.next]);
          setShown({ ...found, more: found.next !== null });
        } else {
          const found = await post<QueryResult>("/v1/query", { sql: searching(view, asked, order, page) });
          if (abort.signal.aborted) return;
          const rows = found.rows.map((row) => Object.fromEntries(found.columns.map((column, at) => [column, row[at]])));
          setShown({ step: found.step, rows: rows.slice(0, PAGE_ROWS), weights: [], more: rows.length > PAGE_ROWS });
        }
        setError("");
      } catch (problem) {
        if (abort.signal.aborted) return;
        setShown(null);
        setError(textOf(problem));
      }
    };
    void go();
    return () => abort.abort();
  }, [view.name, asked, order, page, again]);

  const begin = () => { setPage(0); setCursors([""]); setAgain((now) => now + 1); };
  const sort = (column: string) => {
    setOrder((now) => (now?.column !== column ? { column, down: false } : now.down ? null : { column, down: true }));
    begin();
  };
  const several = shown?.weights.some((weight) => weight !== 1) ?? false;
  return (
    <Card title="Rows" aside={shown && <span class="soft">as of step {count(shown.step)}</span>}>
      <form class="bar" role="search" onSubmit={(event) => { event.preventDefault(); setAsked(search.trim()); begin(); }}>
        <Field label="Search in all columns">{(id) => <input id={id} type="search" value={search} onInput={(event) => setSearch(event.currentTarget.value)} />}</Field>
        <button class="primary">Search</button>
        <button type="button" onClick={begin}>Read again</button>
      </form>
      {error && <Problem>{error}</Problem>}
      {shown && shown.rows.length === 0 && <Empty>{asked ? "No row has this text." : "The view has no rows."}</Empty>}
      {shown && shown.rows.length > 0 && (
        <Grid label={`Rows of ${view.name}`} tall
          columns={[
            ...view.columns.map((column) => ({
              name: column.name, number: isNumber(column.type), sort: () => sort(column.name),
              sorted: order?.column !== column.name ? "none" as const : order.down ? "descending" as const : "ascending" as const,
            })),
            ...(several ? [{ name: "weight", number: true }] : []),
          ]}
          rows={shown.rows.map((row, at) => [...view.columns.map((column) => <Cell of={row[column.name]} />), ...(several ? [shown.weights[at]] : [])])} />
      )}
      {shown && (page > 0 || shown.more) && (
        <div class="bar">
          <button type="button" disabled={page === 0} onClick={() => setPage(page - 1)}>Previous page</button>
          <span class="soft">rows {count(page * PAGE_ROWS + 1)} to {count(page * PAGE_ROWS + shown.rows.length)}</span>
          <button type="button" disabled={!shown.more} onClick={() => setPage(page + 1)}>Next page</button>
        </div>
      )}
    </Card>
  );
}

// One row more than a page has, to know whether there is another page.
function searching(view: FlowView, text: string, order: Order, page: number): string {
  const all = view.columns.map((column) => `CAST(${identifier(column.name)} AS VARCHAR)`).join(", ");
  const where = text ? ` WHERE contains(lower(concat_ws(' ', ${all})), lower(${literal(text)}))` : "";
  const first = order ? `${identifier(order.column)}${order.down ? " DESC" : ""}, ` : "";
  return `SELECT * FROM ${identifier(view.name)}${where} ORDER BY ${first}ALL LIMIT ${PAGE_ROWS + 1} OFFSET ${page * PAGE_ROWS}`;
}

const CHANGES_MAX = 200;
interface Line { step: number; weight: number; row: Row }

function Changes({ view }: { view: FlowView }) {
  const [lines, setLines] = useState<Line[]>([]);
  const [live, setLive] = useState(true);
  const [error, setError] = useState("");
  const [first, setFirst] = useState<number | null>(null);
  useEffect(() => {
    if (!live) return;
    const abort = new AbortController();
    const heard = (change: Change) => setLines((known) => [
      ...change.rows.map((row, at) => ({ step: change.step, weight: change.weights[at] ?? 1, row })).reverse().slice(0, CHANGES_MAX), ...known,
    ].slice(0, CHANGES_MAX));
    const go = async () => {
      const { step } = await read<{ step: number }>("/v1/status", abort.signal);
      setFirst(step);
      await follow(view.name, step, abort.signal, heard);
    };
    setError("");
    go().catch((problem) => { if (!abort.signal.aborted) setError(textOf(problem)); });
    return () => abort.abort();
  }, [view.name, live]);
  return (
    <Card title="Changes as they come" aside={<button type="button" aria-pressed={!live} onClick={() => setLive(!live)}>{live ? "Stop following" : "Follow"}</button>}>
      {error && <Problem>{error}</Problem>}
      {lines.length === 0 && !error && <Empty>{first === null ? "Connecting …" : `No change since step ${count(first)}.`}</Empty>}
      {lines.length > 0 && (
        <Grid label={`Changes of ${view.name}, the newest first`} tall columns={["Change", { name: "Step", number: true }, ...view.columns.map((column) => ({ name: column.name, number: isNumber(column.type) }))]}
          rows={lines.map((line) => [
            <Badge tone={line.weight > 0 ? "good" : "bad"}>{line.weight > 0 ? "added" : "removed"}{Math.abs(line.weight) > 1 ? ` ×${Math.abs(line.weight)}` : ""}</Badge>,
            count(line.step), ...view.columns.map((column) => <Cell of={line.row[column.name]} />),
          ])} />
      )}
    </Card>
  );
}
