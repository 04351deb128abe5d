#!/usr/bin/env python3
"""Gives crates and modules the names that users type, after their folders and files have moved.

    scripts/names.py

| before | after |
|---|---|
| crates `xclp`, `training`, `fedct` | `label`, `train`, `cotrain` |
| modules `cotraining`, `training` | `cotrain`, `train` |
| modules `pairwise`, `feature_graph` | `pssl`, `fedgraph` |

Strings that are hashed, names of vectors, check ids and pages of the specification stay.
"""

import pathlib
import re
import subprocess

CRATES = {"xclp": "label", "training": "train", "fedct": "cotrain"}
MODULES = {
    "cotraining": "cotrain",
    "training": "train",
    "pairwise": "pssl",
    "feature_graph": "fedgraph",
    "feature_graph_lengths": "fedgraph_lengths",
    "pairwise_lengths": "pssl_lengths",
    "pairwise_digits": "pssl_digits",
    "pairwise_rank": "pssl_rank",
    "pairwise_cheaters": "pssl_cheaters",
    "pairwise_leavers": "pssl_leavers",
    "feature_graph_cheaters": "fedgraph_cheaters",
    "feature_graph_leavers": "fedgraph_leavers",
    "cotraining_cheaters": "cotrain_cheaters",
    "cotraining_leavers": "cotrain_leavers",
    "training_cheaters": "train_cheaters",
    "training_leavers": "train_leavers",
}
# Modules of these names that stay: what `serve` and `join` share, the steps of a graph network,
# and what distances between two clients have in common.
KEEP = ("crates/cli/src/net/", "crates/fedgraph/src/client/", "crates/hamming/")
# Documents in which these crates are meant by their bare names.
ABOUT_CRATES = ("ARCHITECTURE.md", "CONTRIBUTING.md", "Cargo.toml", "docs/embedding.md")


def crates(text):
    for old, new in CRATES.items():
        text = re.sub(rf"\bundertone([-_]){old}\b", rf"undertone\g<1>{new}", text)
        text = re.sub(rf"\bcrates/{old}\b", f"crates/{new}", text)
        text = re.sub(rf"(?<![\w/]){old}/src\b", f"{new}/src", text)
        text = text.replace(f"../{old}/README.md", f"../{new}/README.md")
    return text


def rust(path, text):
    for old, new in CRATES.items():
        text = re.sub(rf"\bundertone::{old}\b", f"undertone::{new}", text)
        text = re.sub(rf"\bas {old}\b", f"as {new}", text)
    for old in ("xclp", "fedct"):
        text = re.sub(rf"(?<!::)\b{old}::", f"{CRATES[old]}::", text)
    if path == "crates/python/src/label.rs":  # it has a function of this name
        text = text.replace("label::{self,", "label::{self as protocol,")
        text = re.sub(r"\blabel::(client|server)\(", r"protocol::\1(", text)
    if path.startswith(KEEP):
        return text
    if path == "crates/undertone/src/simulate/mod.rs":
        text = re.sub(r"\b(mod |use )graph\b", r"\1fedgraph", text)
    if path == "tests/documents/lengths.rs":  # it has the crates of these names, too
        for old in ("feature_graph", "pairwise"):
            new = f"{MODULES[old]}_runs"
            text = re.sub(rf"(undertone_tests::){old};", rf"\1{MODULES[old]} as {new};", text)
            text = re.sub(rf"(?<!::)\b{old}::", f"{new}::", text)
    if path == "tests/documents/golden.rs":
        text = re.sub(r"\{feature_graph, offers, pairwise,", "{fedgraph, offers, pssl,", text)
    text = re.sub(r"\bof_feature_graph\b", "of_fedgraph", text)
    for old, new in MODULES.items():
        text = re.sub(rf"\b{old}::", f"{new}::", text)
        text = re.sub(rf"^((?:pub )?mod) {old};", rf"\1 {new};", text, flags=re.M)
        text = re.sub(rf"\b(use (?:super|undertone_tests|undertone))::{old};", rf"\1::{new};", text)
    return text


def fuzz(text):
    for old in ("cotraining", "training", "pairwise", "feature_graph"):
        new = MODULES[old]
        text = re.sub(rf'(fuzz::run\("|fuzz/seeds/|\("|name = "|fuzz_targets/|::|fn ){old}\b',
                      rf"\g<1>{new}", text)
    return text


def document(path, text):
    text = re.sub(r"`(xclp|training|fedct)::", lambda m: f"`{CRATES[m[1]]}::", text)
    text = re.sub(r"(undertone::\{.*)\bxclp::\{", r"\1label::{", text)
    text = re.sub(r"tests/(\w+)/(pairwise|feature_graph)(\w*)\.rs",
                  lambda m: f"tests/{m[1]}/{MODULES[m[2]]}{m[3]}.rs", text)
    text = re.sub(r"tests/(\w+)/(cotraining|training)(\w*)(\.rs|/)",
                  lambda m: f"tests/{m[1]}/{MODULES[m[2]]}{m[3]}{m[4]}", text)
    if path in ABOUT_CRATES:
        for old, new in CRATES.items():
            if (old, path) != ("training", "CONTRIBUTING.md"):  # the group of tests stays
                text = re.sub(rf"(?<!, )`{old}`(?! \| arm)", f"`{new}`", text)
    return text


def main():
    listed = subprocess.run(["git", "ls-files", "-z"], capture_output=True, text=True, check=True)
    for path in filter(None, listed.stdout.split("\0")):
        fixed = path.startswith(("vectors/", "fuzz/seeds/", "data/", "scripts/names.py"))
        if (fixed and not path.endswith(".py")) or path in ("CHANGELOG.md", "scripts/names.py"):
            continue
        file = pathlib.Path(path)
        try:
            before = file.read_text()
        except (UnicodeDecodeError, IsADirectoryError):
            continue
        text = crates(before)
        if path.endswith(".rs"):
            text = rust(path, text)
        if path.startswith(("fuzz/", "tests/src/fuzz/")):
            text = fuzz(text)
        if path.endswith((".md", ".toml")):
            text = document(path, text)
        text = re.sub(r"examples/python/(cotraining|training)\.py",
                      lambda m: f"examples/python/{MODULES[m[1]]}.py", text)
        if text != before:
            file.write_text(text)


if __name__ == "__main__":
    main()
