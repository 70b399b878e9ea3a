"""Make the Grafana dashboard of a pipeline: `python -m tools.deploy.grafana.dashboard` writes `dashboard.json` beside this file.

A test compares the file with what this makes, and the names of metrics with those that a running service exposes.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

FILE = Path(__file__).with_name("dashboard.json")
CHOSEN = 'instance=~"$instance"'
WIDTH, HEIGHT = 24, 8
SOURCE = {"type": "prometheus", "uid": "${source}"}


def _rate(metric: str, *labels: str, more: str = "") -> str:
    """Return the sum of a counter's rate, by labels."""
    by = f" by ({', '.join(labels)})" if labels else ""
    return f"sum{by}(rate({metric}{{{CHOSEN}{more}}}[$__rate_interval]))"


def _quantile(part: float, metric: str, *labels: str, more: str = "") -> str:
    return f"histogram_quantile({part}, {_rate(f'{metric}_bucket', 'le', *labels, more=more)})"


def _of(metric: str) -> str:
    return f"{metric}{{{CHOSEN}}}"


Query = tuple[str, str]
"""An expression, and the legend of its lines."""
PANELS: tuple[tuple[str, str, str, Sequence[Query]], ...] = (
    ("Steps are taken", "stat", "bool_yes_no", [(_of("dbsp_ready"), "{{instance}}")]),
    ("Alarms", "stat", "short", [(f"sum({_of('dbsp_alarm')}) by (kind) > 0", "{{kind}}")]),
    ("Workers", "stat", "short", [(_of("dbsp_workers"), "{{instance}}")]),
    ("Rows that wait", "stat", "short", [(f"sum({_of('dbsp_input_lag_rows')})", "rows")]),
    ("Input rows a second, by table", "timeseries", "rowsps", [(_rate("dbsp_table_rows_total", "table"), "{{table}}")]),
    ("Changed rows a second, by view", "timeseries", "rowsps", [(_rate("dbsp_view_rows_total", "view"), "{{view}}")]),
    ("Input bytes a second, by table", "timeseries", "Bps", [(_rate("dbsp_table_bytes_total", "table"), "{{table}}")]),
    ("Bytes of changes a second, by view", "timeseries", "Bps", [(_rate("dbsp_view_bytes_total", "view"), "{{view}}")]),
    ("From the arrival of rows to the outputs", "timeseries", "s", [
        (_quantile(0.5, "dbsp_arrival_to_output_seconds", "table"), "half, {{table}}"),
        (_quantile(0.99, "dbsp_arrival_to_output_seconds", "table"), "99 %, {{table}}"),
    ]),
    ("Time of a step", "timeseries", "s", [
        (_quantile(0.5, "dbsp_step_seconds", more=', kind="live"'), "half"),
        (_quantile(0.99, "dbsp_step_seconds", more=', kind="live"'), "99 %"),
        (_of("dbsp_step_running_seconds"), "under way, {{instance}}"),
    ]),
    ("Rows that wait, by table", "timeseries", "short", [(_of("dbsp_input_waiting_rows"), "{{table}}")]),
    ("State, by worker", "timeseries", "bytes", [(_of("dbsp_worker_state_bytes"), "worker {{worker}}")]),
    ("Share of time in steps, by worker", "timeseries", "percentunit", [
        (_rate("dbsp_worker_busy_seconds_total", "worker"), "worker {{worker}}"),
    ]),
    ("Time in nodes of the plan, the ten busiest", "timeseries", "percentunit", [
        (f"topk(10, {_rate('dbsp_node_seconds_total', 'node')})", "node {{node}}"),
    ]),
    ("Checkpoints", "timeseries", "s", [
        (_quantile(0.99, "dbsp_checkpoint_seconds"), "99 % of commits"),
        (_quantile(0.99, "dbsp_checkpoint_pause_seconds"), "99 % of pauses"),
    ]),
    ("Bytes written by checkpoints", "timeseries", "Bps", [(_rate("dbsp_checkpoint_bytes_total"), "bytes")]),
    ("Dead letters a second", "timeseries", "rowsps", [
        (_rate("dbsp_dead_rows_total", "origin", "reason"), "{{origin}}: {{reason}}"),
    ]),
    ("Errors and rollbacks a second", "timeseries", "short", [
        (_rate("dbsp_errors_total", "code"), "{{code}}"), (_rate("dbsp_rollbacks_total"), "rollbacks"),
    ]),
    ("Warm-up: bytes to go", "timeseries", "bytes", [(_of("dbsp_rescale_lag_bytes"), "{{instance}}")]),
    ("Copied topics: messages behind", "timeseries", "short", [(_of("dbsp_copy_behind_messages"), "{{table}}")]),
    ("Delta tables: steps behind", "timeseries", "short", [(_of("dbsp_delta_behind_steps"), "{{view}}")]),
    ("How far waterlines are behind the clock", "timeseries", "s", [
        (f"time() - {_of('dbsp_waterline_unix_seconds')}", "{{watermark}}"),
    ]),
)  # fmt: skip


def _panel(number: int, x: int, y: int, width: int) -> dict[str, Any]:
    title, kind, unit, queries = PANELS[number]
    return {
        "id": number + 1, "title": title, "type": kind, "datasource": SOURCE,
        "gridPos": {"x": x, "y": y, "w": width, "h": HEIGHT if kind != "stat" else HEIGHT // 2},
        "fieldConfig": {"defaults": {"unit": unit, "min": 0}, "overrides": []},
        "targets": [
            {"refId": chr(ord("A") + at), "datasource": SOURCE, "expr": expression, "legendFormat": legend}
            for at, (expression, legend) in enumerate(queries)
        ],
    }  # fmt: skip


def dashboard() -> dict[str, Any]:
    """Return the dashboard as JSON values: a row of figures, then two graphs a row."""
    stats = [at for at, panel in enumerate(PANELS) if panel[1] == "stat"]
    graphs = [at for at, panel in enumerate(PANELS) if panel[1] != "stat"]
    small = WIDTH // len(stats)
    panels = [_panel(at, place * small, 0, small) for place, at in enumerate(stats)]
    panels += [
        _panel(at, place % 2 * WIDTH // 2, HEIGHT // 2 + place // 2 * HEIGHT, WIDTH // 2)
        for place, at in enumerate(graphs)
    ]
    return {
        "title": "dbsp pipeline", "uid": "dbsp-pipeline", "tags": ["dbsp"], "schemaVersion": 39, "version": 1, "editable": True,
        "time": {"from": "now-1h", "to": "now"}, "refresh": "10s", "timezone": "", "panels": panels,
        "templating": {"list": [
            {"name": "source", "type": "datasource", "query": "prometheus", "label": "Prometheus"},
            {
                "name": "instance", "type": "query", "label": "Service", "datasource": SOURCE, "multi": True, "includeAll": True,
                "query": "label_values(dbsp_step, instance)", "refresh": 2, "current": {"text": "All", "value": "$__all"},
            },
        ]},
    }  # fmt: skip


def text() -> str:
    """Return the file's text."""
    return json.dumps(dashboard(), indent=1) + "\n"


if __name__ == "__main__":
    FILE.write_text(text())
