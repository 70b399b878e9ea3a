// The settings in force, and where each was set.

import { useState } from "preact/hooks";
import { plural, value } from "../format";
import { Badge, Card, Empty, Field, Grid, Page, Refused } from "../parts/basics";
import { useRead } from "../state";
import type { Setting } from "../types";

const shown = (found: unknown) =>
  found === null ? <span class="soft">none</span>
  : found === "" ? <span class="soft">empty</span>
  : Array.isArray(found) && found.length === 0 ? <span class="soft">none</span>
  : typeof found === "object" && Object.keys(found as object).length === 0 ? <span class="soft">none</span>
  : <code>{value(found)}</code>;

export function Settings() {
  const { found, error, refused } = useRead<{ folder: string; settings: Setting[] }>("/v1/settings");
  const [text, setText] = useState("");
  const [given, setGiven] = useState(false);
  const fits = (each: Setting) => (!given || each.set) && `${each.section}.${each.key}`.includes(text.trim().toLowerCase());
  const chosen = found?.settings.filter(fits) ?? [];
  const sections = [...new Set(chosen.map((each) => each.section))];
  return (
    <Page title="Settings" lead="As of the start of this service. The command line is stronger than the environment, the environment than the file.">
      <Refused error={error} refused={refused} />
      {found && (
        <form class="bar" role="search" onSubmit={(event) => event.preventDefault()}>
          <Field label="Name contains">{(id) => <input id={id} type="search" value={text} onInput={(event) => setText(event.currentTarget.value)} />}</Field>
          <label class="check"><input type="checkbox" checked={given} onChange={(event) => setGiven(event.currentTarget.checked)} /> only those that are set</label>
          <span class="soft">{plural(chosen.length, "setting")}; paths begin at <code>{found.folder}</code></span>
        </form>
      )}
      {found && chosen.length === 0 && <Empty>No setting fits this choice.</Empty>}
      {sections.map((section) => (
        <Card title={<code>[{section}]</code>}>
          <Grid label={`Settings of ${section}`} even columns={["Setting", "Value", "Default", "Set in"]}
            rows={chosen.filter((each) => each.section === section).map((each) => [
              <code>{each.key}</code>, shown(each.value), each.set ? shown(each.default) : <span class="soft">the same</span>,
              each.set ? <Badge tone="info">{each.origin}</Badge> : <span class="soft">default</span>,
            ])} />
        </Card>
      ))}
    </Page>
  );
}
