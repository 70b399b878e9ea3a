// What is wrong, why, and what can be done: a halt, errors, alarms, a service that does not answer.

import { post } from "../api";
import { count, plural, seconds, time } from "../format";
import { Badge, Grid, confirm, doing } from "./basics";
import type { Alarm, Halt, Status } from "../types";

const LONG_S = 10;
const KINDS: Record<string, string> = {
  "step-slow": "Slow step", "command-slow": "Slow command", recovering: "Recovery", halted: "Halted", "input-waits": "Input waits",
  "clock-ahead": "Clock ahead", "not-reloaded": "Changed file not used", "copies-away": "Copies of checkpoints", ended: "Ended",
};

export function Trouble({ now, lost }: { now: Status | null; lost: string }) {
  if (lost) {
    return (
      <div class="trouble bad" role="alert">
        <h2>The service cannot be read</h2>
        <p>{lost}. The console asks again every second{now ? "; figures below are the last known ones" : ""}.</p>
      </div>
    );
  }
  if (!now) return null;
  const alarms = now.alarms.filter((alarm) => !(now.halt && alarm.kind === "halted"));
  return (
    <>
      {now.halt && <Halted halt={now.halt} />}
      {now.last_error && !now.halt && (
        <div class="trouble bad" role="alert">
          <h2>{now.state === "Running" ? "The last error" : `${now.state} after an error`}</h2>
          <p>{now.last_error}</p>
        </div>
      )}
      {now.rescale_waiting && (
        <div class="trouble info"><h2>A rescale waits</h2><p>To {plural(now.rescale_waiting.workers, "worker")} by {now.rescale_waiting.strategy}: waits for {now.rescale_waiting.waits_for}.</p></div>
      )}
      {alarms.length > 0 && <Alarms of={alarms} />}
      {now.doing && now.doing.seconds > LONG_S && alarms.length === 0 && (
        <div class="trouble info">
          <h2>{now.doing.step === null ? `${now.doing.command} runs` : `Step ${count(now.doing.step)} runs`} for {seconds(now.doing.seconds)}</h2>
          {now.doing.workers_awaited.length > 0 && <p>Not answered yet: worker {now.doing.workers_awaited.join(", ")}.</p>}
        </div>
      )}
    </>
  );
}

const Alarms = ({ of }: { of: Alarm[] }) => (
  <div class="trouble warn" role="alert">
    <h2>{plural(of.length, "alarm")}</h2>
    <ul class="plain-list">
      {of.map((alarm) => <li><Badge tone="warn">{KINDS[alarm.kind] ?? alarm.kind}</Badge> {alarm.text} <span class="soft">since {time(alarm.since)}</span></li>)}
    </ul>
  </div>
);

function Halted({ halt }: { halt: Halt }) {
  const output = halt.command === "accept-output";
  const skip = () => confirm({
    title: `Skip the failing rows of step ${count(halt.step)}?`, yes: "Skip them", danger: true,
    body: <p>The step runs without them, and they become dead letters. After a fix they can be replayed from the page of dead letters.</p>,
    then: () => void doing("Skipping the rows", async () => {
      const done = await post<{ rows: number; step: number }>("/v1/skip", { step: halt.step });
      return `Step ${count(done.step)} goes on without ${plural(done.rows, "row")}`;
    }),
  });
  const accept = () => confirm({
    title: `Accept the new output of step ${count(halt.step)}?`, yes: "Accept it", danger: true,
    body: <p>The output of the earlier run stays as it is. The difference to the new one is put out as a further change.</p>,
    then: () => void doing("Accepting the output", async () => {
      await post("/v1/accept-output", { step: halt.step });
      return `Step ${count(halt.step)} goes on with its new output`;
    }),
  });
  return (
    <div class="trouble bad" role="alert">
      <h2>The pipeline has halted before step {count(halt.step)}</h2>
      <p>{halt.death ? `The step ended its process: ${halt.death}` : halt.message}</p>
      {halt.rows.length > 0 && (
        <Grid label="Failing rows" columns={["Table", { name: "Partition", number: true }, { name: "Offset", number: true }, "Reason", "Row"]}
          rows={halt.rows.map((row) => [row.table, row.partition, row.offset < 0 ? "unknown" : count(row.offset), row.reason, <code>{row.payload}</code>])} />
      )}
      {halt.count > halt.rows.length && halt.rows.length > 0 && <p class="soft">The first {halt.rows.length} of {plural(halt.count, "row")}.</p>}
      <p><b>What you can do</b></p>
      {output ? (
        <ul>
          <li>Find the function of the circuit that gives different results for the same rows, correct it, and start again.</li>
          <li>Or accept the new output: the difference is put out as a change.</li>
        </ul>
      ) : (
        <ul>
          <li>Correct the circuit{halt.name ? <> at <code>{halt.name}</code></> : null}, and start the service again: the step runs anew.</li>
          <li>Or go on without the rows: they become dead letters, which can be replayed after a fix.</li>
        </ul>
      )}
      <div class="bar">
        {output ? <button type="button" class="primary" onClick={accept}>Accept the new output</button>
          : <button type="button" class="primary" onClick={skip}>Skip the failing rows</button>}
      </div>
    </div>
  );
}
