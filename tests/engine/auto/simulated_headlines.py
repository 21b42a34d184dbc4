"""Simulated replies whose headline can be compared with the truth: the real checks and the real
fold, on a machine that drifts, halves its speed, and is disturbed."""
