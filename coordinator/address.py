"""Where a running service answers: what it wrote about itself into its data folder (`coordinator.json`)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from dbsp.errors import UnavailableError

ADDRESS_FILE = "coordinator.json"


def read_address(data_dir: Path) -> dict[str, Any]:
    """What a running service wrote about itself; empty if none did."""
    try:
        found = json.loads((data_dir / ADDRESS_FILE).read_text())
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise UnavailableError(
            f"cannot read the service's address: file={data_dir / ADDRESS_FILE} error={error}"
        ) from error
    return found if isinstance(found, dict) else {}
