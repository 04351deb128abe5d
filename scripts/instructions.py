#!/usr/bin/env python3
"""Whether the code that is documented as constant-time runs as many instructions for each secret.

    python3 scripts/instructions.py "qemu-aarch64 -L /usr/aarch64-linux-gnu" PROGRAM

`PROGRAM` is the example `ctgrind` of `undertone-lab`, the first argument is qemu with its options.
Each part of the program runs with four sets of secrets, on each level of ARM. Every function must
run as many instructions with each of them. Those that do not are printed, and the exit code is 1.
The part that leaks on purpose must be found. What threads, the allocator and the C library do is
left out, with what is inlined into them. An index that depends on a secret changes no count:
memcheck finds those, on x86-64.
"""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from collections import Counter

from blocks import count

LEVELS = ("portable", "neon")
SECRETS = 4
LEAKS = "a leak"
#: A part with a path of its own on each level.
VECTORS = "correlated vectors"
#: Threads, their queues, the allocator, the C library: what they do depends on when threads wake.
LEFT_OUT = (
    r"rayon_core|crossbeam|std\d\w*(sync|thread|sys)|FnOnce|^__aarch64_|_rdl_|rust_\w*alloc|^\?$"
)
#: By part: functions whose count may depend on secrets. Which candidates of a Gaussian are accepted
#: decides how many are drawn: it is excepted (docs/security.md), and so is what makes candidates.
EXCEPTED = {"lattices": r"lwe6sample|3cdt|4exp2|8gaussian|kernel\.\.mask|3aes|raw_vec|Enumerate"}


def functions(runner: list[str], program: str, part: str, level: str, secrets: int) -> Counter[str]:
    """The instructions of each function."""
    environment = {"UNDERTONE_SIMD": level, "UNDERTONE_SECRETS": str(secrets)}
    environment["RAYON_NUM_THREADS"] = "1"
    found: Counter[str] = Counter()
    for (symbol, instructions), times in count(runner, [program, part], environment).items():
        if not re.search(LEFT_OUT, symbol):
            found[symbol] += times * len(instructions)
    return found


def once(runner: list[str], program: str, part: str, level: str) -> dict[str, list[int]]:
    """The functions whose counts differ, with the counts."""
    runs = [functions(runner, program, part, level, 1 + secrets) for secrets in range(SECRETS)]
    if not all(runs):
        sys.exit(f"{level}, {part}: nothing was counted")
    print(f"{level}, {part}: {len(runs[0])} functions, {runs[0].total()} instructions", flush=True)
    found = {}
    for symbol in sorted(set().union(*runs)):
        each = [run[symbol] for run in runs]
        excepted = part in EXCEPTED and re.search(EXCEPTED[part], symbol)
        if len(set(each)) > 1 and not excepted:
            found[symbol] = each
    return found


def differing(runner: list[str], program: str, part: str, level: str) -> list[str]:
    """The functions whose counts differ twice: what threads do by chance does not."""
    first = once(runner, program, part, level)
    second = once(runner, program, part, level) if first else {}
    return [
        f"{level}, {part}: {symbol}: {', '.join(map(str, first[symbol]))}"
        for symbol in first.keys() & second.keys()
    ]


def main(given: str, program: str) -> int:
    runner = shlex.split(given)
    run = subprocess.run([*runner, program, "list"], check=True, capture_output=True, text=True)
    parts = run.stdout.splitlines()
    levels = [functions(runner, program, VECTORS, level, 1).total() for level in LEVELS]
    if len(set(levels)) < len(LEVELS):
        sys.exit("levels run the same instructions: has this processor NEON?")
    lines = [
        line
        for level in LEVELS
        for part in parts
        for line in differing(runner, program, part, level)
    ]
    print("\n".join(lines))
    found = all(differing(runner, program, LEAKS, level) for level in LEVELS)
    if not found:
        print("a leak is not found")
    return int(bool(lines) or not found)


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    sys.exit(main(*sys.argv[1:]))
