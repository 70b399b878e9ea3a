// What is under way, and what has happened, in words.

import { Refusal, ask } from "../api";
import { bytes, count, percent, plural, seconds, value } from "../format";
import { Badge, Card, Meter, doing, type Tone } from "./basics";
import type { Noted, Rescaling, Status } from "../types";

const CANCELLED = "The rescale was cancelled";
let cancelledHere = false;

export const cancelRescale = () => doing("Cancelling the rescale", async () => {
  cancelledHere = true;
  await ask("/v1/rescale", { method: "DELETE" });
  return CANCELLED;
});

// Carry out a rescale. The request of a rescale that is cancelled is refused: that is said once, and is no error.
export const rescaling = (text: string, action: () => Promise<string>) => doing(text, async () => {
  cancelledHere = false;
  try {
    return await action();
  } catch (problem) {
    if (!(problem instanceof Refusal && problem.message.endsWith("given up: it was cancelled"))) throw problem;
    return cancelledHere ? null : CANCELLED;
  }
});

export function Progress({ now }: { now: Status }) {
  return (
    <>
      {now.rescale && <Rescale of={now.rescale} />}
      {now.backup && (
        <Card title="Backup under way">
          <p>{now.backup.phase === "checkpoint" ? "Waits for a checkpoint" : `${bytes(now.backup.bytes)} of at most ${bytes(now.backup.bytes_max)} copied`} to <code>{now.backup.folder}</code>, {seconds(now.backup.seconds)} so far.</p>
          {now.backup.bytes_max > 0 && <Meter share={now.backup.bytes / now.backup.bytes_max} label="Copied bytes" />}
        </Card>
      )}
    </>
  );
}

function Rescale({ of }: { of: Rescaling }) {
  const moving = of.left_keys !== undefined;
  const done = moving ? of.moved_keys ?? 0 : of.copied_bytes ?? 0;
  const left = moving ? of.left_keys ?? 0 : of.lag_bytes ?? 0;
  const share = done + left > 0 ? done / (done + left) : 0;
  return (
    <Card title={`Rescale from ${plural(of.workers_before, "worker")} to ${of.workers}`} aside={<button type="button" onClick={() => void cancelRescale()}>Cancel the rescale</button>}>
      <p>
        {moving ? `${plural(done, "key")} moved, ${count(left)} to go` : `Round ${of.round}: ${bytes(done)} copied, ${bytes(left)} to go`}
        {of.expected_s === null ? "" : `, about ${seconds(of.expected_s)} left`}. Steps go on meanwhile.
      </p>
      <Meter share={share} label="Share that has moved" /><small class="soft">{percent(share)}</small>
    </Card>
  );
}

const BAD = new Set(["failed", "rollback", "backup-failed", "autoscale-failed", "copy-failed", "delta-failed", "traces-failed", "bug", "step-died", "crash"]);
const WARN = new Set(["alarm", "input-refused", "not-reached", "trim-failed"]);
const NAMES: Record<string, string> = {
  failed: "Error", rollback: "Recovery begins", "backup-failed": "Backup failed", backup: "Backup", rescale: "Rescale", migration: "Rescale begins",
  autoscale: "Autoscale", "autoscale-failed": "Autoscale failed", "copy-failed": "Topic not read", "copy-works": "Topic read again", "delta-failed": "Delta table not written",
  "delta-written": "Delta table written again", "traces-failed": "Traces not sent", "traces-sent": "Traces sent again", bug: "Internal error", "step-died": "Step ended its process", alarm: "Alarm", "alarm-over": "Alarm over",
  decision: "Decision", "input-refused": "Row refused", upgraded: "Upgrade", restored: "Workers restored", checkpoint: "Checkpoint", state: "State",
  claimed: "Start", end: "End", step: "Step", reloaded: "File read again", warmup: "Copy round", "warmup-ended": "Copy ended", idle: "Idle partitions",
  crash: "Crash",
};

export const toneOf = (event: string): Tone => (BAD.has(event) ? "bad" : WARN.has(event) ? "warn" : event.endsWith("-over") || event === "copy-works" ? "good" : "plain");
export const nameOf = (event: string): string => NAMES[event] ?? event;

// The fields of an event as one line.
export function sentenceOf(event: Noted): string {
  const found = (name: string) => event[name] as number;
  switch (event.event) {
    case "failed": return `${value(event["command"])}: ${value(event["error"])}`;
    case "rescale": return `${found("workers_before")} to ${plural(found("workers"), "worker")}: ${count(found("shards_moved"))} of ${count(found("shards"))} shards, ${bytes(found("bytes_moved"))} moved`;
    case "backup": return `step ${count(found("step"))}, ${bytes(found("bytes"))} in ${seconds(found("seconds"))} to ${value(event["folder"])}`;
    case "checkpoint": return `step ${count(found("step"))}, version ${count(found("version"))}, ${bytes(found("bytes_written"))} written in ${seconds(found("seconds"))}`;
    case "state": return `${value(event["state"])} at step ${count(found("step"))}`;
    case "alarm": return value(event["text"]);
    case "rollback": return `after ${plural(found("failures"), "failure")}`;
    default: return Object.entries(event).filter(([name, each]) => !["at", "event"].includes(name) && each !== null && each !== "").map(([name, each]) => `${name.replaceAll("_", " ")} ${value(each)}`).join(", ");
  }
}

export const EventText = ({ of }: { of: Noted }) => <span><Badge tone={toneOf(of.event)}>{nameOf(of.event)}</Badge> <span class="cell-wrap">{sentenceOf(of)}</span></span>;
