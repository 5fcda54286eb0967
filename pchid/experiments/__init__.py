"""Experiments as data: what each figure runs, the engines that run it, its statistics, plots and verdicts."""
