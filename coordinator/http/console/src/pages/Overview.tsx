// The last hour at a glance.

import { bytes, count, plural, rate, seconds, time } from "../format";
import { Card, Empty, Facts, Page } from "../parts/basics";
import { Chart } from "../parts/Chart";
import { EventText, Progress } from "../parts/Progress";
import { useSignal } from "../signal";
import { history, status } from "../state";
import type { History, Numbers, Points, Status } from "../types";

const RATE_POINTS = 3;
const perSecond = (counts: number[], point: number): number[] => counts.map((each) => each / point);

// The mean of the last whole points; the newest one is not over.
function current(counts: number[], point: number): string {
  const last = counts.slice(0, -1).slice(-RATE_POINTS);
  return last.length ? rate(last.reduce((sum, each) => sum + each, 0) / (last.length * point)) : "–";
}
const latest = (points: Numbers): number | null => points.findLast((point) => point !== null) ?? null;
const summed = (counts: number[]): number => counts.reduce((sum, each) => sum + each, 0);

const Tile = ({ label, shown, note, tone = "" }: { label: string; shown: string; note: string; tone?: string }) => (
  <div class={`tile ${tone}`}><span class="soft">{label}</span><b>{shown}</b><small class="soft">{note}</small></div>
);

export function Overview() {
  const now = useSignal(status)!;
  const past = useSignal(history);
  return (
    <Page title="Overview" lead={`dbsp ${now.engine}, ${plural(now.workers, "worker")}, checkpoint at step ${count(now.checkpoint_step)}`}>
      <Progress now={now} />
      {past ? <><Tiles now={now} past={past} /><Charts past={past} /></> : <Empty>Asking for the last hour …</Empty>}
      <div class="columns">
        <Events past={past} />
        <Card title="Pipeline">
          <Facts of={[
            ["State", now.state], ["Next step", count(now.step)], ["Last checkpoint", `step ${count(now.checkpoint_step)}, version ${count(now.version)}`],
            ["Rows processed since this start", count(now.rows_in)], ["Changes of views since this start", count(now.rows_out)],
            ["Recoveries from errors", count(now.rollbacks)], ["Starts of this pipeline", count(now.epoch)],
            ["Circuit", <code title={now.fingerprint}>{now.fingerprint.slice(0, 12)}</code>],
          ]} />
          {now.past_error && !now.halt && <p class="soft">Recovered at {time(now.past_error.over)} from: {now.past_error.message}</p>}
        </Card>
      </div>
    </Page>
  );
}

function Tiles({ now, past }: { now: Status; past: History }) {
  const { points, point_seconds: point } = past;
  const latency = latest(points.latency_seconds.slice(-RATE_POINTS * 4));
  const errors = summed(points.errors);
  const dead = Math.round(summed(points.dead_letters));
  const under = now.doing && now.doing.step !== null && now.doing.seconds > 2 ? `step ${count(now.doing.step)} runs for ${seconds(now.doing.seconds)}` : "mean of 15 s";
  return (
    <div class="tiles">
      <Tile label="Rows in a second" shown={current(points.rows_in, point)} note={under} />
      <Tile label="Changes a second" shown={current(points.rows_out, point)} note="of all views" />
      <Tile label="Latency" shown={latency === null ? "–" : seconds(latency)} note="arrival of rows to their results" />
      <Tile label="Waiting rows" shown={now.lag_rows === null ? "not known yet" : count(now.lag_rows)} note="arrived, in no step yet" />
      <Tile label="State" shown={now.state_bytes === null ? "not known yet" : bytes(now.state_bytes)} note="of all workers" />
      <Tile label="Dead letters" shown={count(dead)} note="in the last hour" tone={dead ? "warn" : ""} />
      <Tile label="Errors" shown={count(errors)} note="in the last hour" tone={errors ? "bad" : ""} />
    </div>
  );
}

// The newest point is not over: sums of it would draw a dip at the end.
function whole(points: Points): Points {
  const found = { ...points };
  for (const name of Object.keys(found) as (keyof Points)[]) (found as Record<string, unknown[]>)[name] = points[name].slice(0, -1);
  return found;
}

function Charts({ past }: { past: History }) {
  const points = whole(past.points);
  const point = past.point_seconds;
  const at = points.unix_s.map((each) => each + point);
  return (
    <div class="charts">
      <Chart title="Rows per second" at={at} show={rate} lines={[
        { name: "in", points: perSecond(points.rows_in, point), kind: "area" }, { name: "changes out", points: perSecond(points.rows_out, point) },
      ]} />
      <Chart title="Latency of pushes" at={at} show={(value) => (value === 0 ? "0" : seconds(value))} lines={[
        { name: "mean", points: points.latency_seconds, kind: "line" }, { name: "highest", points: points.latency_seconds_max, kind: "soft" },
      ]} />
      <Chart title="Waiting rows" at={at} show={rate} lines={[{ name: "waiting", points: points.lag_rows, kind: "area" }]} />
      <Chart title="Time of a step" at={at} show={(value) => (value === 0 ? "0" : seconds(value))} lines={[
        { name: "mean", points: points.step_seconds, kind: "line" }, { name: "highest", points: points.step_seconds_max, kind: "soft" },
      ]} />
      <Chart title="State" at={at} show={bytes} sizes lines={[{ name: "state", points: points.state_bytes, kind: "area" }]} />
      <Chart title="Dead letters and errors" at={at} show={rate} lines={[
        { name: "dead letters", points: points.dead_letters, kind: "line" }, { name: "errors", points: points.errors, kind: "line" },
      ]} />
    </div>
  );
}

function Events({ past }: { past: History | null }) {
  const events = past?.events.slice(0, 12) ?? [];
  return (
    <Card title="Events" aside={<a href="#/logs">All logs</a>}>
      {events.length === 0 ? <Empty>No error, alarm, backup or rescale since this start.</Empty> : (
        <ol class="events">{events.map((event) => <li><time class="soft">{time(event.at)}</time><EventText of={event} /></li>)}</ol>
      )}
    </Card>
  );
}
