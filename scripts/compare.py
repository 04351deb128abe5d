#!/usr/bin/env python3
"""Compares two programs `undertone`: processor time and peak memory, command by command.

    scripts/compare.py OLD NEW [--runs 11] [--only WORD] [--models]

Each command runs in turn with the old and the new program, and the first of each pair alternates.
The table shows the median of the ratios of pairs, the quartiles of these ratios, and the ratio of
median peak memory. Where the quartiles are further apart than the difference that you look for,
count instructions instead: `valgrind --tool=callgrind PROGRAM COMMAND`.
"""

import argparse
import os
import statistics
import subprocess
import sys

COMMANDS = [
    "bench distances --backend psm --rows 1500 --repeat 3",
    "bench distances --backend lwe --rows 1000 --repeat 3",
    "bench distances --backend shade --rows 400 --repeat 3",
    "bench distances --backend phe --key-bits 2048 --rows 100 --repeat 1",
    "bench distances --backend sketch --rows 4000 --repeat 3",
    "bench sums --clients 50 --repeat 3",
    "bench garble --rows 10000 --repeat 7",
    "bench ot --count 2^21 --repeat 3",
    "bench paillier --key-bits 2048 --repeat 1",
    "bench pairs --repeat 1",
    "bench graph --steps 50",
    "bench votes --repeat 10",
    "bench round --repeat 1 --words 200000",
    "bench pipeline --rows 5000",
    "label data/digits.npz --runs 1",
    "label data/digits.npz --runs 1 --backend lwe",
    "pssl data/digits.npz --classes 1,2,3,4 --runs 1",
    "bench network data/digits.npz --repeat 1",
]
# Of programs with the feature `train`.
MODELS = [
    "train data/digits.npz --seeds 1 --rounds 5 --label-rounds 5 --arms xclp --backend psm",
    "cotrain data/breast_cancer.npz --runs 1",
    "fedgraph data/breast_cancer.npz --runs 1",
]


def run(program, command):
    """Processor seconds and peak kilobytes of one run."""
    child = subprocess.Popen(
        [program, *command.split(), "--quiet"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    errors = child.stderr.read()
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        sys.exit(f"{program} {command}: {errors.decode()}")
    return usage.ru_utime + usage.ru_stime, usage.ru_maxrss


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("old")
    parser.add_argument("new")
    parser.add_argument("--runs", type=int, default=11, help="pairs of runs of each command")
    parser.add_argument("--only", default="", help="commands that contain this text")
    parser.add_argument("--models", action="store_true", help="also train, cotrain, fedgraph")
    options = parser.parse_args()
    commands = COMMANDS + MODELS if options.models else COMMANDS
    programs = [os.path.abspath(options.old), os.path.abspath(options.new)]
    print("| command | old, s | new / old | quartiles | memory |")
    print("|---|---|---|---|---|")
    for command in filter(lambda command: options.only in command, commands):
        times, peaks = ([], []), ([], [])
        for pair in range(options.runs):
            for which in ((0, 1), (1, 0))[pair % 2]:
                seconds, peak = run(programs[which], command)
                times[which].append(seconds)
                peaks[which].append(peak)
        ratios = [new / old for old, new in zip(*times, strict=True)]
        low, middle, high = statistics.quantiles(ratios, n=4)
        memory = statistics.median(peaks[1]) / statistics.median(peaks[0])
        print(
            f"| `{command}` | {statistics.median(times[0]):.2f} | {middle:.3f} "
            f"| {low:.3f} to {high:.3f} | {memory:.3f} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
