"""A kernel at one shape as mlarun has measured it: its pipeline, its compiled modules and the output that was verified.

Everything is read from what mlarun wrote: the newest record of event mode in out/store, and .cache/builds.
"""

import json
from dataclasses import dataclass
from pathlib import Path


@dataclass
class Subject:
    """What is handed to every tool alike."""

    name: str
    # As the worker's protocol has it: `pipeline` with buffers, stages and reference, and `modules`, a cubin each stage.
    launchable: dict
    # Protocol of event mode that the record was taken with.
    protocol: dict
    # UUID of the GPU, and the cores that mlarun used.
    gpu: str
    cores: list
    # SHA-256 of the output that mlarun verified; None where there was nothing to verify.
    output_sha256: str | None

    def write(self, path: Path):
        path.write_text(json.dumps(self.__dict__))

    @staticmethod
    def read(path: Path) -> "Subject":
        return Subject(**json.loads(path.read_text()))


def recorded(project: Path) -> list[Subject]:
    """The subjects of all records of event mode, each as its newest record has it, ordered by name."""
    files = project.glob(".cache/builds/*/*/build.json")
    builds = [json.loads(file.read_text()) | {"folder": file.parent} for file in files]
    newest = {}
    for file in project.glob("out/store/records/event/*/*.json"):
        record = json.loads(file.read_text())["record"]
        taken = newest.get(name_of(record))
        if taken is None or taken["position"]["taken_at"] < record["position"]["taken_at"]:
            newest[name_of(record)] = record
    return [of_record(name, record, builds) for name, record in sorted(newest.items())]


def name_of(record: dict) -> str:
    """Kernel, version, and the parameters of its shape."""
    labels = record["labels"]
    shape = " ".join(f"{name}={value}" for name, value in labels["shape"].items() if not isinstance(value, bool))
    return f"{labels['id']['kernel']} {labels['id']['version']} {shape}"


def of_record(name: str, record: dict, builds: list[dict]) -> Subject:
    material = record["material"]["subject"]
    modules = []
    for stage in material["launches"]:
        wanted = material["builds"][stage["name"]]
        build = next((build for build in builds if build["material"] == wanted), None)
        if build is None:
            raise SystemExit(f"{name}: .cache/builds lacks the module of stage {stage['name']}; measure it again")
        modules.append(str(build["folder"] / build["module"]))
    pipeline = {"buffers": material["buffers"], "stages": material["launches"], "reference": material["reference"]}
    return Subject(
        name=name,
        launchable={"pipeline": pipeline, "modules": modules},
        protocol=record["material"]["protocol"],
        gpu=record["environment"]["device"]["id"]["uuid"],
        cores=record["environment"]["device"]["cores"],
        output_sha256=record["body"]["verification"]["output_sha256"],
    )
