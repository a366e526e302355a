"""What does a sweep cost beside its warm-up and its samples? Beside it the same with NVBench and do_bench of Triton.

    python3 overhead.py --mlarun ../../target/release/mlarun --json overhead.json

Compiles and tunings are cached; verification and everything else is done. Ends with exit code 1 where the goal is
missed.
"""

import argparse
import datetime
import json
import shutil
import statistics
import tempfile
from pathlib import Path

import project as projects
import worker
from empty import empty
from subject import name_of, recorded

GOAL = 1.25
PACKAGES = ("mla/flash_mla", "mla/flash_mla_v1", "mla/flash_mla_v2")


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mlarun", type=Path, default=projects.REPOSITORY / "target/release/mlarun")
    parser.add_argument("--project", type=Path, default=projects.REPOSITORY / "target/peers/overhead")
    parser.add_argument("--rounds", type=int, default=8, help="rounds of the sweep")
    parser.add_argument("--samples", type=int, default=1000, help="samples of each timing of a set")
    parser.add_argument("--skip-peers", action="store_true", help="measure mlarun alone")
    parser.add_argument("--json", type=Path, help="where everything measured is written")
    return parser.parse_args()


def sweep(args, rounds: int, samples: int) -> float:
    keys = {"experiment.rounds": rounds, "protocol.event.min_samples": samples, "protocol.event.max_samples": samples}
    sets = [part for key, value in keys.items() for part in ("--set", f"{key}={value}")]
    return projects.mlarun(args.mlarun, args.project, *projects.manifests("overhead"), *sets)


def records(project: Path, kind: str) -> list[dict]:
    found = [json.loads(file.read_text())["record"] for file in project.glob(f"out/store/records/{kind}/*/*.json")]
    return sorted(found, key=lambda record: record["position"]["taken_at"])


def taken_at(record: dict) -> float:
    return datetime.datetime.fromisoformat(record["position"]["taken_at"][:26] + "+00:00").timestamp()


def warmup_s(record: dict) -> float:
    return record["body"]["warmup_ns"] / 1e9


def sampled_s(record: dict) -> float:
    """Time that the sampled launches themselves took."""
    return sum(sum(samples["ns"]) * samples["launches_per_sample"] for samples in record["body"]["samples"]) / 1e9


def asked_again(args, subjects) -> dict[str, float]:
    """Seconds that a sample set spends in each part of its process: means over the subjects, asked once each."""
    parts = {}
    for subject in subjects:
        lines, ended = worker.ask(args.mlarun, worker.event(args.project, subject, subject.protocol))
        warmup = worker.told(lines, "warmed_up")["ns"] / 1e9
        samples = sum(sum(line["ns"]) * line["launches_per_sample"] for line in worker.samples(lines).values()) / 1e9
        seen = {}
        for name, seconds in worker.phases(lines, ended):
            seen[name] = seen.get(name, 0.0) + seconds
        seen["warm-up: launches"], seen["warm-up: between them"] = warmup, seen.pop("warmup") - warmup
        seen["sampling: launches"], seen["sampling: flushes and between"] = samples, seen.pop("sampling") - samples
        for name, seconds in seen.items():
            parts[name] = parts.get(name, 0.0) + seconds / len(subjects)
    return parts


def mlarun_alone(args) -> dict:
    """Primes compiles and tunings, then takes the sweep anew."""
    sweep(args, 1, 3)
    for forgotten in ("out", ".cache/reference"):
        shutil.rmtree(args.project / forgotten)
    began = datetime.datetime.now().timestamp()
    wall_s = sweep(args, args.rounds, args.samples)
    verified, sets = records(args.project, "verification"), records(args.project, "event")
    subjects = recorded(args.project)
    nothing = empty(args.project, subjects[0])
    context = dict(worker.phases(*worker.ask(args.mlarun, worker.event(args.project, nothing, nothing.protocol))))
    return {
        "wall_s": wall_s,
        "sets": len(sets),
        "warmup_s": sum(map(warmup_s, sets)),
        "sampled_s": sum(map(sampled_s, sets)),
        "until_verified_s": taken_at(verified[-1]) - began,
        "sets_s": taken_at(sets[-1]) - taken_at(verified[-1]),
        "report_s": began + wall_s - taken_at(sets[-1]),
        "parts_of_a_set_s": asked_again(args, subjects),
        "context_s": context["load"],
        "medians_us": {name: median_us(name, sets) for name in sorted({name_of(record) for record in sets})},
    }


def median_us(name: str, sets: list[dict]) -> float:
    """Median over the processes of their medians, cold and isolated."""
    medians = [statistics.median(record["body"]["samples"][0]["ns"]) for record in sets if name_of(record) == name]
    return statistics.median(medians) / 1e3


def peers(args, of_set_s: float, warmup_s: float):
    """The same subjects in one process of each tool, as it comes and with the times of mlarun: name and what it says."""
    with tempfile.TemporaryDirectory() as folder:
        paths = []
        for index, subject in enumerate(recorded(args.project)):
            paths.append(Path(folder) / f"{index}.json")
            subject.write(paths[-1])
        gpu = subject.gpu
        for name, script, options in (
            ("NVBench, as it comes", "nvbench_cold.py", {}),
            ("do_bench, as it comes", "do_bench.py", {"warmup_ms": 25, "rep_ms": 100}),
            ("NVBench, equal times", "nvbench_cold.py", {"warmup_s": warmup_s, "time_s": of_set_s, "batched": False}),
            ("do_bench, equal times", "do_bench.py", {"warmup_ms": warmup_s * 1e3, "rep_ms": of_set_s * 1e3}),
        ):
            seen, took_s = projects.peer(script, options, paths, gpu)
            yield name, {"wall_s": took_s, "options": options, "seen": [each | {"ns": None} for each in seen]}


def report(found: dict, rounds: int) -> bool:
    """Two readings of "prescribed": the launches alone; and the phases of warm-up and sampling, flushes included."""
    parts, sets = found["parts_of_a_set_s"], found["sets"]
    launches = found["warmup_s"] + found["sampled_s"]
    phases = launches + sets * (parts["warm-up: between them"] + parts["sampling: flushes and between"])
    print(f"{sets} sample sets in {rounds} rounds\n")
    print("| | s | of the wall time |\n|---|---:|---:|")
    for name, seconds in (
        ("wall time", found["wall_s"]),
        ("warm-up and sampled launches", launches),
        ("phases of warm-up and sampling", phases),
        ("until all is verified", found["until_verified_s"]),
        ("sample sets", found["sets_s"]),
        ("report and end", found["report_s"]),
    ):
        print(f"| {name} | {seconds:.2f} | {seconds / found['wall_s']:.1%} |")
    print("\n| part of a sample set | ms |\n|---|---:|")
    for name, seconds in parts.items():
        print(f"| {name} | {seconds * 1e3:.1f} |")
    print(f"| (of load: context and mlarun's own code) | {found['context_s'] * 1e3:.1f} |")
    print(f"| (a set as the runner sees it) | {found['sets_s'] / sets * 1e3:.1f} |")
    print(f"\nwall / phases of warm-up and sampling: {found['wall_s'] / phases:.3f} (goal {GOAL})")
    print(f"wall / launches alone: {found['wall_s'] / launches:.3f}\n")
    for name, median in found["medians_us"].items():
        print(f"{name}: {median:.2f} us")
    return found["wall_s"] <= GOAL * phases


def keep(args, found: dict):
    if args.json:
        args.json.write_text(json.dumps(found, indent=1))


def main():
    args = arguments()
    projects.prepare(args.project, PACKAGES)
    found = mlarun_alone(args)
    keep(args, found)
    met = report(found, args.rounds)
    if not args.skip_peers:
        sets = found["sets"]
        found["peers"] = {}
        print("\n| all subjects once | wall (s) |\n|---|---:|")
        print(f"| mlarun, a round of {args.rounds} | {found['wall_s'] / args.rounds:.2f} |")
        for name, said in peers(args, found["sampled_s"] / sets, found["warmup_s"] / sets):
            found["peers"][name] = said
            keep(args, found)
            print(f"| {name} | {said['wall_s']:.2f} |", flush=True)
    raise SystemExit(0 if met else 1)


if __name__ == "__main__":
    main()
