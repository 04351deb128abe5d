#!/usr/bin/env python3
"""Writes health.csv: a generated table of people, whose columns have different units.

The diagnosis of a person depends on age, weight and cholesterol. Income, in euros, has by far the
widest range and says little.
"""

import csv
import math
import pathlib
import random

ROWS = 600
DIAGNOSES = ("diabetes", "healthy", "heart")

draw = random.Random(20)
path = pathlib.Path(__file__).with_name("health.csv")
with path.open("w", newline="") as file:
    table = csv.writer(file, lineterminator="\n")
    table.writerow(("age", "income", "weight", "cholesterol", "label"))
    for row in range(ROWS):
        kind = row % 3
        age = draw.gauss((60, 36, 56)[kind], 9.3)
        weight = draw.gauss((88, 71, 67)[kind], 9.2)
        cholesterol = draw.gauss((5.7, 4.7, 6.2)[kind], 0.73)
        income = 30_000 * math.exp(draw.gauss((0.0, -0.03, 0.03)[kind], 0.5))
        income = 100 * round(income / 100)
        fields = round(age), income, f"{weight:.1f}", f"{cholesterol:.1f}", DIAGNOSES[kind]
        table.writerow(fields)
