// One SELECT over the views as of one step, with history and export.

import { useEffect, useRef, useState } from "preact/hooks";
import { ask, textOf } from "../api";
import { count, plural, seconds, time } from "../format";
import { Card, Cell, Empty, Grid, Page, Problem } from "../parts/basics";
import { identifier } from "../sql";
import { useRead } from "../state";
import type { Dataflow, QueryResult } from "../types";

const KEY = "dbsp-queries";
const KEPT = 50;
const SHOWN = 500;
const ARROW = "application/vnd.apache.arrow.stream";
interface Past { sql: string; at: string }
const remembered = (): Past[] => {
  try {
    return JSON.parse(localStorage.getItem(KEY) ?? "[]") as Past[];
  } catch {
    return [];
  }
};

interface Answer { sql: string; result: QueryResult; took: number; plan: boolean }

export function Sql({ name }: { name: string }) {
  const [sql, setSql] = useState(name);
  const [past, setPast] = useState(remembered);
  const [answer, setAnswer] = useState<Answer | null>(null);
  const [error, setError] = useState("");
  const [running, setRunning] = useState<AbortController | null>(null);
  const box = useRef<HTMLTextAreaElement>(null);
  const { found } = useRead<Dataflow>("/v1/dataflow");

  const relations = found?.views.filter((view) => view.materialized) ?? [];
  const example = relations[0] ? `SELECT * FROM ${identifier(relations[0].name)} LIMIT 100` : "";

  useEffect(() => { if (name) setSql(name); }, [name]);
  useEffect(() => setSql((now) => now || example), [example]);

  const remember = (text: string) => {
    const kept = [{ sql: text, at: new Date().toISOString() }, ...past.filter((each) => each.sql !== text)].slice(0, KEPT);
    localStorage.setItem(KEY, JSON.stringify(kept));
    setPast(kept);
  };
  const run = async (plan = false) => {
    const text = sql.trim();
    if (!text || running) return;
    const abort = new AbortController();
    setRunning(abort);
    setError("");
    setAnswer(null);
    remember(text);
    const began = performance.now();
    try {
      const asked = plan ? `EXPLAIN ${text}` : text;
      const result = (await (await ask("/v1/query", { method: "POST", body: { sql: asked }, signal: abort.signal })).json()) as QueryResult;
      setAnswer({ sql: text, result, took: (performance.now() - began) / 1000, plan });
    } catch (problem) {
      setError(abort.signal.aborted ? "The query was cancelled" : textOf(problem));
    } finally {
      setRunning(null);
    }
  };
  const insert = (text: string) => {
    const area = box.current;
    const at = area?.selectionStart ?? sql.length;
    const end = area?.selectionEnd ?? at;
    setSql(sql.slice(0, at) + text + sql.slice(end));
    area?.focus();
  };
  return (
    <Page title="SQL" lead="One SELECT over the views and dead_letters. All of it is read as of one step; nothing is changed.">
      <div class="columns wide-first">
        <div>
          <Card title="Query">
            <form onSubmit={(event) => { event.preventDefault(); void run(); }}>
              <label class="hidden" for="sql">SQL</label>
              <textarea id="sql" ref={box} rows={6} spellcheck={false} value={sql} placeholder="SELECT …" onInput={(event) => setSql(event.currentTarget.value)}
                onKeyDown={(event) => { if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) { event.preventDefault(); void run(); } }} />
              <div class="bar">
                <button class="primary" disabled={running !== null || !sql.trim()}>Run</button>
                <button type="button" disabled={running !== null || !sql.trim()} title="What the query reads of each view, and what is done with it; nothing is read" onClick={() => void run(true)}>Show the plan</button>
                {running && <button type="button" onClick={() => running.abort()}>Cancel</button>}
                <span class="soft">Ctrl + Enter runs it</span>
              </div>
            </form>
          </Card>
          <div aria-live="polite">
            {running && <Empty>The query runs …</Empty>}
            {error && <Problem>{error}</Problem>}
            {answer && (answer.plan ? <Plan of={answer} /> : <Result of={answer} />)}
          </div>
        </div>
        <div>
          <Card title="Relations">
            {!found ? <Empty>Asking for the views …</Empty> : (
              <ul class="plain-list">
                {relations.map((view) => (
                  <li><details>
                    <summary>{view.name}</summary>
                    <ul>
                      <li><button type="button" class="link" onClick={() => insert(identifier(view.name))}>Insert {view.name}</button></li>
                      {view.columns.map((column) => <li><button type="button" class="link" onClick={() => insert(identifier(column.name))} aria-label={`Insert ${column.name}`}>{column.name}</button> <span class="soft">{column.type}</span></li>)}
                    </ul>
                  </details></li>
                ))}
                <li><button type="button" class="link" onClick={() => insert("dead_letters")}>dead_letters</button></li>
              </ul>
            )}
          </Card>
          <Card title="History" aside={past.length > 0 && <button type="button" onClick={() => { localStorage.removeItem(KEY); setPast([]); }}>Forget all</button>}>
            {past.length === 0 ? <Empty>Queries that you run are listed here, in this browser alone.</Empty> : (
              <ol class="history">
                {past.map((each) => <li><button type="button" class="link" onClick={() => { setSql(each.sql); box.current?.focus(); }}><code>{each.sql}</code></button><time class="soft">{time(each.at)}</time></li>)}
              </ol>
            )}
          </Card>
        </div>
      </div>
    </Page>
  );
}

function Plan({ of }: { of: Answer }) {
  return (
    <Card title="Plan">
      <pre class="plan" tabIndex={0} aria-label="Plan of the query">{of.result.rows.map((row) => String(row[0])).join("\n")}</pre>
    </Card>
  );
}

function Result({ of }: { of: Answer }) {
  const { columns, rows, step } = of.result;
  const numbers = columns.map((_, at) => rows.some((row) => typeof row[at] === "number"));
  const arrow = async () => save(`query-${step}.arrow`, await (await ask("/v1/query", { method: "POST", body: { sql: of.sql }, accept: ARROW })).blob());
  const asText = (kind: string, text: string) => save(`query-${step}.${kind}`, new Blob([text], { type: kind === "csv" ? "text/csv" : "application/json" }));
  return (
    <Card title={plural(rows.length, "row")} aside={
      <span class="bar">
        <span class="soft">as of step {count(step)}, {seconds(of.took)}</span>
        <button type="button" onClick={() => asText("csv", csv(columns, rows))}>CSV</button>
        <button type="button" onClick={() => asText("json", JSON.stringify(rows.map((row) => Object.fromEntries(columns.map((name, at) => [name, row[at]]))), null, 1))}>JSON</button>
        <button type="button" title="Runs the query again, and saves its answer as an Arrow stream" onClick={() => void arrow()}>Arrow</button>
      </span>
    }>
      {rows.length === 0 ? <Empty>The answer has no rows.</Empty> : (
        <Grid label="Answer" tall columns={columns.map((name, at) => ({ name, number: numbers[at] ?? false }))} rows={rows.slice(0, SHOWN).map((row) => row.map((each) => <Cell of={each} />))} />
      )}
      {rows.length > SHOWN && <p class="soft">The first {SHOWN} rows are shown; an export has all {count(rows.length)}.</p>}
    </Card>
  );
}

function save(name: string, content: Blob): void {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(content);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}

const quoted = (found: unknown): string => {
  const text = found === null || found === undefined ? "" : typeof found === "object" ? JSON.stringify(found) : String(found);
  return /[",\r\n]/.test(text) || found === "" ? `"${text.replaceAll('"', '""')}"` : text;
};
const csv = (columns: string[], rows: unknown[][]): string => [columns, ...rows].map((row) => row.map(quoted).join(",")).join("\r\n") + "\r\n";
