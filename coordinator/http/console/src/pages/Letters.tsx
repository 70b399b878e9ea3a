// Rows that could not be used: why, and their replay after a fix.

import { useEffect, useState } from "preact/hooks";
import { post } from "../api";
import { count, plural } from "../format";
import { Badge, Card, Cell, Empty, Field, Grid, Page, Refused, confirm, doing } from "../parts/basics";
import { useSignal } from "../signal";
import { status, useRead } from "../state";
import type { Letter, LetterPage, Replay } from "../types";

const PAGE = 50;
const CODES: [string, string][] = [
  ["", "any"], ["unreadable", "not readable as a row of the table"], ["failed", "failed in an operator"], ["late", "later than its watermark allows"],
  ["skipped", "skipped by a decision"], ["second-row", "a second row of the same key"], ["taken-back", "deleted, but was not there"],
];
interface Filter { table: string; code: string; reason: string }
const NONE: Filter = { table: "", code: "", reason: "" };
const WAITING = "false"; // the query's value of `replayed`; empty for all letters
const given = (filter: Filter): Partial<Filter> => Object.fromEntries(Object.entries(filter).filter(([, value]) => value));

export function Letters() {
  const now = useSignal(status)!;
  const [draft, setDraft] = useState(NONE);
  const [filter, setFilter] = useState(NONE);
  const [replayed, setReplayed] = useState(WAITING);
  const [cursors, setCursors] = useState<string[]>([""]);
  const [again, setAgain] = useState(0);
  const cursor = cursors.at(-1) ?? "";
  const query = new URLSearchParams({ ...given(filter), limit: String(PAGE), newest: "true", ...(replayed ? { replayed } : {}), ...(cursor ? { cursor } : {}) });
  const { found, error, refused } = useRead<LetterPage>(`/v1/dead-letters?${query}`, again);
  useEffect(() => { if (cursors.length === 1) setAgain((last) => last + 1); }, [now.dead_letters]);

  const show = () => { setFilter(draft); setCursors([""]); setAgain(again + 1); };
  const replay = (wanted: Partial<Filter> | { first: string; last: string }, what: string) => void doing(`Looking at ${what}`, async () => {
    const planned = await post<Replay>("/v1/dead-letters/replay", { ...wanted, dry_run: true });
    if (planned.replayed === 0) return nothing(planned);
    confirm({
      title: `Replay ${plural(planned.replayed, "row")}?`, yes: "Replay",
      body: <Planned of={planned} />,
      then: () => void doing(`Replaying ${what}`, async () => {
        const done = await post<Replay>("/v1/dead-letters/replay?wait=true", wanted);
        setAgain((last) => last + 1);
        return `${plural(done.replayed, "row")} replayed, ${count(done.failed_again)} still cannot be read`;
      }),
    });
    return planned.failed_again === 0 ? `${plural(planned.replayed, "row")} can be read now` : `${count(planned.replayed)} can be read now, ${count(planned.failed_again)} not yet`;
  });
  return (
    <Page title="Dead letters" lead="Rows that could not be used. After a fix they can be read again and used as new input, each at most once.">
      <Card title="Choose letters">
        <form class="bar" onSubmit={(event) => { event.preventDefault(); show(); }}>
          <Field label="Table">{(id) => (
            <select id={id} value={draft.table} onChange={(event) => setDraft({ ...draft, table: event.currentTarget.value })}>
              <option value="">all tables</option>{now.tables.map((table) => <option>{table}</option>)}
            </select>
          )}</Field>
          <Field label="Kind">{(id) => (
            <select id={id} value={draft.code} onChange={(event) => setDraft({ ...draft, code: event.currentTarget.value })}>
              {CODES.map(([code, text]) => <option value={code}>{text}</option>)}
            </select>
          )}</Field>
          <Field label="Part of the reason">{(id) => <input id={id} type="search" value={draft.reason} onInput={(event) => setDraft({ ...draft, reason: event.currentTarget.value.trimStart() })} />}</Field>
          <Field label="Replay">{(id) => (
            <select id={id} value={replayed} onChange={(event) => { setReplayed(event.currentTarget.value); setCursors([""]); }}>
              <option value={WAITING}>not replayed</option><option value="">all</option>
            </select>
          )}</Field>
          <button class="primary">Show</button>
          <button type="button" disabled={!found?.total} onClick={() => replay(given(filter), "these letters")}>Replay these …</button>
        </form>
      </Card>
      <Card title={found ? plural(found.total, "letter") : "Letters"} aside={found && (found.kept_from > 0 || found.hidden > 0) && <span class="soft">{[
        ...(found.hidden > 0 ? [`${count(found.hidden)} more were replayed`] : []), ...(found.kept_from > 0 ? [`kept from step ${count(found.kept_from)} on`] : []),
      ].join("; ")}</span>}>
        <Refused error={error} refused={refused} />
        {found && found.letters.length === 0 && <Empty>No dead letter{Object.keys(given(filter)).length ? " fits this choice" : ""}.</Empty>}
        {found && found.letters.length > 0 && (
          <Grid label="Dead letters, the newest first" tall columns={["Letter", "Replay", "Kind", "Table or node", { name: "Partition", number: true }, { name: "Offset", number: true }, "Reason", "Text"]}
            rows={found.letters.map((letter) => row(letter, () => replay({ first: letter.position, last: letter.position }, `letter ${letter.position}`)))} />
        )}
        {found && (found.next || cursors.length > 1) && (
          <div class="bar">
            <button type="button" disabled={cursors.length === 1} onClick={() => setCursors(cursors.slice(0, -1))}>Newer</button>
            <button type="button" disabled={!found.next} onClick={() => setCursors([...cursors, found.next!])}>Older</button>
          </div>
        )}
      </Card>
    </Page>
  );
}

const row = (letter: Letter, replay: () => void) => [
  letter.position,
  letter.replayed ? <span class="soft">{"step" in letter.replayed ? `in step ${count(letter.replayed.step)}` : `to offset ${count(letter.replayed.offset)}`}</span>
    : letter.code === "unreadable" ? <button type="button" onClick={replay} aria-label={`Replay letter ${letter.position}`}>Replay …</button>
    : <span class="soft">push a corrected row</span>,
  <Badge>{letter.code}</Badge>, letter.table_name ?? letter.node ?? "", letter.partition === null ? "" : letter.partition,
  letter.row_offset === null ? <span class="soft">{letter.unplaced ?? ""}</span> : count(letter.row_offset), <span class="cell-wrap">{letter.reason}</span>, <code><Cell of={letter.text} /></code>,
];

const reasons = (of: Replay) => Object.entries(of.not_replayable);
const nothing = (of: Replay): string =>
  of.matched === 0 ? "No letter fits this choice"
  : of.failed_again ? `${plural(of.failed_again, "row")} still cannot be read${of.again.length ? `: ${of.again[0]!.reason}` : ""}`
  : reasons(of).length ? reasons(of).map(([reason, number]) => `${count(number)} cannot be replayed: ${reason}`).join("; ")
  : `${plural(of.replayed_before, "letter")} replayed before: nothing is left to do`;

const Planned = ({ of }: { of: Replay }) => (
  <ul>
    {of.replayed > 0 && <li>{plural(of.replayed, "row")} can be read now and will be used as new input.</li>}
    {of.failed_again > 0 && <li>{plural(of.failed_again, "row")} still cannot be read: nothing is done, and the letters stay.</li>}
    {of.replayed_before > 0 && <li>{plural(of.replayed_before, "letter")} {of.replayed_before === 1 ? "was replayed before and adds" : "were replayed before and add"} nothing.</li>}
    {reasons(of).map(([reason, number]) => <li>{count(number)} cannot be replayed: {reason}</li>)}
  </ul>
);
