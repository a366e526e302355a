"""One fresh process that measures subjects with NVBench and writes what it saw as JSON.

    python3 nvbench_cold.py OUT OPTIONS SUBJECT…

OPTIONS is a JSON object; what it leaves out is as NVBench has it by itself: `samples` (so many cold samples and no
other stopping criterion), `time_s` (stop after so much time in kernels, whatever the noise), `warmup_s` (instead of one
warm-up run), `batched` (whether batches are measured too). Clocks and persistence mode are left alone.
"""

import json
import sys
import tempfile
import time
from pathlib import Path

import cuda.bench
from cuda.bench.results import BenchmarkResult

from gpu import OnGpu
from subject import Subject

# A sample is discarded where the clock is below this part of the default one: never, but the clock is read.
THROTTLE_THRESHOLD = 0.01
# Relative standard deviation that no measurement has.
ANY_NOISE = 1e6


def register(index: int, subject: Subject, options: dict, seen: list):
    def measure(state):
        started = time.perf_counter()
        on_gpu = OnGpu(subject)
        made = time.perf_counter()
        state.exec(lambda launch: on_gpu.launch(launch.get_stream().addressof()), batched=options.get("batched"))
        ended = time.perf_counter()
        seen.append({"inputs_s": made - started, "measuring_s": ended - made, "output_sha256": on_gpu.output_sha256()})

    benchmark = cuda.bench.register(measure)
    benchmark.set_name(f"subject_{index}")
    benchmark.set_throttle_threshold(THROTTLE_THRESHOLD)
    if "samples" in options:
        benchmark.set_stopping_criterion("sample-count")
        benchmark.set_criterion_param_int64("target-samples", options["samples"])
        benchmark.set_timeout(60)
    if "time_s" in options:
        benchmark.set_criterion_param_float64("min-time", options["time_s"])
        benchmark.set_criterion_param_float64("max-noise", ANY_NOISE)
    if "warmup_s" in options:
        benchmark.set_cold_warmup_runs(1 << 30)
        benchmark.set_cold_max_warmup_walltime(options["warmup_s"])


def main():
    out, options, *paths = sys.argv[1:]
    options, seen = json.loads(options), []
    subjects = [Subject.read(Path(path)) for path in paths]
    for index, subject in enumerate(subjects):
        register(index, subject, options, seen)
    with tempfile.TemporaryDirectory() as folder:
        results = Path(folder) / "results.json"
        cuda.bench.run_all_benchmarks([sys.argv[0], "--quiet", "--jsonbin", str(results)])
        measured = BenchmarkResult.from_json(results)
    answer = []
    for index, (subject, saw) in enumerate(zip(subjects, seen)):
        state, = measured[f"subject_{index}"]
        summaries = {tag: summary.value for tag, summary in state.summaries.items()}
        clock = summaries.get("nv/cold/sm_clock_rate/mean")
        answer.append(saw | {
            "name": subject.name,
            "ns": [seconds * 1e9 for seconds in state.samples],
            "walltime_s": summaries.get("nv/cold/walltime"),
            "sm_mhz": clock / 1e6 if clock else None,
            "same_output": saw["output_sha256"] == subject.output_sha256,
        })
    Path(out).write_text(json.dumps(answer))


if __name__ == "__main__":
    main()
