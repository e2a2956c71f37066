"""Rotary positions written into queries and keys in float16, as serving engines do: a function that returns nothing."""

import torch

FAMILY = "elementwise"
TOKENS, HEADS, WIDTH, POSITIONS = 4096, 32, 128, 8192
SMALL = {"TOKENS": 5, "HEADS": 4, "WIDTH": 24, "POSITIONS": 40}

ENTRY = "rotate"
MUTATES = ["query", "key"]
DOMAINS = {"position": ("index", POSITIONS), "cosine": ("between", -1.0, 1.0), "sine": ("between", -1.0, 1.0)}


def reference(query, key, position, cosine, sine):
    for tensor in (query, key):
        c, s = cosine[position][:, None], sine[position][:, None]
        first, second = tensor.float().chunk(2, dim=-1)
        tensor.copy_(torch.cat([first * c - second * s, second * c + first * s], dim=-1))


def table():
    angles = torch.rand(POSITIONS, WIDTH // 2) * 6.0
    return {
        "query": torch.randn(TOKENS, HEADS, WIDTH).half(),
        "key": torch.randn(TOKENS, HEADS // 2, WIDTH).half(),
        "position": torch.randint(0, POSITIONS, (TOKENS,)),
        "cosine": angles.cos(),
        "sine": angles.sin(),
    }


CASES = [
    {"name": "prefill", "inputs": table},
    {"name": "decode", "inputs": table, "sizes": {"TOKENS": 64}, "small": {"TOKENS": 2}, "weight": 0.5},
]
