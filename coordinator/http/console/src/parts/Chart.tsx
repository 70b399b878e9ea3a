// A chart of figures over time: one or two lines, an axis, and the values under the pointer or at the arrow keys.

import { useEffect, useId, useMemo, useRef, useState } from "preact/hooks";
import { clock } from "../format";
import type { Numbers } from "../types";

export interface Line { name: string; points: Numbers; kind?: "area" | "line" | "soft" }

const HEIGHT = 132;
const PAD = { left: 56, right: 8, top: 8, bottom: 20 };

const SPAN_MIN_S = 300;
const SPAN_MAX_S = 3600;

// The end of the axis: a round number that is at least the highest value; of sizes a round number of KiB, MiB and so on.
const nice = (most: number, sizes: boolean): number => {
  if (most <= 0) return 1;
  const unit = sizes ? 1024 ** Math.max(0, Math.floor(Math.log(most) / Math.log(1024))) : 1;
  const power = unit * 10 ** Math.floor(Math.log10(most / unit));
  return [1, 2, 4, 5, 10].map((step) => step * power).find((top) => top >= most) ?? most;
};

export function Chart(props: { title: string; at: number[]; lines: Line[]; show: (value: number) => string; now?: string; sizes?: boolean }) {
  const box = useRef<HTMLDivElement>(null);
  const [width, setWidth] = useState(480);
  const [pointed, setPointed] = useState<number | null>(null);
  const id = useId();
  useEffect(() => {
    const watch = new ResizeObserver(([entry]) => { if (entry) setWidth(Math.max(200, Math.round(entry.contentRect.width))); });
    if (box.current) watch.observe(box.current);
    return () => watch.disconnect();
  }, []);

  const { at, lines, show } = props;
  const end = at.at(-1) ?? 0;
  const span = Math.min(SPAN_MAX_S, Math.max(SPAN_MIN_S, Math.ceil((end - (at[0] ?? end)) / SPAN_MIN_S) * SPAN_MIN_S));
  const begin = end - span;
  const top = nice(Math.max(0, ...lines.flatMap((line) => line.points.map((point) => point ?? 0))), props.sizes ?? false);
  const x = (unix: number) => PAD.left + ((unix - begin) / span) * (width - PAD.left - PAD.right);
  const y = (value: number) => PAD.top + (1 - value / top) * (HEIGHT - PAD.top - PAD.bottom);
  const paths = useMemo(() => lines.map((line) => pathOf(line, at, x, y)), [at, lines, width, top, span]);

  const nearest = (left: number): number | null => {
    if (!at.length) return null;
    const unix = begin + ((left - PAD.left) / (width - PAD.left - PAD.right)) * span;
    let best = 0;
    at.forEach((each, index) => { if (Math.abs(each - unix) < Math.abs((at[best] ?? 0) - unix)) best = index; });
    return best;
  };
  const onKey = (event: KeyboardEvent) => {
    const step = { ArrowLeft: -1, ArrowRight: 1, PageUp: -12, PageDown: 12, Home: -at.length, End: at.length }[event.key];
    if (step === undefined) return;
    event.preventDefault();
    setPointed(Math.max(0, Math.min(at.length - 1, (pointed ?? at.length - 1) + step)));
  };
  const shown = pointed !== null && pointed < at.length ? pointed : null;
  const known = lines[0]?.points.filter((point): point is number => point !== null) ?? [];
  const summary = known.length ? `Latest ${show(known.at(-1) ?? 0)}, highest ${show(Math.max(...known))} in the last hour` : "Nothing yet";

  return (
    <figure class="chart">
      <figcaption id={id}>
        <span>{props.title}</span>
        <span class="legend">
          {lines.map((line, index) => (
            <span class={`key line-${index}`}>
              {lines.length > 1 && <i aria-hidden="true" />}
              {lines.length > 1 ? `${line.name} ` : ""}
              <b>{shown !== null ? valueAt(line, shown, show) : index === 0 && props.now ? props.now : valueAt(line, at.length - 1, show)}</b>
            </span>
          ))}
        </span>
      </figcaption>
      <div ref={box} class="plot" tabIndex={0} role="img" aria-label={`${props.title}. ${summary}.`} onKeyDown={onKey}
        onPointerMove={(event) => setPointed(nearest(event.offsetX))} onPointerLeave={() => setPointed(null)} onBlur={() => setPointed(null)}>
        <svg width={width} height={HEIGHT} aria-hidden="true">
          {known.length > 0 && [0, 0.5, 1].map((share) => (
            <g class="axis">
              <line x1={PAD.left} x2={width - PAD.right} y1={y(share * top)} y2={y(share * top)} />
              <text x={PAD.left - 6} y={y(share * top) + 4} text-anchor="end">{show(share * top)}</text>
            </g>
          ))}
          {at.length > 0 && [0, 0.2, 0.4, 0.6, 0.8].map((share) => (
            <text class="axis-time" x={x(end - share * span)} y={HEIGHT - 5} text-anchor={share === 0 ? "end" : "middle"}>
              {share === 0 ? "now" : `−${Number(((share * span) / 60).toFixed(1))} min`}
            </text>
          ))}
          {paths.map((path, index) => (
            <g class={`line-${index}`}>
              {lines[index]?.kind === "area" && <path class="under-line" d={path.area} />}
              <path class={`stroke ${lines[index]?.kind ?? "line"}`} d={path.stroke} />
            </g>
          ))}
          {known.length === 0 && <text class="axis-time" x={width / 2} y={HEIGHT / 2} text-anchor="middle">Nothing yet</text>}
          {shown !== null && <line class="pointer" x1={x(at[shown] ?? 0)} x2={x(at[shown] ?? 0)} y1={PAD.top} y2={HEIGHT - PAD.bottom} />}
        </svg>
        {shown !== null && <span class="moment" style={{ left: `${Math.min(x(at[shown] ?? 0) + 6, width - 70)}px` }}>{clock(at[shown] ?? 0)}</span>}
      </div>
    </figure>
  );
}

const valueAt = (line: Line, index: number, show: (value: number) => string): string => {
  const found = line.points[index];
  return found === null || found === undefined ? "–" : show(found);
};

// A gap in the points is a gap in the line; a point between two gaps is a short stroke.
function pathOf(line: Line, at: number[], x: (unix: number) => number, y: (value: number) => number): { stroke: string; area: string } {
  let stroke = "";
  let area = "";
  let run: [number, number][] = [];
  const close = () => {
    const [first] = run;
    const last = run.at(-1);
    if (first && last) {
      const text = run.map(([left, top]) => `${left.toFixed(1)} ${top.toFixed(1)}`).join("L");
      stroke += `M${text}${run.length === 1 ? "h2" : ""}`;
      area += `M${first[0].toFixed(1)} ${y(0)}L${text}L${last[0].toFixed(1)} ${y(0)}Z`;
    }
    run = [];
  };
  line.points.forEach((point, index) => {
    if (point === null) close();
    else run.push([x(at[index] ?? 0), y(point)]);
  });
  close();
  return { stroke, area };
}
