#!/usr/bin/env python3
"""Cycles of a distance on a processor, computed from a run under qemu and not measured.

    python3 scripts/distances.py aarch64-unknown-linux-gnu neoverse-v2,neoverse-v1 [BACKEND ...]
    python3 scripts/distances.py x86_64-unknown-linux-gnu znver4 [BACKEND ...]

It runs `undertone bench distances` under qemu, where a plugin (`blocks.c`) counts how often each
block of instructions runs. `llvm-mca` computes the cycles of each block, as if it ran again and
again. A run with one repetition more tells what a repetition takes: the protocol, all parties
together, and the distances once more in the clear, which are subtracted. The levels are the best
that qemu has (NEON; AVX2, since it has no AVX-512) and the portable one.

It needs `qemu-user` before version 9, `llvm-19` and gcc, and for ARM `gcc-aarch64-linux-gnu` and
the target from rustup. The model knows neither caches nor mispredicted branches, nor what one block
does for the next. Code without a symbol, such as the C library's copies, is left out.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

from blocks import Block, count

#: Rows of each of the two clients: as in the tables of docs/benchmarks.md, or what qemu can bear.
ROWS = {"clear": 500, "psm": 500, "lwe": 500, "shade": 100, "phe": 20}
#: Options beyond the number of rows.
OPTIONS = {"phe": ["--key-bits", "2048"]}
PASSES = 100
#: Blocks that together run fewer than this share of all instructions are left out.
REST = 0.002
FOLDER = Path("target/cycles")


def build(target: str) -> Path:
    environment = dict(os.environ)
    if target.startswith("aarch64"):
        gcc = "aarch64-linux-gnu-gcc"
        environment["CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER"] = gcc
        environment["CC_aarch64_unknown_linux_gnu"] = gcc
    command = ["cargo", "build", "--quiet", "--release", "--locked", "--target", target]
    command += ["-p", "undertone-cli", "--target-dir", str(FOLDER)]
    subprocess.run(command, check=True, env=environment)
    return FOLDER / target / "release" / "undertone"


def run(target: str, program: Path, backend: str, repeat: int, level: str) -> Counter[Block]:
    runner = [f"qemu-{target.partition('-')[0]}", "-cpu", "max"]
    if target.startswith("aarch64"):
        runner += ["-L", "/usr/aarch64-linux-gnu"]
    command = [str(program), "bench", "distances", "--quiet", "--repeat", str(repeat)]
    command += ["--backend", backend, "--rows", str(ROWS[backend]), *OPTIONS.get(backend, [])]
    return count(runner, command, {"UNDERTONE_SIMD": level})


def texts(blocks: list[Block], target: str) -> dict[str, str]:
    """Each instruction in the assembler's language. What it does not know is left out."""
    every = sorted({instruction for _, block in blocks for instruction in block})
    command = ["llvm-mc-19", "--disassemble", f"-triple={target}"]
    if target.startswith("aarch64"):
        command.append("-mattr=+all")
    found = {}
    for instruction in every:
        octets = [instruction[at : at + 2] for at in range(0, len(instruction), 2)]
        given = " ".join(f"0x{octet}" for octet in octets)
        run = subprocess.run(command, input=given, capture_output=True, text=True)
        lines = [line.strip() for line in run.stdout.splitlines()]
        found |= {instruction: line for line in lines if line and not line.startswith(".")}
    return found


def cycles(blocks: list[Block], target: str, processor: str) -> list[float]:
    """The cycles of a pass through each block."""
    arm = target.startswith("aarch64")
    known = texts(blocks, target)
    lines = []
    for at, (_, block) in enumerate(blocks):
        body = [known[instruction] for instruction in block if instruction in known]
        lines += [f"# LLVM-MCA-BEGIN {at}", *body, f"# LLVM-MCA-END {at}"]
    command = ["llvm-mca-19", f"-mtriple={target}", f"-mcpu={processor}"]
    command += [f"-iterations={PASSES}", "-skip-unsupported-instructions=any"]
    command += ["-mattr=+all"] if arm else []
    lines.append("")
    run = subprocess.run(command, input="\n".join(lines), capture_output=True, text=True)
    region = r"Region - (\d+)\n(?:(?!Region - ).)*?Total Cycles:\s+(\d+)"
    regions = re.findall(region, run.stdout, re.DOTALL)
    found = {int(at): int(total) / PASSES for at, total in regions}
    if not found:
        sys.exit(run.stderr)
    # Unknown instructions cost nothing; a block of nothing else costs a cycle for each.
    return [found.get(at, float(len(block))) for at, (_, block) in enumerate(blocks)]


def repetition(program: Path, target: str, backend: str, level: str) -> Counter[Block]:
    """How often a repetition runs each block. Few that run seldom are left out."""
    counts = run(target, program, backend, 2, level)
    counts.subtract(run(target, program, backend, 1, level))
    # Symbols of the C library are not in the program.
    weights = {block: n * len(block[1]) for block, n in counts.items() if block[0] != "?"}
    total, seen = sum(weights.values()), 0
    kept: Counter[Block] = Counter()
    for block in sorted(weights, key=weights.__getitem__, reverse=True):
        if seen > (1 - REST) * total:
            break
        seen += weights[block]
        kept[block] = counts[block]
    print(f"    {total / ROWS[backend] ** 2:10.1f}  instructions", file=sys.stderr)
    return kept


def distance(counts: Counter[Block], target: str, processor: str, backend: str) -> float:
    """The cycles of the blocks of a repetition, for each distance."""
    by: Counter[str] = Counter()
    for block, each in zip(counts, cycles(list(counts), target, processor), strict=True):
        by[block[0]] += counts[block] * each / ROWS[backend] ** 2
    for symbol, share in by.most_common(8):
        print(f"    {share:10.1f}  {symbol}", file=sys.stderr)
    return sum(by.values())


def main(target: str, processors: str, *backends: str) -> None:
    program = build(target)
    names = processors.split(",")
    for level in ("neon" if target.startswith("aarch64") else "avx2", "portable"):
        # In the clear the server's work is that of the comparison.
        clear: dict[str, float] = {}
        for backend in ("clear", *(backend for backend in backends or ROWS if backend != "clear")):
            counts = repetition(program, target, backend, level)
            for name in names:
                took = distance(counts, target, name, backend)
                clear.setdefault(name, took / 2)
                took -= clear[name]
                print(f"{backend:6} {level:9} {name:12} {took:10.1f} cycles a distance", flush=True)


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    main(*sys.argv[1:])
