// The last events of the service's log.

import { useState } from "preact/hooks";
import { plural, time } from "../format";
import { Badge, Card, Empty, Field, Grid, Page, Refused } from "../parts/basics";
import { nameOf, sentenceOf, toneOf } from "../parts/Progress";
import { useRead } from "../state";
import type { Noted } from "../types";

export function Logs() {
  const [draft, setDraft] = useState("");
  const [contains, setContains] = useState("");
  const [lines, setLines] = useState(200);
  const [live, setLive] = useState(true);
  const query = new URLSearchParams({ lines: String(lines), ...(contains ? { contains } : {}) });
  const { found, error, refused } = useRead<{ file: string; events: Noted[] }>(`/v1/logs?${query}`, null, live && !contains ? 2000 : 0);
  return (
    <Page title="Logs" lead={found ? <>The newest first, of <code>{found.file}</code></> : "The service's log of events"}>
      <Card title={found ? plural(found.events.length, "event") : "Events"} aside={<button type="button" aria-pressed={!live} onClick={() => setLive(!live)}>{live ? "Stop following" : "Follow"}</button>}>
        <form class="bar" role="search" onSubmit={(event) => { event.preventDefault(); setContains(draft.trim()); }}>
          <Field label="Lines that contain">{(id) => <input id={id} type="search" value={draft} onInput={(event) => setDraft(event.currentTarget.value)} />}</Field>
          <Field label="At most">{(id) => (
            <select id={id} value={lines} onChange={(event) => setLines(Number(event.currentTarget.value))}>
              {[50, 200, 1000, 5000].map((each) => <option value={each}>{each} lines</option>)}
            </select>
          )}</Field>
          <button class="primary">Show</button>
        </form>
        <Refused error={error} refused={refused} />
        {found && found.events.length === 0 && <Empty>No line has this text.</Empty>}
        {found && found.events.length > 0 && (
          <Grid label="Events, the newest first" tall columns={["Time", "Event", "What happened"]}
            rows={found.events.map((event) => [<time>{time(event.at)}</time>, <Badge tone={toneOf(event.event)}>{nameOf(event.event)}</Badge>, <span class="cell-wrap">{sentenceOf(event)}</span>])} />
        )}
      </Card>
    </Page>
  );
}
