"""Checks before a start and while steps run; none of them changes what a pipeline has stored.

| module | contents |
| --- | --- |
| `checking` | `dbsp-coordinator --check`: all checks before a start |
| `preflight`, `remains` | stored state that this version cannot continue; what a lost pipeline has left |
| `outside` | brokers and registries that do not respond |
| `trial`, `determinism` | the circuit run over few rows; user functions run twice |
| `trials`, `trial_child` | a step that killed its process, tried in a process of its own |
| `doctor` | read every file of a pipeline, and report what is broken |
"""
