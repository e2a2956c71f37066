"""One row for each sequence goes into a bfloat16 cache; a dict says what fits next: a function with domains."""

import torch

FAMILY = "elementwise"
SEQUENCES, LENGTH, WIDTH = 256, 1024, 1024
SMALL = {"SEQUENCES": 5, "LENGTH": 7, "WIDTH": 40}

ENTRY = "append"
MUTATES = ["cache"]
DOMAINS = {"place": ("index", LENGTH)}


def reference(cache, row, place):
    cache[torch.arange(place.shape[0], device=place.device), place] = row
    return {"next": place + 1, "full": place + 1 >= cache.shape[1]}


CASES = [
    {
        "name": "one",
        "inputs": {
            "cache": ("bfloat16", SEQUENCES, LENGTH, WIDTH),
            "row": ("bfloat16", SEQUENCES, WIDTH),
            "place": ("int64", SEQUENCES),
        },
    }
]
