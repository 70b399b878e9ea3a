// The drawing of a dataflow: boxes that can be chosen by pointer and keyboard, in a frame that scrolls and zooms.

import { useEffect, useRef } from "preact/hooks";
import { bytes, percent, rate } from "../format";
import type { Box, Drawing, Line } from "./shape";

export interface Figures { out: number; share: number; bytes: number; skew: number | null; skewed: boolean }

const shortened = (text: string, most: number): string => (text.length > most ? `${text.slice(0, most - 1)}…` : text);

function curve(points: Line["points"]): string {
  const [first, ...rest] = points;
  if (!first) return "";
  let path = `M${first.x} ${first.y}`;
  for (let at = 0; at < rest.length - 1; at += 1) {
    const here = rest[at]!;
    const next = rest[at + 1]!;
    path += `Q${here.x} ${here.y} ${(here.x + next.x) / 2} ${(here.y + next.y) / 2}`;
  }
  const last = rest.at(-1);
  return last ? `${path}L${last.x} ${last.y}` : path;
}

export function Graph(props: {
  drawing: Drawing; figures: Map<string, Figures>; chosen: string; zoom: number; onZoom: (zoom: number) => void;
  onChoose: (id: string) => void; onOpen: (box: Box) => void;
}) {
  const frame = useRef<HTMLDivElement>(null);
  const drag = useRef<{ x: number; y: number; left: number; top: number } | null>(null);
  const { drawing, zoom } = props;
  useEffect(() => {
    const box = drawing.boxes.find((each) => each.id === props.chosen);
    if (box && frame.current) {
      const { clientWidth, clientHeight, scrollLeft, scrollTop } = frame.current;
      const [x, y] = [box.x * zoom, box.y * zoom];
      if (x < scrollLeft || x + box.width * zoom > scrollLeft + clientWidth || y < scrollTop || y + box.height * zoom > scrollTop + clientHeight) {
        frame.current.scrollTo({ left: x - clientWidth / 2, top: y - clientHeight / 2 });
      }
    }
  }, [props.chosen, drawing]);
  const onWheel = (event: WheelEvent) => {
    if (!event.ctrlKey && !event.metaKey) return;
    event.preventDefault();
    props.onZoom(zoom * (event.deltaY < 0 ? 1.15 : 1 / 1.15));
  };
  return (
    <div class="graph" ref={frame} role="region" aria-label="The dataflow" tabIndex={0} onWheel={onWheel}
      onPointerDown={(event) => {
        if (frame.current && !(event.target as Element).closest(".box")) drag.current = { x: event.clientX, y: event.clientY, left: frame.current.scrollLeft, top: frame.current.scrollTop };
      }}
      onPointerMove={(event) => {
        if (drag.current && frame.current && event.buttons === 1 && event.pointerType === "mouse") {
          frame.current.scrollTo({ left: drag.current.left - event.clientX + drag.current.x, top: drag.current.top - event.clientY + drag.current.y });
        }
      }}
      onPointerUp={() => { drag.current = null; }}>
      <svg width={drawing.width * zoom} height={drawing.height * zoom} viewBox={`0 0 ${drawing.width} ${drawing.height}`}>
        <defs>
          <marker id="arrow" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" markerUnits="userSpaceOnUse" orient="auto"><path d="M0 0L8 4L0 8z" /></marker>
        </defs>
        {drawing.lines.map((line) => {
          const out = props.figures.get(line.from)?.out ?? 0;
          const near = props.chosen === line.from || props.chosen === line.to;
          return <path class={`wire ${line.exchange ? "exchange" : ""} ${near ? "near" : ""}`} d={curve(line.points)} style={{ strokeWidth: `${1.2 + Math.min(3, Math.log10(1 + out))}px` }} marker-end="url(#arrow)" />;
        })}
        {drawing.boxes.map((box) => (
          <BoxOf box={box} figures={props.figures.get(box.id)} chosen={props.chosen === box.id} onChoose={() => props.onChoose(box.id)} onOpen={() => props.onOpen(box)} />
        ))}
      </svg>
    </div>
  );
}

function BoxOf({ box, figures, chosen, onChoose, onOpen }: { box: Box; figures: Figures | undefined; chosen: boolean; onChoose: () => void; onOpen: () => void }) {
  const wide = box.kind === "exchange" ? 18 : box.kind === "group" ? 29 : 26;
  const out = figures ? `${rate(figures.out)}/s` : "";
  const facts = [
    box.kind === "group" ? `${box.nodes.length} operators` : "", out,
    figures && figures.share >= 0.005 ? `${percent(figures.share)} of time` : "",
    figures && figures.bytes > 0 && box.kind !== "group" ? bytes(figures.bytes) : "",
  ].filter(Boolean);
  const said = `${box.kind === "exchange" ? "exchange " : box.kind === "view" ? "view " : box.kind === "group" ? "group " : ""}${box.label}, ${facts.join(", ")}${figures?.skewed ? `, uneven: the busiest worker has ${percent(figures.skew ?? 0)} of the rows` : ""}`;
  return (
    <g class={`box ${box.kind} ${chosen ? "chosen" : ""}`} role="button" tabindex={0} aria-pressed={chosen} transform={`translate(${box.x} ${box.y})`}
      onClick={onChoose} onDblClick={onOpen}
      onKeyDown={(event) => { if (event.key === "Enter" || event.key === " ") { event.preventDefault(); onChoose(); } }}>
      <title>{said}</title>
      {box.kind === "group" && <rect class="under" x={5} y={5} width={box.width} height={box.height} rx={6} />}
      <rect class="body" width={box.width} height={box.height} rx={box.kind === "exchange" || box.kind === "view" ? box.height / 2 : 6} />
      {box.kind === "exchange" ? (
        <text x={box.width / 2} y={21} text-anchor="middle" class="small">⇄ {shortened(box.label, wide)}</text>
      ) : (
        <>
          <text x={12} y={box.kind === "view" ? 19 : 22} class="name">{shortened(box.label, wide)}</text>
          <text x={12} y={box.kind === "view" ? 34 : 39} class="small">{shortened(facts.join(" · "), 34)}</text>
          {figures?.skewed && <text x={box.width - 4} y={-4} text-anchor="end" class="skew">▲ uneven</text>}
          {box.kind !== "view" && <rect class="time-back" x={12} y={box.height - 9} width={box.width - 24} height={3} rx={1.5} />}
          {box.kind !== "view" && figures && figures.share > 0 && <rect class="time" x={12} y={box.height - 9} width={Math.max(2, (box.width - 24) * figures.share)} height={3} rx={1.5} />}
        </>
      )}
    </g>
  );
}
