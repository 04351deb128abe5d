#!/usr/bin/env python3
"""Cycles of the kernels' inner loops on a processor, computed by llvm-mca and not measured.

    python3 scripts/cycles.py aarch64-unknown-linux-gnu neoverse-v2
    python3 scripts/cycles.py x86_64-unknown-linux-gnu znver4

It compiles the crate `undertone-kernel` to assembly, finds the innermost loops of the functions
below, and prints for each its instructions, and the cycles of a pass. It needs `llvm-mca-19`
(Debian's `llvm-19`), and for ARM the target from rustup. The model knows neither caches nor
mispredicted branches.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

#: Functions with an inner loop that decides the time of a kernel.
KERNELS = "leaves|gates|hamming|product|signed|universal|2nh|project|cdt|negacyclic"
PASSES = 100
#: A loop with fewer instructions does nothing but copy.
LEAST = 12


def assembly(target: str) -> Path:
    command = ["cargo", "rustc", "--quiet", "--release", "--locked", "--target", target]
    command += ["-p", "undertone-kernel", "--lib", "--target-dir", "target/cycles"]
    subprocess.run([*command, "--", "--emit", "asm"], check=True)
    found = Path(f"target/cycles/{target}/release/deps").glob("undertone_kernel-*.s")
    return max(found, key=lambda file: file.stat().st_mtime)


def functions(file: Path) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    body: list[str] = []
    for line in file.read_text().splitlines():
        if name := re.match(r"(_ZN\S+?)(17h[0-9a-f]{16}E)?:", line):
            body = found.setdefault(name[1], [])
        else:
            body.append(line)
    return found


def innermost(body: list[str]) -> Iterator[list[str]]:
    places = {line.partition(":")[0]: at for at, line in enumerate(body) if line.startswith(".L")}
    loops = []
    for at, line in enumerate(body):
        jump = re.match(r"\s+(?:b\.?\w*|cbn?z|tbn?z|j\w+)\s.*?(\.L\w+)\s*$", line)
        if jump and places.get(jump[1], at) < at:
            loops.append((places[jump[1]], at))
    for start, end in loops:
        inside = [one for one in loops if start <= one[0] and one[1] <= end]
        if inside == [(start, end)]:
            yield [line for line in body[start : end + 1] if re.match(r"\t[a-z]", line)]


def cycles(loop: list[str], target: str, processor: str) -> float | None:
    command = ["llvm-mca-19", f"-march={target.partition('-')[0].replace('_', '-')}"]
    command += [f"-mcpu={processor}", f"-iterations={PASSES}"]
    if target.startswith("aarch64"):
        command.append("-mattr=+aes")
    run = subprocess.run(command, input="\n".join(loop), capture_output=True, text=True)
    total = re.search(r"Total Cycles:\s+(\d+)", run.stdout)
    return int(total[1]) / PASSES if total else None


def main(target: str, processor: str) -> None:
    for name, body in functions(assembly(target)).items():
        for loop in innermost(body):
            took = cycles(loop, target, processor)
            if re.search(KERNELS, name) and len(loop) >= LEAST and took is not None:
                counts = Counter(line.split()[0] for line in loop).most_common(4)
                what = ", ".join(f"{count} {word}" for word, count in counts)
                print(f"{name.removeprefix('_ZN16undertone_kernel'):40} {took:8.2f}  {what}")


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(*sys.argv[1:])
