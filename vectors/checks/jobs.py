"""Jobs: the digest of all fields, and the contexts of sessions. See docs/spec/jobs.md."""
import hashlib
import struct

from .primitives import double, ids, unhex


def text(value):
    data = value.encode()
    return ids(len(data)) + data


def encoded(value):
    """A value. Floats are reals, ints are whole numbers."""
    if value is None:
        return b"\0"
    if isinstance(value, bool):
        return bytes([1, value])
    if isinstance(value, int):
        return struct.pack("<BQ", 2, value)
    if isinstance(value, float):
        return struct.pack("<Bd", 3, value or 0.0)
    if isinstance(value, str):
        return b"\4" + text(value)
    return b"\5" + ids(len(value)) + b"".join(map(text, value))


def named(name):
    data = name.encode()
    return bytes([len(data)]) + data


def digest(application, fields):
    data = b"undertone/v1/job" + named(application) + ids(len(fields))
    for key in sorted(fields, key=str.encode):
        data += named(key) + encoded(fields[key])
    return hashlib.sha256(data).digest()


def context(session, of_job, more=b""):
    return hashlib.sha256(b"undertone/v1/context" + session + of_job + more).digest()


def fields_of(job):
    """The fields of a job in the vectors."""
    return {key: double(value["real"]) if isinstance(value, dict) else value
            for key, value in job["fields"].items()}


def job_case(case):
    made = digest(case["application"], fields_of(case["job"]))
    yield "digest", made.hex(), case["job"]["digest"]
    found = context(unhex(case["session"]), made, unhex(case["more"]))
    yield "context", found.hex(), case["context"]


CHECKS = {"job": (job_case, None)}
