#!/usr/bin/env python3
"""Recomputes the vectors with the Python standard library alone. Arguments name operations."""
import json
import pathlib
import sys
import traceback

sys.dont_write_bytecode = True
from checks import (cells, codes, cotrain, extension, fedgraph, garble, graph_network, jobs,
                    labels_refused, lwe, messages, paillier, phe, psm, pssl, rounds, scaling,
                    schema, series, shade, sharing, sums, train)

HERE = pathlib.Path(__file__).resolve().parent
NOT_COMPUTED = {"digest": "digests of whole transcripts, not computed again"}
CHECKS = {}
for module in (cells, codes, cotrain, extension, fedgraph, garble, graph_network, jobs,
               labels_refused, lwe, messages, paillier, phe, psm, pssl, rounds, scaling, series,
               shade, sharing, sums, train):
    CHECKS |= module.CHECKS


def counted(count, what):
    return f"{count} {what if count == 1 else what + 's'}"


def differences(what, check, *arguments):
    """The names of the values that differ, or the error that ended the check."""
    try:
        names = [name for name, made, held in check(*arguments) if made != held]
    except Exception as error:
        names = [
            f"{type(error).__name__}: {error} {traceback.extract_tb(error.__traceback__)[-1][1:3]}"
        ]
    return [f"{what}: {name}" for name in names]


def check_file(operation):
    """The errors of a file, and a summary of what was checked."""
    path = HERE / f"{operation}.json"
    vectors = json.loads(path.read_text())
    validator = schema.Validator(json.loads((HERE / "schema" / path.name).read_text()))
    wrong = [f"schema: {error}" for error in validator.errors(vectors)]
    cases, refused = vectors.get("cases", []), vectors.get("refused", [])
    if vectors.get("operation") != operation:
        wrong.append("the operation is another")
    if wrong:
        return wrong, ""
    if operation in NOT_COMPUTED:
        return wrong, f"{counted(len(cases), 'case')}: {NOT_COMPUTED[operation]}"
    case_check, refused_check = CHECKS[operation]
    for i, case in enumerate(cases):
        wrong += differences(f"case {i}", case_check, case)
    for i, entry in enumerate(refused):
        what = f"refused {i} ({entry.get('comment', entry.get('check'))})"
        wrong += differences(what, refused_check, vectors, entry)
    return wrong, f"{counted(len(cases), 'case')}, {len(refused)} refused"


def main():
    files = {path.stem for path in HERE.glob("*.json")}
    known = {*CHECKS, *NOT_COMPUTED}
    names, failed = sys.argv[1:] or sorted(files | known), False
    for name in names:
        if name not in files:
            wrong, summary = ["there is no such file"], ""
        elif name not in known:
            wrong, summary = ["there is no checker"], ""
        else:
            try:
                wrong, summary = check_file(name)
            except (OSError, ValueError) as error:
                wrong, summary = [str(error)], ""
        failed |= bool(wrong)
        print(f"FAIL {name}: {'; '.join(wrong)}" if wrong else f"ok   {name}: {summary}",
              flush=True)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
