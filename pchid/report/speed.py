"""How fast things are: the files of `benchmarks/` as tables, each with a sentence in front.

In: results/domains.json, simulator.json, whole_run.json, time_to_goal.json, vin.json, throughput.json and
matrix_products.json, those that are there. Out: `Benchmark`s. Ratios are what counts in them; seconds are those of one
machine.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pchid.errors import InputError
from pchid.report.collect import read_json
from pchid.report.markup import Table


@dataclass(frozen=True)
class Benchmark:
    """What a benchmark found."""

    title: str
    says: str
    tables: tuple[Table, ...]
    command: str


def benchmarks(folder: Path) -> list[Benchmark]:
    """All benchmarks of a results folder."""
    found = []
    for name, reader in READERS.items():
        path = folder / f"{name}.json"
        if not path.exists():
            continue
        data = read_json(path)
        try:
            found.append(reader(data))
        except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
            raise InputError(f"{path} is not what benchmarks/{name}.py writes ({error!r})") from None
    return found


def time_to_goal(data: Any) -> Benchmark:
    """FetchReach until it is solved."""
    rows = [
        (
            method,
            f"{means['solved']} of {means['seeds']}",
            *(_mean(means[name]) for name in ("seconds", "env_steps", "test_steps")),
        )
        for method, means in data["means"].items()
    ]
    ratios = [
        f"{method} takes {ratio['seconds']:,.0f} times as long and {ratio['env_steps']:,.0f} times as many steps"
        for method, ratio in data["ratios_to_pchid"].items()
    ]
    heads = ("method", "solved", "seconds", "environment steps", "TEST steps")
    return Benchmark(
        "FetchReach, until no evaluation episode fails",
        f"Beside pchid, {'; '.join(ratios)}.",
        (Table("Mean over seeds ± half of the 95 % interval, on one thread", heads, rows),),
        data["command"],
    )


def simulator(data: Any) -> Benchmark:
    """Fetch on MuJoCo itself."""
    most = max(row["slots"] for row in data["stepping"])
    of_limit = [row["pchid_to"]["limit"] for row in data["stepping"] if row["slots"] == most]
    others = list(data["stepping"][0]["pchid_to"])
    stepping = [
        (
            row["task"],
            row["slots"],
            f"{row['steps_per_second']['pchid']:,}",
            *(_times(row["pchid_to"].get(other)) for other in others),
        )
        for row in data["stepping"]
    ]
    against = list(data["test"][0]["batched_to"])
    testing = [
        (
            row["task"],
            _times(row["batched_steps_to_simulator_steps"]),
            f"{row['pairs_per_second']['batched']:,}",
            *(_times(row["batched_to"].get(other)) for other in against),
        )
        for row in data["test"]
    ]
    names = ["× raw MuJoCo" if other == "limit" else f"× {other}" for other in others]
    return Benchmark(
        "The Fetch simulator",
        f"With {most} slots it runs at {min(of_limit):.2f} to {max(of_limit):.2f} of what MuJoCo alone does.",
        (
            Table(
                "Speed of pchid's simulator, and its ratio to others", ("task", "slots", "steps/s", *names), stepping
            ),
            Table(
                "Inside TEST: pairs from saved states, in batches",
                ("task", "× simulator", "pairs/s", *(f"× {other}" for other in against)),
                testing,
            ),
        ),
        data["command"],
    )


def whole_run(data: Any) -> Benchmark:
    """Training from beginning to end."""
    rows = [
        (
            row["env"],
            f"{row['test_budget']:.1f}",
            *(f"{row['simulated_steps'][name]:,}" for name in ("env", "test")),
            f"{sum(row['simulated_steps'].values()):,}",
            f"{row['minutes']:.1f}",
            f"{row['limit_minutes']:.1f}",
            _times(row["ratio"]),
        )
        for row in data["runs"]
    ]
    heads = ("task", "TEST budget", "env steps", "TEST steps", "all simulated", "minutes", "MuJoCo alone", "ratio")
    longest = max(row["minutes"] for row in data["runs"])
    return Benchmark(
        "A whole training by PEHID",
        f"On {data['cores']} cores it takes {longest:.0f} minutes at most, evaluations included.",
        (Table("Minutes, and what MuJoCo alone takes for as many steps", heads, rows),),
        data["command"],
    )


def domains(data: Any) -> Benchmark:
    """The array domains."""
    most = max(row["slots"] for row in data)
    ratios = [row["ratio"] for row in data if row["slots"] == most]
    rows = [(row["env"], row["slots"], f"{row['steps_per_second']:,}", _times(row["ratio"])) for row in data]
    return Benchmark(
        "BitFlip, GridWorld and Hanoi",
        f"With {most:,} slots they are {min(ratios):.0f} to {max(ratios):.0f} times as fast as SyncVectorEnv.",
        (Table("Environment steps a second", ("environment", "slots", "steps/s", "× SyncVectorEnv"), rows),),
        "python benchmarks/domains.py",
    )


def vin(data: Any) -> Benchmark:
    """The planning network."""
    first = data[0]
    rows = [
        (row["what"], row["against"], row["threads"], _times(row["ratio"]), f"{row['milliseconds']:.2f}")
        for row in data
    ]
    heads = ("what", "against", "threads", "times as fast", "ms")
    return Benchmark(
        "The value iteration network",
        f"A forward pass is {first['ratio']:.1f} times as fast as {first['against']}, on one thread.",
        (Table("The compiled network, and the same in other ways", heads, rows, words=(0, 1)),),
        "python benchmarks/vin.py",
    )


def throughput(data: Any) -> Benchmark:
    """Two workers."""
    rows = [
        (name, *(f"{seconds:.1f}" for seconds in data[key]))
        for name, key in (("one worker", "seconds_by_one_worker"), ("two workers", "seconds_by_two_workers"))
    ]
    rounds = [f"round {number}" for number in range(1, len(rows[0]))]
    return Benchmark(
        "Two workers beside one",
        f"Two workers need {data['ratio']:.2f} of the time of one for {data['runs']} short runs.",
        (Table(f"Seconds for {data['runs']} runs of {data['episodes']} episodes", ("", *rounds), rows),),
        data["command"],
    )


def matrix_products(data: Any) -> Benchmark:
    """What torch leaves unused."""
    names = {"product": "a product of 256 x 256 matrices", "update": "an update of TD3+HER"}
    measured = data["milliseconds"]
    rows = [(says, *(f"{value:.2f}" for value in measured[name].values())) for name, says in names.items()]
    return Benchmark(
        "All instructions of an AMD processor",
        f"With them a matrix product is {measured['product']['ratio']:.1f} times as fast ({data['processor']}).",
        (Table("Milliseconds of processor time", ("", *measured["product"]), rows),),
        data["command"],
    )


READERS: dict[str, Callable[[Any], Benchmark]] = {
    "time_to_goal": time_to_goal,
    "simulator": simulator,
    "whole_run": whole_run,
    "domains": domains,
    "vin": vin,
    "throughput": throughput,
    "matrix_products": matrix_products,
}


def _mean(figures: Any) -> str:
    digits = 1 if figures["mean"] < 1000 else 0
    return f"{figures['mean']:,.{digits}f} ± {figures['half_interval']:,.{digits}f}"


def _times(ratio: float | None) -> str:
    return "" if ratio is None else f"{ratio:.2f}"
