"""Hindsight beside the algorithms of Stable-Baselines3 (Sec. 4.3)."""
