// What is drawn of a dataflow: its operators, or groups of those that one line of the user's program made; and where.

import dagre from "@dagrejs/dagre";
import type { Dataflow, FlowNode } from "../types";

export interface Box {
  id: string; kind: "table" | "operator" | "exchange" | "group" | "view"; label: string; nodes: FlowNode[];
  x: number; y: number; width: number; height: number;
}
export interface Line { from: string; to: string; exchange: boolean; points: { x: number; y: number }[] }
export interface Drawing { boxes: Box[]; lines: Line[]; width: number; height: number }

const SIZES = { table: [196, 58], operator: [196, 58], group: [216, 58], exchange: [150, 34], view: [196, 44] } as const;

export const groupOf = (node: FlowNode): string =>
  node.source ? `${node.source.file}:${node.source.line}` : node.id;

export const viewId = (name: string): string => `view ${name}`;

// The nodes that lead to a view, or that a table leads to; all of them without a focus.
export function within(flow: Dataflow, focus: string): Set<string> {
  const [kind, name] = [focus.split(" ")[0], focus.slice(focus.indexOf(" ") + 1)];
  const view = kind === "view" ? flow.views.find((each) => each.name === name) : undefined;
  const table = kind === "table" ? flow.tables.find((each) => each.name === name) : undefined;
  if (!view && !table) return new Set(flow.nodes.map((node) => node.id));
  const next = new Map<string, string[]>();
  for (const edge of flow.edges) {
    const [at, to] = view ? [edge.to, edge.from] : [edge.from, edge.to];
    next.set(at, [...(next.get(at) ?? []), to]);
  }
  const found = new Set<string>(view ? [view.node] : table!.nodes);
  for (const at of found) for (const to of next.get(at) ?? []) found.add(to);
  return found;
}

// Which groups are collapsed is the user's choice; a group of one node is that node.
export function draw(flow: Dataflow, collapsed: Set<string>, focus: string): Drawing {
  const inside = within(flow, focus);
  const nodes = flow.nodes.filter((node) => inside.has(node.id));
  const boxOf = new Map<string, string>();
  const boxes = new Map<string, Box>();
  const members = new Map<string, FlowNode[]>();
  for (const node of nodes) members.set(groupOf(node), [...(members.get(groupOf(node)) ?? []), node]);
  for (const [group, found] of members) {
    if (found.length > 1 && collapsed.has(group)) {
      boxes.set(group, sized(group, "group", labelOfGroup(found), found));
      for (const node of found) boxOf.set(node.id, group);
    } else {
      for (const node of found) {
        boxes.set(node.id, sized(node.id, kindOf(node), node.operator, [node]));
        boxOf.set(node.id, node.id);
      }
    }
  }
  const by = new Map(flow.edges.filter((edge) => edge.by).map((edge) => [edge.to, edge.by!]));
  for (const box of boxes.values()) {
    const keys = box.kind === "exchange" ? by.get(box.id) : undefined;
    if (box.kind === "exchange") box.label = keys ? (keys.length ? `by ${keys.join(", ")}` : "to one worker") : "within the worker";
  }
  const lines = new Map<string, Line>();
  const connect = (from: string | undefined, to: string | undefined, exchange: boolean) => {
    if (from === undefined || to === undefined || from === to) return;
    const key = `${from}\n${to}`;
    lines.set(key, { from, to, exchange: exchange || (lines.get(key)?.exchange ?? false), points: [] });
  };
  for (const edge of flow.edges) connect(boxOf.get(edge.from), boxOf.get(edge.to), edge.by !== null);
  for (const view of flow.views) {
    const from = boxOf.get(view.node);
    if (from === undefined || (focus.startsWith("view ") && focus !== viewId(view.name))) continue;
    const box = sized(viewId(view.name), "view", view.name, flow.nodes.filter((node) => node.id === view.node));
    boxes.set(box.id, box);
    connect(from, box.id, false);
  }
  return placed([...boxes.values()], [...lines.values()]);
}

const kindOf = (node: FlowNode): Box["kind"] => (node.kind === "source" ? "table" : node.kind === "receive" ? "exchange" : "operator");

function labelOfGroup(found: FlowNode[]): string {
  const table = found.find((node) => node.kind === "source");
  const source = found[0]?.source;
  if (table) return table.operator.replace(/^source/, "table");
  const text = source?.text ?? `${source?.file}:${source?.line}`;
  return text.replace(/^create\s+(or\s+replace\s+)?(materialized\s+)?view\s+(\S+)(\s+as)?.*$/i, "view $3");
}

function sized(id: string, kind: Box["kind"], label: string, nodes: FlowNode[]): Box {
  const [width, height] = SIZES[kind];
  return { id, kind, label: kind === "table" ? label.replace(/^source/, "table") : label, nodes, x: 0, y: 0, width, height };
}

function placed(boxes: Box[], lines: Line[]): Drawing {
  const graph = new dagre.graphlib.Graph();
  graph.setGraph({ rankdir: "LR", nodesep: 18, ranksep: 56, edgesep: 10, marginx: 16, marginy: 16 });
  graph.setDefaultEdgeLabel(() => ({}));
  for (const box of boxes) graph.setNode(box.id, { width: box.width, height: box.height });
  for (const line of lines) graph.setEdge(line.from, line.to, {});
  dagre.layout(graph);
  for (const box of boxes) {
    const at = graph.node(box.id) as unknown as { x: number; y: number };
    [box.x, box.y] = [at.x - box.width / 2, at.y - box.height / 2];
  }
  for (const line of lines) line.points = (graph.edge(line.from, line.to) as unknown as { points: Line["points"] }).points;
  const size = graph.graph() as { width?: number; height?: number };
  return { boxes, lines, width: Math.ceil(size.width ?? 0), height: Math.ceil(size.height ?? 0) };
}
