// The answers of the service, as far as the console reads them; /openapi.json describes the routes.

export interface LocatedRow { table: string; partition: number; offset: number; reason: string; payload: string }
export interface Halt {
  step: number; node: number; name: string; command: string; count: number; rows: LocatedRow[]; message: string; death: string;
}
export interface Alarm { kind: string; about: string; since: string; text: string }
export interface Doing {
  command: string; step: number | null; since: string; seconds: number; workers_awaited: number[]; hosts_away: string[];
}
export interface InputHealth { table: string; waiting_rows: number | null; away: string | null; place: string | null; since: string | null }
export interface TopicCopy { table: string; topic: string; behind_messages: number; error: string | null }
export interface CopiesLag { version: number | null; published: number; lag_versions: number; lag_bytes: number; age_s: number; error: string | null }
export interface DeltaTable { view: string; uri: string; keys: string[]; step: number; behind_steps: number; error: string | null }
export interface Waterline { label?: string; [name: string]: unknown }
export interface Rescaling {
  workers: number; workers_before: number; seconds: number; expected_s: number | null;
  strategy?: string; moved_keys?: number; moved_bytes?: number; left_keys?: number;
  round?: number; copied_bytes?: number; lag_bytes?: number; slices_bytes?: number;
}
export interface BackupUnderWay { phase: string; folder: string; bytes: number; bytes_max: number; seconds: number }
export interface Status {
  name: string; run: string; state: string; epoch: number; step: number; version: number; checkpoint_step: number;
  replaying: boolean; rows_in: number; rows_out: number; dead_letters: number; state_bytes: number | null;
  checkpoints: number; rollbacks: number; checkpoint_seconds: number; last_step_seconds: number | null;
  processed: { table: string; partition: number; offset: number }[];
  last_error: string | null; past_error: { message: string; over: string } | null; halt: Halt | null;
  workers: number; layout_version: number; lag_rows: number | null; tables: string[]; views: string[]; engine: string;
  fingerprint: string; rescale: Rescaling | null;
  rescale_waiting: { workers: number; strategy: string; waits_for: string } | null;
  backup: BackupUnderWay | null; last_backup: Record<string, unknown> | null;
  delta: DeltaTable[]; copies: TopicCopy[]; checkpoint_copies: CopiesLag | null; postgres: Record<string, unknown> | null;
  alarms: Alarm[]; inputs: InputHealth[]; doing: Doing | null; clock_ahead_seconds: number;
  waterlines: Record<string, unknown>[]; not_deterministic: unknown[];
}

export type Numbers = (number | null)[];
export interface Points {
  number: number[]; unix_s: number[]; steps: number[]; rows_in: number[]; rows_out: number[]; dead_letters: number[];
  errors: number[]; lag_rows: Numbers; state_bytes: Numbers; state: (string | null)[];
  step_seconds: Numbers; step_seconds_max: Numbers; latency_seconds: Numbers; latency_seconds_max: Numbers;
}
export interface Noted { at: string; event: string; [name: string]: unknown }
export interface Checkpoint extends Noted {
  version: number; step: number; seconds: number; pause_seconds: number; bytes_written: number; state_bytes: number;
}
export interface History {
  point_seconds: number; points_max: number; next: number; points: Points; checkpoints: Checkpoint[]; events: Noted[];
}

export interface Column { name: string; type: string }
export interface NodeWorker { worker: number; rows_in: number; rows_out: number; seconds: number; state_rows: number; state_bytes: number }
export interface FlowNode {
  id: string; operator: string; kind: string; segment: number; loop: number | null; columns: Column[];
  traces: { id: number; key: string[]; owner: number | null }[]; append_only: boolean;
  source: { file: string; line: number; text: string | null } | null; workers: NodeWorker[];
}
export interface FlowEdge { from: string; to: string; by: string[] | null }
export interface FlowTable { name: string; columns: Column[]; primary_key: string[]; nodes: string[] }
export interface FlowView { name: string; node: string; columns: Column[]; materialized: boolean }
export interface Dataflow {
  name: string; steps: number; segments: number; nodes: FlowNode[]; edges: FlowEdge[];
  loops: { id: number; views: string[]; iterations_max: number }[];
  tables: FlowTable[]; views: FlowView[]; connectors: { input: string; output: string };
}

export type Row = Record<string, unknown>;
export interface ViewPage { view: string; step: number; rows: Row[]; weights: number[]; next: string | null }
export interface QueryResult { step: number; columns: string[]; rows: unknown[][] }
export interface Letter {
  position: string; step: number; code: string; table_name: string | null; partition: number | null; row_offset: number | null;
  unplaced: string | null; node: string | null; reason: string; text: string; header: string | null; count: number; is_delete?: boolean;
  replayed: { partition: number; offset: number } | { step: number } | null;
}
export interface LetterPage { step: number; total: number; hidden: number; next: string | null; kept_from: number; left_out: number; letters: Letter[] }
export interface Replay {
  matched: number; replayed: number; failed_again: number; replayed_before: number; not_replayable: Record<string, number>;
  again: { position: string; reason: string }[];
}
export interface LayoutRow {
  worker: number; host: string; shards: number; first_step: number; ranges: [string, string][];
  partitions: Record<string, number[]>; state_bytes: number | null;
}
export interface Layout { version: number; shards: number; offered: [string, number][]; rows: LayoutRow[]; moving: { strategy: string; workers: number[] } | null }
export interface RescalePlan {
  workers: number; workers_before: number; shards: number; shards_moved: number; least: number; share: number;
  bytes_moved: number | null; bytes_total: number | null; pause_seconds: number | null; pause_from?: string; done: boolean;
  layout_version?: number;
  joining: Placed[]; leaving: Placed[]; hosts_leaving: string[]; partitions_moved: MovedPartition[];
}
export interface MovedPartition { table: string; partition: number; worker_before: number; worker: number }
export interface Placed { worker: number; host: string }
export interface Setting { section: string; key: string; value: unknown; default: unknown; set: boolean; origin: string }
