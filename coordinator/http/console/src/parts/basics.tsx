// Small parts that all pages share: cards, badges, tables, messages, dialogs.

import type { ComponentChildren, JSX } from "preact";
import { useEffect, useId, useRef, useState } from "preact/hooks";
import { textOf, tokenWanted } from "../api";
import { value } from "../format";
import { signalOf, useSignal } from "../signal";

export type Tone = "good" | "warn" | "bad" | "plain" | "info";

export const Badge = ({ tone = "plain", children }: { tone?: Tone; children: ComponentChildren }) =>
  <span class={`badge ${tone}`}>{children}</span>;

export function Card(props: { title: ComponentChildren; aside?: ComponentChildren; class?: string; children: ComponentChildren }) {
  const id = useId();
  return (
    <section class={`card ${props.class ?? ""}`} aria-labelledby={id}>
      <header><h2 id={id}>{props.title}</h2>{props.aside && <div class="aside">{props.aside}</div>}</header>
      {props.children}
    </section>
  );
}

export const Page = (props: { title: ComponentChildren; lead?: ComponentChildren; actions?: ComponentChildren; children: ComponentChildren }) => (
  <>
    <div class="page-head">
      <div><h1 tabIndex={-1} id="page-title">{props.title}</h1>{props.lead && <p class="soft">{props.lead}</p>}</div>
      {props.actions && <div class="bar">{props.actions}</div>}
    </div>
    {props.children}
  </>
);

export const Problem = ({ children }: { children: ComponentChildren }) => <p class="problem" role="alert">{children}</p>;

// What stands in place of an answer that was refused.
export function Refused({ error, refused }: { error: string; refused: number }) {
  if (!error) return null;
  if (refused !== 403) return <Problem>{error}</Problem>;
  return (
    <div class="problem" role="alert">
      <p>This token may not see this: a token of the scope <code>admin</code> is needed.</p>
      <button type="button" onClick={() => tokenWanted.set("scope")}>Use another token</button>
    </div>
  );
}

export const Empty = ({ children }: { children: ComponentChildren }) => <p class="empty">{children}</p>;

export interface Heading { name: ComponentChildren; number?: boolean; sort?: () => void; sorted?: "ascending" | "descending" | "none" }

export function Grid(props: {
  label: string; columns: (string | Heading)[]; rows: ComponentChildren[][]; tall?: boolean; even?: boolean;
}) {
  const columns = props.columns.map((each): Heading => (typeof each === "string" ? { name: each } : each));
  return (
    <div class={`grid ${props.tall ? "tall" : ""} ${props.even ? "even" : ""}`} role="region" aria-label={props.label} tabIndex={0}>
      <table>
        <thead>
          <tr>
            {columns.map((column) => (
              <th scope="col" class={column.number ? "number" : ""} {...(column.sorted ? { "aria-sort": column.sorted } : {})}>
                {column.sort
                  ? <button type="button" class="sort" onClick={column.sort}>{column.name}<span aria-hidden="true">{MARKS[column.sorted ?? "none"]}</span></button>
                  : column.name}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {props.rows.map((row) => <tr>{row.map((cell, at) => <td class={columns[at]?.number ? "number" : ""}>{cell}</td>)}</tr>)}
        </tbody>
      </table>
    </div>
  );
}
const MARKS = { ascending: " ▲", descending: " ▼", none: " ↕" };

// A value of a row of data: null is told from an empty text, and a long text is shortened.
export const Cell = ({ of }: { of: unknown }) =>
  of === null || of === undefined ? <span class="null">null</span> : <span class="cell" title={value(of).length > 60 ? value(of) : undefined}>{value(of)}</span>;

export const isNumber = (type: string): boolean => /^(u?int|float|double|decimal)/.test(type);

export const Facts = ({ of }: { of: [ComponentChildren, ComponentChildren][] }) => (
  <dl class="facts">{of.map(([name, found]) => <div><dt>{name}</dt><dd>{found}</dd></div>)}</dl>
);

export function Meter({ share, label }: { share: number; label: string }) {
  const percent = Math.max(0, Math.min(100, 100 * share));
  return (
    <div class="meter" role="meter" aria-label={label} aria-valuemin={0} aria-valuemax={100} aria-valuenow={Math.round(percent)}>
      <div style={{ width: `${percent}%` }} />
    </div>
  );
}

// --- dialogs ---------------------------------------------------------------------------------------------------------

export function Dialog(props: { title: string; onClose: () => void; children: ComponentChildren }) {
  const shown = useRef<HTMLDialogElement>(null);
  const id = useId();
  useEffect(() => { shown.current?.showModal(); }, []);
  return (
    <dialog ref={shown} aria-labelledby={id} onClose={props.onClose}>
      <h2 id={id}>{props.title}</h2>
      {props.children}
    </dialog>
  );
}

export interface Question { title: string; body: ComponentChildren; yes: string; danger?: boolean; then: () => void }
const question = signalOf<Question | null>(null);
export const confirm = (asked: Question): void => question.set(asked);

export function Questions() {
  const asked = useSignal(question);
  if (!asked) return null;
  return (
    <Dialog title={asked.title} onClose={() => question.set(null)}>
      {asked.body}
      <div class="bar end">
        <button type="button" onClick={() => question.set(null)}>Cancel</button>
        <button type="button" class={asked.danger ? "danger" : "primary"} onClick={() => { question.set(null); asked.then(); }}>{asked.yes}</button>
      </div>
    </Dialog>
  );
}

// --- what was done -----------------------------------------------------------------------------------------------------

interface Said { id: number; text: string; tone: "info" | "good" | "bad"; busy: boolean }
const said = signalOf<Said[]>([]);
let numbers = 0;

function put(id: number, text: string, tone: Said["tone"], busy: boolean): void {
  const others = said.value.filter((each) => each.id !== id);
  said.set([...others, { id, text, tone, busy }].slice(-4));
}
const drop = (id: number): void => said.set(said.value.filter((each) => each.id !== id));

// Carry out a decision; say that it is under way, then how it ended (null: somebody else says it).
export async function doing(text: string, action: () => Promise<string | null>): Promise<void> {
  const id = ++numbers;
  put(id, `${text} …`, "info", true);
  try {
    const ended = await action();
    if (ended === null) return drop(id);
    put(id, ended, "good", false);
    setTimeout(() => drop(id), 8000);
  } catch (error) {
    put(id, `${text}: ${textOf(error)}`, "bad", false);
  }
}

export function Toasts() {
  const shown = useSignal(said);
  return (
    <div class="toasts" role="status" aria-live="polite">
      {shown.map((each) => (
        <div class={`toast ${each.tone}`} key={each.id}>
          {each.busy && <span class="spinner" aria-hidden="true" />}
          <span>{each.text}</span>
          {!each.busy && <button type="button" class="icon" aria-label="Dismiss" onClick={() => drop(each.id)}>×</button>}
        </div>
      ))}
    </div>
  );
}

export function useBusy(): [boolean, (action: () => Promise<void>) => void] {
  const [busy, setBusy] = useState(false);
  return [busy, (action) => {
    setBusy(true);
    void action().finally(() => setBusy(false));
  }];
}

export function Field(props: { label: string; hint?: string; children: (id: string) => JSX.Element }) {
  const id = useId();
  return <div class="field"><label for={id}>{props.label}</label>{props.children(id)}{props.hint && <small class="soft">{props.hint}</small>}</div>;
}
