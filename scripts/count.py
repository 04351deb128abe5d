#!/usr/bin/env python3
"""Counts what an application has outside its protocol: lines of code without tests, room by room.

    scripts/count.py pssl [--key local_start]

With `--key` it also lists the source files, without tests, that write this key of its job.
"""

import argparse
import pathlib
import re
import subprocess

ROOT = pathlib.Path(__file__).parent.parent
ROOMS = {
    "node": ["crates/undertone/src/node/{name}", "crates/undertone/src/node/{name}.rs"],
    "simulate": ["crates/undertone/src/simulate/{name}.rs"],
    "join": ["crates/cli/src/net/join/{name}.rs"],
    "experiments": ["crates/lab/src/experiments/{name}"],
    "python, Rust": ["crates/python/src/{name}.rs"],
    "python, Python": ["crates/python/python/undertone/_{name}.py"],
}


def code(path):
    """The text of a file without its tests."""
    return re.split(r"^#\[cfg\(test\)\]", path.read_text(), maxsplit=1, flags=re.M)[0]


def sources(place):
    path = ROOT / place
    if path.is_dir():
        found = (file for file in path.rglob("*.rs") if file.stem != "tests")
        return sorted(file for file in found if "tests" not in file.relative_to(ROOT).parts)
    return [path] if path.exists() else []


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("name", help="the application, such as pssl")
    parser.add_argument("--key", help="a key of its job")
    options = parser.parse_args()
    total = 0
    for room, places in ROOMS.items():
        files = [file for place in places for file in sources(place.format(name=options.name))]
        lines = sum(len(code(file).splitlines()) for file in files)
        total += lines
        print(f"{lines:6} {room}")
    print(f"{total:6} in all")
    if options.key:
        listed = subprocess.run(["git", "ls-files", "-z", "crates", "tests/src"], cwd=ROOT,
                                capture_output=True, text=True, check=True)
        names = listed.stdout.split("\0")
        names = (name for name in names if name.endswith((".rs", ".py", ".pyi")))
        writes = [name for name in names if not re.search(r"/tests?[/.]|^tests|/test_", name)
                  and re.search(rf"\b{options.key}\b", code(ROOT / name))]
        print(f"{len(writes):6} files write {options.key}: {', '.join(writes)}")


if __name__ == "__main__":
    main()
