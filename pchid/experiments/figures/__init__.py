"""Each figure and table of the paper, declared in a file of its own; a few of ours beside them."""

from pchid.experiments.declaration import Experiment
from pchid.experiments.figures.domains import BITFLIP, FETCHREACH, HANOI, POINTMAZE
from pchid.experiments.figures.fig1a import FIG1A
from pchid.experiments.figures.fig4 import FIG4A, FIG4B, FIG4CD
from pchid.experiments.figures.fig5 import FIG5
from pchid.experiments.figures.fig6 import FIG6A, FIG6B, FIG6C, GRID8
from pchid.experiments.figures.gridworld import ABLATIONS, GRIDWORLD
from pchid.experiments.figures.ou import OU
from pchid.experiments.figures.ou_push import OU_PUSH
from pchid.experiments.figures.push import PUSH_ABLATIONS
from pchid.experiments.figures.steps import STEPS
from pchid.experiments.figures.table1 import TABLE1

EXPERIMENTS: dict[str, Experiment] = {
    experiment.name: experiment
    for experiment in (
        FIG1A,
        FIG4A,
        FIG4B,
        FIG4CD,
        FIG5,
        FIG6A,
        FIG6B,
        FIG6C,
        TABLE1,
        OU,
        PUSH_ABLATIONS,
        OU_PUSH,
        STEPS,
        GRID8,
        GRIDWORLD,
        ABLATIONS,
        BITFLIP,
        FETCHREACH,
        HANOI,
        POINTMAZE,
    )
}
"""By name, in the paper's order."""
