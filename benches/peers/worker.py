"""Speaks to mlarun's worker: one request, and the lines of the answer with the time at which each came."""

import json
import os
import subprocess
import time
from pathlib import Path

from subject import Subject

PROTOCOL = 1


def support(project: Path) -> str:
    """mlarun's own device code, compiled for the GPU; the newest where there are several."""
    return str(max(project.glob(".cache/support/*.cubin"), key=lambda file: file.stat().st_mtime))


def event(project: Path, subject: Subject, protocol: dict) -> dict:
    """The request that the runner makes for one sample set of event mode."""
    check = {"max_rows": 4096, "seed": 1, "reference_cache": str(project / ".cache/reference")}
    task = {"task": "event", "launchable": subject.launchable, "protocol": protocol, "check": check}
    gpu = {"uuid": subject.gpu, "support": support(project)}
    return {"protocol": PROTOCOL, "task": task, "cores": subject.cores, "gpu": gpu}


def ask(mlarun: Path, request: dict) -> tuple[list[tuple[float, dict]], float]:
    """Lines with seconds since the worker was started, and after how many it was gone."""
    environment = os.environ | {"CUDA_VISIBLE_DEVICES": request["gpu"]["uuid"]}
    started = time.perf_counter()
    worker = subprocess.Popen([mlarun, "__worker"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment)
    worker.stdin.write(json.dumps(request).encode())
    worker.stdin.close()
    lines = []
    for text in worker.stdout:
        lines.append((time.perf_counter() - started, json.loads(text)))
    worker.wait()
    ended = time.perf_counter() - started
    if not lines or lines[-1][1]["line"] != "done":
        raise SystemExit(f"the worker of mlarun failed: {lines[-1][1] if lines else worker.returncode}")
    return lines, ended


def samples(lines: list[tuple[float, dict]]) -> dict:
    """Samples by timing."""
    return {line["timing"]: line for _, line in lines if line["line"] == "samples"}


def told(lines: list[tuple[float, dict]], name: str) -> dict | None:
    """The last line of that name."""
    return next((line for _, line in reversed(lines) if line["line"] == name), None)


def phases(lines: list[tuple[float, dict]], ended: float) -> list[tuple[str, float]]:
    """What the worker did one after the other, and the seconds that each took."""
    begins = [("start of the process", 0.0)]
    for at, line in lines:
        if line["line"] == "phase":
            begins.append((line["phase"], at))
        elif line["line"] == "done":
            begins.append(("end of the process", at))
    ends = [at for _, at in begins[1:]] + [ended]
    return [(name, end - begin) for (name, begin), end in zip(begins, ends)]
