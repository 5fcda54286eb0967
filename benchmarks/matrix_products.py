"""What torch loses on AMD processors: its MKL keeps its widest instructions for Intel's, and can be asked to use them.

In: nothing; it wants a C compiler. Out: a table, and `results/matrix_products.json`: processor time of a matrix product
and of an update of TD3+HER as recommended for FetchPush, on one thread, as torch comes and with a library of one
function put before it, by which MKL asks for the maker of the processor. Both take turns, in processes of their own.
On an Intel processor, or with a torch without MKL, the ratio is about 1.
Usage: python benchmarks/matrix_products.py [--rounds 3] [--library FILE]
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shlex
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ANSWER = "int mkl_serv_intel_cpu_true(void) { return 1; }\n"


def build(library: Path) -> Path:
    """The library: `LD_PRELOAD=FILE pchid train ...` uses it."""
    words = ["cc", "-shared", "-fPIC", "-x", "c", "-", "-o", str(library)]
    subprocess.run(words, input=ANSWER, text=True, check=True)
    return library


def milliseconds(run: Callable[[], Any], times: int) -> float:
    """Processor time of a call, which other programs disturb least: the median of `times`."""
    run()
    taken = []
    for _ in range(times):
        began = time.process_time()
        run()
        taken.append(time.process_time() - began)
    return 1000 * statistics.median(taken)


def measure() -> dict[str, float]:
    """In this process, with whatever library was put before torch."""
    import torch

    from pchid.config import new_config
    from pchid.training import make_algorithm

    torch.set_num_threads(1)
    left, right = torch.randn(256, 256), torch.randn(256, 256)
    agent: Any = make_algorithm(new_config({"env": "FetchPush-v4", "method": "td3+her", "steps": 3200}))
    agent.model.learn(3200)  # the first episodes, and the first updates on them
    return {
        "product": milliseconds(lambda: left @ right, 2000),
        "update": milliseconds(lambda: agent.model.train(2, 256), 100) / 2,  # the actor learns in every second one
    }


def measured(library: Path | None) -> dict[str, float]:
    """In a process of its own."""
    environment = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
    environment |= {"OMP_NUM_THREADS": "1", **({"LD_PRELOAD": str(library)} if library else {})}
    words = [sys.executable, __file__, "--child"]
    printed = subprocess.run(words, env=environment, stdout=subprocess.PIPE, text=True, check=True).stdout
    found: dict[str, float] = json.loads(printed.splitlines()[-1])
    return found


def processor() -> str:
    """Its name, where the system tells."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--library", type=Path, help="keep the library here")
    parser.add_argument("--out", type=Path, default=Path("results/matrix_products.json"))
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        print(json.dumps(measure()))
        return
    from pchid.runs import versions

    if shutil.which("cc") is None:
        print("there is no C compiler (cc) here, so nothing was measured")
        return
    with tempfile.TemporaryDirectory() as folder:
        library = build(options.library or Path(folder) / "wide.so").absolute()
        rounds = [(measured(None), measured(library)) for _ in range(options.rounds)]
    result: dict[str, Any] = {"command": "python " + shlex.join(sys.argv), "processor": processor(), "milliseconds": {}}
    for name in ("product", "update"):
        plain, wide = (statistics.median(found[side][name] for found in rounds) for side in (0, 1))
        result["milliseconds"][name] = {
            "as torch comes": round(plain, 4),
            "all instructions": round(wide, 4),
            "ratio": round(plain / wide, 2),
        }
        print(f"{name}: {plain:.3f} ms as torch comes, {wide:.3f} ms with all instructions: {plain / wide:.2f} x")
    options.out.parent.mkdir(exist_ok=True)
    options.out.write_text(json.dumps({**result, "versions": versions()}, indent=1) + "\n")


if __name__ == "__main__":
    main()
