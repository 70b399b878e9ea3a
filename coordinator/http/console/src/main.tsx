// The frame of the console: navigation, state, decisions that are always at hand, and the page that the address names.

import { render, type ComponentType } from "preact";
import { useEffect, useState } from "preact/hooks";
import { post, setToken, token, tokenWanted } from "./api";
import { count } from "./format";
import { Badge, Dialog, Field, Questions, Toasts, doing, type Tone } from "./parts/basics";
import { Trouble } from "./parts/Trouble";
import { Checkpoints } from "./pages/Checkpoints";
import { DataflowPage } from "./pages/Dataflow";
import { Letters } from "./pages/Letters";
import { Logs } from "./pages/Logs";
import { Overview } from "./pages/Overview";
import { Settings } from "./pages/Settings";
import { Sql } from "./pages/Sql";
import { Tables } from "./pages/Tables";
import { Views } from "./pages/Views";
import { Workers } from "./pages/Workers";
import { useSignal } from "./signal";
import { away, start, status, useRoute } from "./state";
import type { Status } from "./types";
import "./style.css";

interface Entry { page: string; label: string; shows: ComponentType<{ name: string }>; badge?: (now: Status) => number }
const GROUPS: { label: string; entries: Entry[] }[] = [
  { label: "Pipeline", entries: [
    { page: "overview", label: "Overview", shows: Overview },
    { page: "dataflow", label: "Dataflow", shows: DataflowPage },
  ] },
  { label: "Data", entries: [
    { page: "tables", label: "Tables and connectors", shows: Tables, badge: (now) => now.inputs.filter((each) => each.away).length },
    { page: "views", label: "Views", shows: Views },
    { page: "sql", label: "SQL", shows: Sql },
    { page: "letters", label: "Dead letters", shows: Letters, badge: (now) => now.dead_letters },
  ] },
  { label: "Operation", entries: [
    { page: "checkpoints", label: "Checkpoints and backups", shows: Checkpoints },
    { page: "workers", label: "Workers and rescale", shows: Workers },
    { page: "logs", label: "Logs", shows: Logs },
    { page: "settings", label: "Settings", shows: Settings },
  ] },
];
const ENTRIES = GROUPS.flatMap((group) => group.entries);

const TONES: Record<string, Tone> = {
  Running: "good", Paused: "warn", Halted: "bad", Failed: "bad", Broken: "bad", Stopped: "bad",
};

function State({ now, lost }: { now: Status | null; lost: string }) {
  if (lost) return <Badge tone="bad">No answer</Badge>;
  return now ? <Badge tone={TONES[now.state] ?? "info"}>{now.state}</Badge> : <Badge>Connecting</Badge>;
}

function Decisions({ now }: { now: Status }) {
  const paused = now.state === "Paused";
  const turn = () => doing(paused ? "Resuming" : "Pausing", async () => {
    await post(paused ? "/v1/resume" : "/v1/pause");
    return paused ? "The pipeline takes steps again" : "The pipeline takes no further step";
  });
  const checkpoint = () => doing("Taking a checkpoint", async () =>
    `Checkpoint published at step ${count((await post<{ step: number }>("/v1/checkpoint")).step)}`);
  return (
    <>
      <button type="button" onClick={() => void turn()} title={paused ? "Take steps again" : "Take no further step; rows that arrive wait"}>{paused ? "Resume" : "Pause"}</button>
      <button type="button" onClick={() => void checkpoint()} title="Save the state of all workers now">Checkpoint</button>
    </>
  );
}

const THEMES = ["auto", "light", "dark"] as const;
function Theme() {
  const [theme, setTheme] = useState<string>(localStorage.getItem("dbsp-theme") ?? "auto");
  useEffect(() => {
    localStorage.setItem("dbsp-theme", theme);
    document.documentElement.dataset["theme"] = theme;
  }, [theme]);
  return (
    <label class="theme"><span class="hidden">Colours</span>
      <select value={theme} onChange={(event) => setTheme(event.currentTarget.value)}>
        {THEMES.map((each) => <option value={each}>{{ auto: "System colours", light: "Light", dark: "Dark" }[each]}</option>)}
      </select>
    </label>
  );
}

function TokenDialog() {
  const wanted = useSignal(tokenWanted);
  const [given, setGiven] = useState("");
  if (!wanted) return null;
  const reason = {
    needed: token.value ? "The service does not know this token." : "This service answers only requests with a token.",
    scope: "Another token is needed for this.", change: "The token is kept until this tab is closed.",
  }[wanted];
  return (
    <Dialog title="Token" onClose={() => tokenWanted.set("")}>
      <p>{reason} Tokens are set in <code>[http]</code> of the settings: <code>read</code> may look, <code>admin</code> may decide.</p>
      <form method="dialog" onSubmit={(event) => { event.preventDefault(); setToken(given.trim()); }}>
        <Field label="Token">{(id) => <input id={id} type="password" autocomplete="off" value={given} onInput={(event) => setGiven(event.currentTarget.value)} />}</Field>
        <div class="bar end">
          <button type="button" onClick={() => tokenWanted.set("")}>Cancel</button>
          <button class="primary">Use it</button>
        </div>
      </form>
    </Dialog>
  );
}

function Navigation({ page, open, now, close }: { page: string; open: boolean; now: Status | null; close: () => void }) {
  return (
    <nav id="pages" class={open ? "open" : ""} aria-label="Pages">
      {GROUPS.map((group) => (
        <div class="group">
          <p class="group-label" id={`group-${group.label}`}>{group.label}</p>
          <ul aria-labelledby={`group-${group.label}`}>
            {group.entries.map((entry) => {
              const badge = now && entry.badge ? entry.badge(now) : 0;
              return (
                <li><a href={`#/${entry.page}`} aria-current={page === entry.page ? "page" : undefined} onClick={close}>
                  {entry.label}{badge > 0 && <span class="count">{count(badge)}</span>}
                </a></li>
              );
            })}
          </ul>
        </div>
      ))}
      <div class="group foot">
        <Theme />
        <button type="button" class="plain" onClick={() => tokenWanted.set("change")}>Token</button>
        <a href="/docs" class="plain">HTTP interface</a>
      </div>
    </nav>
  );
}

function Console() {
  const now = useSignal(status);
  const lost = useSignal(away);
  const route = useRoute();
  const [open, setOpen] = useState(false);
  const entry = ENTRIES.find((each) => each.page === route.page) ?? ENTRIES[0]!;
  useEffect(() => { document.title = `${entry.label} · ${now?.name ?? "dbsp"}`; }, [entry.label, now?.name]);
  const Shown = entry.shows;
  return (
    <>
      <a class="skip" href="#page-title" onClick={(event) => { event.preventDefault(); document.getElementById("page-title")?.focus(); }}>Skip to the page</a>
      <header class="top">
        <button type="button" class="menu icon" aria-expanded={open} aria-controls="pages" aria-label="Pages" onClick={() => setOpen(!open)}>☰</button>
        <a class="brand" href="#/overview">{now?.name ?? "dbsp"}</a>
        <State now={now} lost={lost} />
        {now && <span class="soft where">step {count(now.step)}</span>}
        <span class="fill" />
        {now && <Decisions now={now} />}
      </header>
      <div class="frame">
        <Navigation page={entry.page} open={open} now={now} close={() => setOpen(false)} />
        <main>
          <Trouble now={now} lost={lost} />
          {now ? <Shown name={route.name} key={entry.page} /> : !lost && <p class="empty">Asking the service …</p>}
        </main>
      </div>
      <Toasts />
      <Questions />
      <TokenDialog />
    </>
  );
}

start();
render(<Console />, document.getElementById("app")!);
