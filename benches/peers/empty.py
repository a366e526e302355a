"""An empty kernel as a subject: one thread that does nothing, from mlarun's own code for the GPU."""

from pathlib import Path

import worker
from subject import Subject

# Its launches take less time than what lies between them: a warm-up as long as for others would take seconds.
WARMUP_NS = 20_000_000


def empty(project: Path, beside: Subject) -> Subject:
    """Measured on the GPU of `beside`, with its protocol."""
    launch = {"grid": [1, 1, 1], "block": [1, 1, 1], "shared_bytes": 0, "stream": 0, "after": []}
    stage = {"name": "empty", "entry": "mlarun_empty", "args": []} | launch
    pipeline = {"buffers": [], "stages": [stage], "reference": None}
    warmup = beside.protocol["warmup"] | {"min_ns": WARMUP_NS, "max_ns": WARMUP_NS}
    return Subject(
        name="empty",
        launchable={"pipeline": pipeline, "modules": [worker.support(project)]},
        protocol=beside.protocol | {"warmup": warmup},
        gpu=beside.gpu,
        cores=beside.cores,
        output_sha256=None,
    )
