"""Do event mode and NVBench tell the same times? The same cubins, the same inputs, in alternating fresh processes.

    python3 agreement.py --mlarun ../../target/release/mlarun --json agreement.json

Beside it: an empty kernel, and two sweeps of the same code by mlarun. Ends with exit code 1 where a goal is missed.
"""

import argparse
import json
import statistics
import sys
import tempfile
from pathlib import Path

import project as projects
import worker
from empty import empty
from subject import Subject, name_of, recorded

# Package of each kernel.
KERNELS = {
    "copy": "device/copy",
    "matmul": "device/matmul",
    "flash_mla": "mla/flash_mla_v2",
    "flash_attention": "mla/flash_attention_v2",
}
# Largest distance of the median ratio from 1, by the shortest time for which it holds.
AGREEMENT_GOALS = ((50_000.0, 0.005), (20_000.0, 0.02))
SWEEPS_GOAL = 0.005
EMPTY_GOAL_NS = 2_900.0 + 500.0


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mlarun", type=Path, default=projects.REPOSITORY / "target/release/mlarun")
    parser.add_argument("--project", type=Path, default=projects.REPOSITORY / "target/peers/agreement")
    parser.add_argument("--rounds", type=int, default=8, help="rounds of both tools")
    parser.add_argument("--samples", type=int, default=200, help="samples of each process")
    parser.add_argument("--sweep-rounds", type=int, default=4, help="rounds of each of the two sweeps")
    parser.add_argument("--kernels", nargs="+", default=list(KERNELS), choices=KERNELS)
    parser.add_argument("--json", type=Path, help="where everything measured is written")
    return parser.parse_args()


def with_mlarun(args, subject: Subject, flush_bytes: int) -> dict:
    """A sample set of event mode, as the runner takes it, with a fixed number of samples and `flush_bytes` to flush."""
    fixed = {"timings": ["cold_isolated"], "min_samples": args.samples, "max_samples": args.samples}
    fixed["flush_bytes"] = flush_bytes
    protocol = subject.protocol | fixed
    lines, ended = worker.ask(args.mlarun, worker.event(args.project, subject, protocol))
    ns = worker.samples(lines)["cold_isolated"]["ns"]
    verified, clock = worker.told(lines, "verified"), worker.told(lines, "sm_clock")
    sampling_s = dict(worker.phases(lines, ended))["sampling"]
    return {
        "ns": statistics.median(ns),
        "samples_ns": ns,
        "sm_mhz": clock["mhz"] if clock else None,
        "duty": sum(ns) / 1e9 / sampling_s,
        "same_output": (verified or {}).get("output_sha256") == subject.output_sha256,
    }


def with_nvbench(args, subject: Subject, folder: Path) -> dict:
    """Cold samples of NVBench, as many and after a warm-up as long."""
    path = folder / "subject.json"
    subject.write(path)
    options = {"samples": args.samples, "warmup_s": subject.protocol["warmup"]["min_ns"] / 1e9, "batched": False}
    (seen,), _ = projects.peer("nvbench_cold.py", options, [path], subject.gpu)
    return {
        "ns": statistics.median(seen["ns"]),
        "samples_ns": seen["ns"],
        "sm_mhz": seen["sm_mhz"],
        "duty": sum(seen["ns"]) / 1e9 / seen["walltime_s"],
        "same_output": seen["same_output"],
    }


def gap(seen: dict) -> float:
    """Nanoseconds from the end of one timed launch to the start of the next."""
    return seen["ns"] * (1.0 / seen["duty"] - 1.0)


def equal_duty(args, subject: Subject, folder: Path) -> int:
    """Bytes for mlarun to flush, so that its launches follow one another as NVBench's do: where clocks are not locked, a
    kernel is the faster, the longer the GPU rests before it. From once to four times the L2, of which mlarun by itself
    flushes twice."""
    usual = subject.protocol["flush_bytes"]
    wanted = gap(with_nvbench(args, subject, folder))
    small, large = (gap(with_mlarun(args, subject, flush)) for flush in (usual // 2, usual))
    if large <= small:
        return usual
    flush = usual / 2 * (1.0 + (wanted - small) / (large - small))
    return int(min(max(flush, usual / 2), usual * 2)) // 4096 * 4096


def alternate(args, subjects: list[Subject], folder: Path) -> dict[str, list[dict]]:
    """Both tools in turns, each time in a fresh process, so that the GPU was as idle before; who begins alternates."""
    rounds = {subject.name: [] for subject in subjects}
    flushes = {subject.name: equal_duty(args, subject, folder) for subject in subjects}
    for number in range(args.rounds):
        for index, subject in enumerate(subjects):
            tools = {
                "mlarun": lambda: with_mlarun(args, subject, flushes[subject.name]),
                "nvbench": lambda: with_nvbench(args, subject, folder),
            }
            order = list(tools) if (number + index) % 2 == 0 else list(reversed(tools))
            seen = {tool: tools[tool]() for tool in order}
            rounds[subject.name].append(seen)
            ratio = seen["mlarun"]["ns"] / seen["nvbench"]["ns"]
            print(f"{number + 1} of {args.rounds}: {subject.name}: {ratio:.4f}", file=sys.stderr, flush=True)
        keep(args, rounds=rounds, flush_bytes=flushes)
    return rounds


def keep(args, **found):
    """What has been measured so far."""
    if args.json:
        args.json.write_text(json.dumps(found))


def sweep(args):
    rounds = f"experiment.rounds={args.sweep_rounds}"
    projects.mlarun(args.mlarun, args.project, *projects.manifests(*args.kernels), "--set", rounds, "--remeasure")


def sweeps(project: Path) -> dict[str, tuple[float, float]]:
    """By subject: medians over the processes of its last two sessions."""
    sessions = {}
    for file in project.glob("out/store/records/event/*/*.json"):
        record = json.loads(file.read_text())["record"]
        median = statistics.median(record["body"]["samples"][0]["ns"])
        sessions.setdefault(name_of(record), {}).setdefault(record["position"]["session"], []).append(median)
    last_two = {name: [found[session] for session in sorted(found)[-2:]] for name, found in sorted(sessions.items())}
    return {name: (statistics.median(found[0]), statistics.median(found[-1])) for name, found in last_two.items()}


def goal(ns: float) -> float | None:
    return next((goal for shortest, goal in AGREEMENT_GOALS if ns >= shortest), None)


def told(met: bool | None) -> str:
    return "--" if met is None else "yes" if met else "NO"


def report_agreement(rounds: dict[str, list[dict]]) -> bool:
    """Where two values stand in a cell, mlarun's is the first."""
    columns = "kernel | mlarun (us) | NVBench (us) | ratio | lowest to highest | SM MHz | duty cycle | same output"
    print(f"| {columns} | goal | met |\n|---|---:|---:|---:|---|---|---|---|---:|---|")
    all_met = True
    for name, seen in rounds.items():
        def median(tool: str, value: str) -> float:
            values = [each[tool][value] for each in seen if each[tool][value] is not None]
            return statistics.median(values) if values else float("nan")

        ratios = [each["mlarun"]["ns"] / each["nvbench"]["ns"] for each in seen]
        ratio, nvbench_ns = statistics.median(ratios), median("nvbench", "ns")
        limit = goal(nvbench_ns)
        met = None if limit is None else abs(ratio - 1.0) <= limit
        wanted = "--" if limit is None else f"{limit:.1%}"
        if name == "empty":
            met, wanted = median("mlarun", "ns") <= EMPTY_GOAL_NS, f"<= {EMPTY_GOAL_NS / 1e3:.1f} us"
        same = all(each[tool]["same_output"] for each in seen for tool in ("mlarun", "nvbench"))
        all_met &= met is not False and same
        clocks, duties = ([median(tool, value) for tool in ("mlarun", "nvbench")] for value in ("sm_mhz", "duty"))
        print(
            f"| {name} | {median('mlarun', 'ns') / 1e3:.2f} | {nvbench_ns / 1e3:.2f} | {ratio:.4f} "
            f"| {min(ratios):.4f} to {max(ratios):.4f} | {clocks[0]:.0f}, {clocks[1]:.0f} "
            f"| {duties[0]:.0%}, {duties[1]:.0%} | {told(same)} | {wanted} | {told(met)} |"
        )
    return all_met


def report_sweeps(found: dict[str, tuple[float, float]]) -> bool:
    print("\n| kernel | first sweep (us) | second sweep (us) | ratio | goal | met |")
    print("|---|---:|---:|---:|---:|---|")
    all_met = True
    for name, (first, second) in found.items():
        met = abs(second / first - 1.0) <= SWEEPS_GOAL
        all_met &= met
        times = f"{first / 1e3:.2f} | {second / 1e3:.2f} | {second / first:.4f}"
        print(f"| {name} | {times} | {SWEEPS_GOAL:.1%} | {told(met)} |")
    return all_met


def main():
    args = arguments()
    projects.prepare(args.project, tuple(KERNELS.values()))
    sweep(args)
    subjects = recorded(args.project)
    subjects.append(empty(args.project, subjects[0]))
    with tempfile.TemporaryDirectory() as folder:
        rounds = alternate(args, subjects, Path(folder))
    sweep(args)
    found = sweeps(args.project)
    keep(args, rounds=rounds, sweeps=found)
    all_met = report_agreement(rounds)
    all_met &= report_sweeps(found)
    raise SystemExit(0 if all_met else 1)


if __name__ == "__main__":
    main()
