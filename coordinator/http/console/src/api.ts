// Requests to the service: the token, refusals as errors, and the stream of a view's changes.

import { signalOf } from "./signal";

export class Refusal extends Error {
  constructor(readonly status: number, message: string, readonly hint: string | null) {
    super(message);
  }
  get text(): string {
    return this.hint ? `${this.message}. ${sentence(this.hint)}` : this.message;
  }
}

const sentence = (text: string) => text.charAt(0).toUpperCase() + text.slice(1);

const KEY = "dbsp-token";
export const token = signalOf<string>(sessionStorage.getItem(KEY) ?? "");
export const tokenWanted = signalOf<"" | "needed" | "scope" | "change">("");

export function setToken(value: string): void {
  sessionStorage.setItem(KEY, value);
  token.set(value);
  tokenWanted.set("");
}

export interface Asked { method?: string; body?: unknown; accept?: string; signal?: AbortSignal }

export async function ask(path: string, asked: Asked = {}): Promise<Response> {
  const headers: Record<string, string> = {};
  const used = token.value;
  if (used) headers["Authorization"] = `Bearer ${used}`;
  if (asked.accept) headers["Accept"] = asked.accept;
  if (asked.body !== undefined) headers["Content-Type"] = "application/json";
  const init: RequestInit = { method: asked.method ?? "GET", headers, cache: "no-store" };
  if (asked.body !== undefined) init.body = JSON.stringify(asked.body);
  if (asked.signal) init.signal = asked.signal;
  const answer = await fetch(path, init);
  if (answer.ok) return answer;
  if (answer.status === 401 && used === token.value) tokenWanted.set("needed");
  const found = await answer.json().catch(() => null);
  const error = found?.error ?? { message: `the service answered ${answer.status} ${answer.statusText}`, hint: null };
  throw new Refusal(answer.status, error.message, error.hint ?? null);
}

export const read = async <T>(path: string, signal?: AbortSignal): Promise<T> =>
  (await ask(path, signal ? { signal } : {})).json() as Promise<T>;

export const post = async <T>(path: string, body: unknown = {}): Promise<T> =>
  (await ask(path, { method: "POST", body })).json() as Promise<T>;

export const part = (name: string): string => encodeURIComponent(name);

export const textOf = (error: unknown): string =>
  error instanceof Refusal ? error.text
  : error instanceof TypeError ? "The service does not answer"
  : error instanceof Error ? error.message : String(error);

export interface Change { step: number; rows: Record<string, unknown>[]; weights: number[] }

// An EventSource cannot send a token, so the event stream is read by fetch.
export async function follow(view: string, first: number, signal: AbortSignal, heard: (change: Change) => void): Promise<void> {
  const answer = await ask(`/v1/views/${part(view)}/changes?first=${first}`, { accept: "text/event-stream", signal });
  const reader = answer.body!.pipeThrough(new TextDecoderStream()).getReader();
  let waiting = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    const events = (waiting + value).split("\n\n");
    waiting = events.pop() ?? "";
    for (const event of events) {
      const data = event.split("\n").find((line) => line.startsWith("data: "));
      if (!data) continue;
      const found = JSON.parse(data.slice("data: ".length));
      if (found.error) throw new Refusal(0, found.error.message, found.error.hint ?? null);
      heard(found as Change);
    }
  }
}
