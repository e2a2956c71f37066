"""Judging: the evaluator, which supervises, and in `workers` the processes it supervises.

Nothing here but `workers` may import torch or triton.
"""
