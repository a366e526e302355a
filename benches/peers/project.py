"""A project of the benches' own, so that they neither read nor write anybody's results."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
REPOSITORY = HERE.parent.parent


def prepare(project: Path, packages: tuple[str, ...]):
    """Configuration and some CUDA packages of the repository in the folder `project`; results and caches there stay.

    An experiment measures the version before each of its own too, where the project has it: here only what is named.
    """
    for folder in ("conf", "kernels/cuda/common", *(f"kernels/cuda/{package}" for package in packages)):
        shutil.copytree(REPOSITORY / folder, project / folder, dirs_exist_ok=True)


def mlarun(program: Path, project: Path, *arguments: str) -> float:
    """Runs mlarun and returns the seconds it took."""
    started = time.perf_counter()
    done = subprocess.run([program, "--root", project, *arguments], env=os.environ | {"NO_COLOR": "1"})
    if done.returncode != 0:
        raise SystemExit(f"mlarun {' '.join(arguments)} ended with exit code {done.returncode}")
    return time.perf_counter() - started


def manifests(*names: str) -> list[str]:
    return [str(HERE / "manifests" / f"{name}.toml") for name in names]


def peer(script: str, options: dict, subjects: list[Path], gpu: str) -> tuple[list[dict], float]:
    """What another tool's process says of the subjects, and the seconds it took."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "out.json"
        command = [sys.executable, HERE / script, out, json.dumps(options), *subjects]
        started = time.perf_counter()
        subprocess.run(command, env=os.environ | {"CUDA_VISIBLE_DEVICES": gpu}, check=True, stdout=sys.stderr)
        took_s = time.perf_counter() - started
        return json.loads(out.read_text()), took_s
