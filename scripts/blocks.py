"""Runs a program under qemu and counts how often each block of instructions runs."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

#: The function that a block is in, and the block's instructions, each in hexadecimal.
Block = tuple[str, tuple[str, ...]]


def count(runner: list[str], command: list[str], environment: Mapping[str, str]) -> Counter[Block]:
    """How often `command` runs each block. `runner` is qemu with its options."""
    with tempfile.TemporaryDirectory() as folder:
        plugin, counts = Path(folder) / "blocks.so", Path(folder) / "counts"
        source = Path(__file__).with_name("blocks.c")
        subprocess.run(["gcc", "-shared", "-fPIC", "-O2", "-o", plugin, source], check=True)
        run = [*runner, "-plugin", f"{plugin},out={counts}", *command]
        subprocess.run(run, check=True, stdout=subprocess.DEVNULL, env=os.environ | environment)
        found: Counter[Block] = Counter()
        with counts.open() as lines:
            for line in lines:
                times, symbol, *instructions = line.split()
                found[symbol, tuple(instructions)] += int(times)
        if not found:
            raise RuntimeError(f"{command}: no blocks were counted")
        return found
