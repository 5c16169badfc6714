"""What the Python clients have in common: one JSON job as the only argument, one JSON report on stdout.

The shapes are those of job.mjs.
"""

import json
import os
import sys

JOB = json.loads(sys.argv[1])
TARGET = JOB["target"]
MODE = {"modern": "2026-07-28"}.get(JOB["era"], JOB["era"])


def environment() -> dict[str, str]:
    """The environment of a child: ours and what the job adds."""
    return {**os.environ, **TARGET.get("env", {})}


def text_of(content) -> str:
    """The text parts of a result; other parts show only their type."""
    return "\n".join(getattr(part, "text", None) or f"<{part.type}>" for part in content)


def report(peer: str, protocol: str | None, tools: list[str], calls: list[dict], lists: list[int] = ()) -> None:
    """Prints the one line that the test reads."""
    print(json.dumps({"peer": peer, "protocol": protocol, "tools": tools, "calls": calls, "lists": list(lists)}))
