// Saved state: checkpoints, their copies, and backups.

import { useState } from "preact/hooks";
import { post } from "../api";
import { bytes, count, plural, seconds, time, value } from "../format";
import { Badge, Card, Empty, Facts, Field, Grid, Page, doing } from "../parts/basics";
import { Chart } from "../parts/Chart";
import { Progress } from "../parts/Progress";
import { useSignal } from "../signal";
import { history, status, useRead } from "../state";
import type { Setting } from "../types";

export function Checkpoints() {
  const now = useSignal(status)!;
  const past = useSignal(history);
  const checkpoints = past?.checkpoints ?? [];
  const oldest = [...checkpoints].reverse();
  const backups = past?.events.filter((event) => event.event.startsWith("backup")) ?? [];
  return (
    <Page title="Checkpoints and backups" lead="A checkpoint is the state of all workers before one step. After a crash the pipeline goes on from the last one and repeats the logged steps.">
      <Progress now={now} />
      <div class="columns">
        <Card title="Last checkpoint">
          <Facts of={[
            ["Before step", count(now.checkpoint_step)], ["Version", count(now.version)], ["Steps to repeat after a crash now", count(Math.max(0, now.step - now.checkpoint_step))],
            ["Since this start", plural(now.checkpoints, "checkpoint")], ["State", now.state_bytes === null ? "not known yet" : bytes(now.state_bytes)],
          ]} />
        </Card>
        <Copies />
      </div>
      {oldest.length > 1 && (
        <div class="charts">
          <Chart title="Time of a checkpoint" at={oldest.map((each) => Date.parse(each.at) / 1000)} show={(found) => (found === 0 ? "0" : seconds(found))}
            lines={[{ name: "copying", points: oldest.map((each) => each.seconds), kind: "area" }, { name: "steps paused", points: oldest.map((each) => each.pause_seconds) }]} />
          <Chart title="Written by a checkpoint" at={oldest.map((each) => Date.parse(each.at) / 1000)} show={bytes} sizes
            lines={[{ name: "written", points: oldest.map((each) => each.bytes_written), kind: "area" }]} />
        </div>
      )}
      <Card title="Checkpoints since this start">
        {checkpoints.length === 0 ? <Empty>None yet.</Empty> : (
          <Grid label="Checkpoints, the newest first" tall columns={["Published", { name: "Before step", number: true }, { name: "Version", number: true }, { name: "Time", number: true }, { name: "Steps paused", number: true }, { name: "Written", number: true }, { name: "State", number: true }]}
            rows={checkpoints.map((each) => [time(each.at), count(each.step), count(each.version), seconds(each.seconds), seconds(each.pause_seconds), bytes(each.bytes_written), bytes(each.state_bytes)])} />
        )}
      </Card>
      <Backup />
      <Card title="Backups since this start">
        {backups.length === 0 ? <Empty>None yet.</Empty> : (
          <Grid label="Backups, the newest first" columns={["When", "Result", { name: "Step", number: true }, { name: "Size", number: true }, { name: "Time", number: true }, "Folder", "Error"]}
            rows={backups.map((each) => [
              time(each.at), each.event === "backup" ? <Badge tone="good">Made</Badge> : <Badge tone="bad">Failed</Badge>,
              each["step"] === undefined ? "" : count(each["step"] as number), each["bytes"] === undefined ? "" : bytes(each["bytes"] as number),
              each["seconds"] === undefined ? "" : seconds(each["seconds"] as number), <code>{value(each["folder"])}</code>, value(each["error"]),
            ])} />
        )}
      </Card>
    </Page>
  );
}

function Copies() {
  const now = useSignal(status)!;
  const { found } = useRead<{ settings: Setting[] }>("/v1/settings");
  const alarm = now.alarms.find((each) => each.kind === "copies-away");
  const lag = now.checkpoint_copies;
  const setting = (section: string, key: string) => found?.settings.find((each) => each.section === section && each.key === key)?.value;
  const place = setting("checkpoint", "copies") as string | undefined;
  const standbys = (setting("layout", "standbys") as string[] | undefined) ?? [];
  return (
    <Card title="Copies of checkpoints">
      {alarm && <p><Badge tone="bad">Not reached</Badge> {alarm.text}</p>}
      {!found && !alarm && <Empty>Only a token of the scope admin may see the places of copies.</Empty>}
      {found && !place && standbys.length === 0 && <Empty>None: a lost disk loses the state. Set <code>copies</code> in [checkpoint] or <code>standbys</code> in [layout].</Empty>}
      {lag && (
        <Facts of={[
          ["Newest whole version", `${lag.version === null ? "none" : count(lag.version)} of ${count(lag.published)}`],
          ["Still to copy", bytes(lag.lag_bytes)], ["Age of the newest whole version", lag.lag_versions === 0 ? "it is the newest" : seconds(lag.age_s)],
          ...(lag.error ? [["Waits because", lag.error] as [string, string]] : []),
        ]} />
      )}
      {found && (place || standbys.length > 0) && (
        <Facts of={[
          ...(place ? [[lag ? "Versions are copied, some time later, to" : "Each published version is copied to", <code>{place}</code>] as [string, preact.JSX.Element]] : []),
          ...standbys.map((each): [string, preact.JSX.Element] => ["Standby", <code>{each}</code>]),
          ["Health", alarm ? <Badge tone="bad">Not reached</Badge> : <Badge tone="good">No alarm</Badge>],
        ]} />
      )}
    </Card>
  );
}

function Backup() {
  const now = useSignal(status)!;
  const [folder, setFolder] = useState("");
  const make = () => doing("Making a backup", async () => {
    const made = await post<{ folder: string; bytes: number; step: number }>("/v1/backup", { folder: folder.trim() });
    return `Backup of ${bytes(made.bytes)} at step ${count(made.step)} made in ${made.folder}`;
  });
  return (
    <Card title="Make a backup">
      <p class="soft">A backup has all that is needed to go on elsewhere from now. Steps go on meanwhile.</p>
      <form class="bar" onSubmit={(event) => { event.preventDefault(); void make(); }}>
        <Field label="Folder on the service's host" hint="The backup gets a folder of its own in it.">{(id) => <input id={id} required size={36} value={folder} placeholder="/backups" onInput={(event) => setFolder(event.currentTarget.value)} />}</Field>
        <button class="primary" disabled={now.backup !== null || !folder.trim()}>Back up</button>
      </form>
    </Card>
  );
}
