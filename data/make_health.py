#!/usr/bin/env python3
"""Writes health.csv: a generated table of people, whose columns have different units.

The risk of a person follows from age, weight and cholesterol. Income, in euros, has by far the
widest range, and tells little.
"""

import csv
import math
import pathlib
import random

ROWS = 600
CLASSES = ("low", "medium", "high")

draw = random.Random(20)
path = pathlib.Path(__file__).with_name("health.csv")
with path.open("w", newline="") as file:
    table = csv.writer(file, lineterminator="\n")
    table.writerow(("age", "income", "weight", "cholesterol", "label"))
    for row in range(ROWS):
        risk = row % 3
        age = draw.gauss((34, 50, 66)[risk], 6.5)
        weight = draw.gauss((64, 80, 92)[risk], 7.0)
        cholesterol = draw.gauss((4.3, 5.6, 6.4)[risk], 0.6)
        income = 28_000 * math.exp(draw.gauss((-0.15, 0.15, 0.0)[risk], 0.45))
        income = int(round(income, -2))
        table.writerow(
            (round(age), income, f"{weight:.1f}", f"{cholesterol:.1f}", CLASSES[risk])
        )
