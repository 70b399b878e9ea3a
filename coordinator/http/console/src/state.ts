// What every page needs: the status once a second, the history, and which page is shown.

import { useEffect, useState } from "preact/hooks";
import { Refusal, read, textOf, token } from "./api";
import { signalOf, useSignal } from "./signal";
import type { History, Points, Status } from "./types";

const STATUS_MS = 1000;
const HISTORY_MS = 2500;

export const status = signalOf<Status | null>(null);
export const history = signalOf<History | null>(null);
export const away = signalOf<string>("");

async function pollStatus(): Promise<void> {
  try {
    status.set(await read<Status>("/v1/status"));
    if (away.value) away.set("");
  } catch (error) {
    away.set(textOf(error));
  }
  setTimeout(pollStatus, STATUS_MS);
}

let epoch = -1;
async function pollHistory(): Promise<void> {
  const now = status.value;
  try {
    const known = history.value;
    const goOn = known !== null && now !== null && now.epoch === epoch;
    const found = await read<History>(`/v1/history?first=${goOn ? known.next : 0}`);
    history.set(goOn ? { ...found, points: joined(known, found) } : found);
    if (now) epoch = now.epoch;
  } catch {
    // The status says that the service is away.
  }
  setTimeout(pollHistory, HISTORY_MS);
}

// The last known point was not over: the new ones begin with it.
function joined(before: History, now: History): Points {
  const upTo = before.points.number.indexOf(before.next);
  const keep = upTo < 0 ? before.points.number.length : upTo;
  const found = { ...now.points };
  for (const name of Object.keys(found) as (keyof Points)[]) {
    const all = [...before.points[name].slice(0, keep), ...now.points[name]];
    (found as Record<string, unknown[]>)[name] = all.slice(-now.points_max);
  }
  return found;
}

export function start(): void {
  void pollStatus();
  void pollHistory();
}

export interface Answer<T> { found: T | null; error: string; refused: number }
const NOTHING = { found: null, error: "", refused: 0 };

// The answer to a request. It is asked again when `again` or the token changes, and `every` so many milliseconds after the last answer.
export function useRead<T>(path: string | null, again: unknown = null, every = 0): Answer<T> {
  const [state, setState] = useState<Answer<T> & { path: string | null }>({ path, ...NOTHING });
  const used = useSignal(token);
  useEffect(() => {
    if (path === null) return;
    const abort = new AbortController();
    let timer: ReturnType<typeof setTimeout> | undefined;
    const go = async (): Promise<void> => {
      try {
        const found = await read<T>(path, abort.signal);
        setState({ path, found, error: "", refused: 0 });
      } catch (error) {
        if (abort.signal.aborted) return;
        const refused = error instanceof Refusal ? error.status : 0;
        setState((last) => ({ path, found: last.path === path && !refused ? last.found : null, error: textOf(error), refused }));
      }
      if (every > 0 && !abort.signal.aborted) timer = setTimeout(() => void go(), every);
    };
    void go();
    return () => {
      abort.abort();
      clearTimeout(timer);
    };
  }, [path, again, every, used]);
  return state.path === path ? state : NOTHING;
}

export type Route = { page: string; name: string };
export const routeOf = (hash: string): Route => {
  const [page = "", ...rest] = hash.replace(/^#\/?/, "").split("/");
  return { page: page || "overview", name: rest.map(decodeURIComponent).join("/") };
};
export function useRoute(): Route {
  const [route, setRoute] = useState(routeOf(location.hash));
  useEffect(() => {
    const changed = () => setRoute(routeOf(location.hash));
    addEventListener("hashchange", changed);
    return () => removeEventListener("hashchange", changed);
  }, []);
  return route;
}
