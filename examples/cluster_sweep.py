# %% [markdown]
# # A sweep, on one machine or on a cluster
#
# Three values of one setting, two seeds each, through the Python API: six runs, as many at a time as there are
# cores. Finished runs are found again, so a second call prints the table at once, and an interrupted one goes on.
#
# Usage: `python examples/cluster_sweep.py`, on Ray `python examples/cluster_sweep.py --ray`, which joins a cluster with
# `--address auto`. The command line can do the same: `pchid sweep BitFlip-v0 --methods hid --set ... --engine ray`.

# %%
import argparse
from pathlib import Path

from rich.console import Console

from pchid.experiments.engines import make_engine
from pchid.experiments.reproduce import Plan, reproduce
from pchid.experiments.results import read_results
from pchid.experiments.sweep import grid, try_rows

parser = argparse.ArgumentParser()
parser.add_argument("--ray", action="store_true", help="run on Ray: pip install 'pchid[ray]'")
parser.add_argument("--address", help="the Ray cluster to join: auto or HOST:PORT; without it, Ray is started here")
parser.add_argument("--runs", type=Path, default=Path("runs/cluster_sweep"), help="seen by all machines of a cluster")
options, _ = parser.parse_known_args()  # a notebook has arguments of its own

# %% [markdown]
# ## What to run
#
# A setting is an option of `pchid train`; those with several values are tried in all combinations.

# %%
sweep = grid(
    "bitflip",
    axis="env_steps",
    envs=["BitFlip-v0"],
    methods=["hid"],
    settings={"episodes": [40], "env.n_bits": [11], "updates_per_episode": [1, 3, 10], "final_episodes": [200]},
    seeds=2,
)
try_rows(sweep)  # a wrong option should be known before the first run, not after the last

# %% [markdown]
# ## Run it
#
# Each run is a process of its own with one thread. What failed is named, with its log, and does not stop the others.

# %%
engine = make_engine("ray" if options.ray else "local", workers=None, address=options.address)
plan = Plan(engine, runs=options.runs, out=options.runs / "results")
failed = reproduce([sweep], plan, Console())

# %% [markdown]
# ## Read the results
#
# Everything is in files (`runs.csv`, `curves.csv`, `table.md`, a picture), and here as numbers: the interquartile mean
# over seeds with its 95 % interval.

# %%
results = read_results(sweep, sweep.runs(), options.runs.absolute(), plan.out / sweep.name)
success = {}
for label in results.summaries:
    success[label] = results.estimate(label, "final_success")
    print(f"{label}: final success {success[label]}, {success[label].seeds} seeds")
best = max(success, key=lambda label: success[label].iqm)
print(f"best: {best}; {len(failed)} runs failed")
