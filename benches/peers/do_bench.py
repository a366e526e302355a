"""One fresh process that measures subjects with triton.testing.do_bench and writes what it saw as JSON.

    python3 do_bench.py OUT OPTIONS SUBJECT…

OPTIONS is a JSON object: `warmup_ms` and `rep_ms`, as do_bench has them (by itself 25 and 100).
"""

import json
import sys
import time
from pathlib import Path

import torch
import triton.testing

from gpu import OnGpu
from subject import Subject


def main():
    out, options, *paths = sys.argv[1:]
    options, answer = json.loads(options), []
    for path in paths:
        subject = Subject.read(Path(path))
        started = time.perf_counter()
        torch.cuda.init()
        on_gpu = OnGpu(subject)
        made = time.perf_counter()
        stream = torch.cuda.current_stream().cuda_stream
        median_ms = triton.testing.do_bench(
            lambda: on_gpu.launch(stream), warmup=options["warmup_ms"], rep=options["rep_ms"], return_mode="median"
        )
        ended = time.perf_counter()
        answer.append({
            "name": subject.name,
            "median_ns": median_ms * 1e6,
            "inputs_s": made - started,
            "measuring_s": ended - made,
            "same_output": on_gpu.output_sha256() == subject.output_sha256,
        })
    Path(out).write_text(json.dumps(answer))


if __name__ == "__main__":
    main()
