"""Seals, signatures, frames, hellos and rosters."""
import struct

from . import curve
from .primitives import (agree, canonical, chacha20, derive, ids, low_order, need, number, public,
                         seal, stream, unhex, xor)
from .reasons import refused_by


class Reader:
    """The unread rest of a payload."""

    def __init__(self, data):
        self.data = data

    def take(self, count):
        need(len(self.data) >= count, f"{count} bytes are due, {len(self.data)} are left")
        out, self.data = self.data[:count], self.data[count:]
        return out

    def number(self, size):
        return number(self.take(size))

    def below(self, size, limit):
        out = self.number(size)
        need(out < limit, f"{out} is not below {limit}")
        return out

    def end(self):
        need(not self.data, "bytes are left")


# Seals.

def sealed(session, pair, from_, to, count, text):
    """Seals message number `count` of this direction."""
    key = derive(pair, session, "seal", ids(from_, to))
    return seal(key, struct.pack("<IQ", 0, count), text, session + ids(from_, to))


def opened(session, pair, from_, to, count, data):
    """Opens a message. The cipher is its own inverse, and sealing again gives the tag."""
    need(len(data) >= 16, "shorter than a tag")
    key, nonce = derive(pair, session, "seal", ids(from_, to)), struct.pack("<IQ", 0, count)
    text = xor(data[:-16], chacha20(key, 64 + len(data) - 16, nonce)[64:])
    need(sealed(session, pair, from_, to, count, text) == data, "a message does not open")
    return text


def bits(flags):
    """The bits of a set."""
    out = bytearray(-(-len(flags) // 8))
    for place, flag in enumerate(flags):
        out[place // 8] |= flag << place % 8
    return bytes(out)


def flags(data, count):
    need(len(data) == -(-count // 8), "a set of another length")
    need(number(data) >> count == 0, "a set names clients beyond the roster")
    return [bool(number(data) >> place & 1) for place in range(count)]


# Signatures.

def signed_text(session, purpose, body):
    return b"undertone/v1/" + purpose.encode() + session + body


def sign(secret, session, purpose, body):
    return curve.ed_sign(secret, signed_text(session, purpose, body))


def verify(key, session, purpose, body, signature):
    curve.ed_verify(key, signed_text(session, purpose, body), signature)


# Hellos and rosters.

def hello(session, purpose, client, keys, advertisement, identity=None):
    out = keys + bytes([len(advertisement)]) + advertisement
    if identity is None:
        return out + b"\0"
    return out + b"\1" + sign(identity, session, purpose, ids(client) + keys + advertisement)


def read_hello(reader, keys):
    """Keys of 32 bytes each, advertisement, signature."""
    public_keys = [reader.take(32) for _ in range(keys)]
    need(all(map(canonical, public_keys)), "a key that is not canonical")
    need(not any(map(low_order, public_keys)), "a key of low order")
    advertisement = reader.take(reader.number(1))
    signature = reader.take(64) if reader.below(1, 2) else None
    return public_keys, advertisement, signature


def hello_alone(data, keys):
    reader = Reader(data)
    out = read_hello(reader, keys)
    reader.end()
    return out


def roster(hellos, clients=None):
    """The roster of these clients, in default 0, 1, …"""
    entries = zip(clients or range(len(hellos)), hellos, strict=True)
    return ids(len(hellos)) + b"".join(ids(client) + data for client, data in entries)


def read_roster(reader, keys):
    """The number and the hello of each client."""
    count = reader.number(4)
    need(count * (4 + 32 * keys + 2) <= len(reader.data),
         "a roster announces more clients than there is room for")
    return {reader.number(4): read_hello(reader, keys) for _ in range(count)}


def check_roster(data, keys, me, mine, session=None, purpose=None, pinned=None):
    """Client `me`, which sent the hello `mine`, checks a roster. `pinned` holds the public
    identities."""
    reader = Reader(data)
    entries = read_roster(reader, keys)
    reader.end()
    order, count = list(entries), number(data[:4])
    need(order == sorted(order) and len(order) == count, "a roster out of order")
    need(me in entries and entries[me][:2] == hello_alone(mine, keys)[:2],
         "the roster lacks the receiver's hello")
    distinct(entry[0] for entry in entries.values())
    for client, key in (pinned or {}).items():
        need(client in entries and entries[client][2], f"client {client} has not signed")
        body = ids(client) + b"".join(entries[client][0]) + entries[client][1]
        verify(key, session, purpose, body, entries[client][2])
    return entries


def distinct(keys):
    seen = [key for pair in keys for key in pair]
    need(len(set(seen)) == len(seen), "a key twice")


# Frames.

def frame(session, kind, phase, from_, to, count, depth, payload):
    header = struct.pack("<2s3B3x5I4x", b"UT", 1, kind, phase, from_, to, count, depth,
                         len(payload))
    return header + session + payload


def read_frame(data, limit):
    need(len(data) >= 64, "a header that is cut")
    mark, version, kind, phase, zero, *numbers, zeros, session = struct.unpack(
        "<2s3B3s5I4s32s", data[:64])
    need(mark == b"UT" and version == 1 and kind < 2 and not any(zero), "no frame of version 1")
    need(not any(zeros) and numbers[4] == len(data) - 64, "a payload of another length")
    need(numbers[4] <= limit, "a payload that is too long")
    need(kind == 0 or numbers[4] == 0, "an abort with a payload")
    return session, kind, phase, *numbers[:4], data[64:]


# Checks.

def stream_case(case):
    held = unhex(case["bytes"])
    yield "bytes", stream(case["suite"], unhex(case["seed"]), len(held)), held


def derivation_case(case):
    made = derive(unhex(case["seed"]), unhex(case["session"]), case["purpose"], ids(*case["ids"]))
    yield "derived", made.hex(), case["derived"]


def agreement_case(case):
    session = unhex(case["session"])
    secrets = [unhex(key) for key in case["secret_keys"]]
    yield "public keys", [public(key).hex() for key in secrets], case["public_keys"]
    for a, b in (secrets, secrets[::-1]):
        yield "agreed", agree(session, case["purpose"], a, public(b)).hex(), case["agreed"]


def agreement_refused(vectors, entry):
    secret = unhex(entry["secret_key"])
    refused_by(entry, agree, (bytes(32), "pair", secret, public(secret)),
               (bytes(32), "pair", secret, unhex(entry["public_key"])))
    return ()


def seal_case(case):
    session, pair = unhex(case["session"]), unhex(case["pair_secret"])
    for from_, to, messages in ((3, 1, case["there"]), (1, 3, case["back"])):
        for count, (text, data) in enumerate(messages):
            made = sealed(session, pair, from_, to, count, unhex(text))
            yield f"message {count}", made.hex(), data
            read = opened(session, pair, from_, to, count, unhex(data))
            yield f"opened {count}", read.hex(), text


def seal_refused(vectors, entry):
    case = vectors["cases"][0]
    key = unhex(entry["session"]), unhex(entry["pair_secret"]), 3, 1, entry["number"]
    honest = unhex(case["there"][entry["number"]][1])
    both = [[of["session"], of["pair_secret"]] for of in (entry, case)]
    yield "the key", *both
    refused_by(entry, opened, (*key, honest), (*key, unhex(entry["sealed"])))


def signature_case(case):
    session, body, secret = unhex(case["session"]), unhex(case["body"]), unhex(case["secret_key"])
    yield "public key", curve.ed_public(secret).hex(), case["public_key"]
    yield "signature", sign(secret, session, case["purpose"], body).hex(), case["signature"]
    verify(unhex(case["public_key"]), session, case["purpose"], body, unhex(case["signature"]))


def signature_refused(vectors, entry):
    parts = lambda case: (unhex(case["public_key"]), unhex(case["session"]), case["purpose"],
                          unhex(case["body"]), unhex(case["signature"]))
    refused_by(entry, verify, parts(vectors["cases"][0]), parts(entry))
    return ()


def frame_case(case):
    session, payload = unhex(case["session"]), unhex(case["payload"])
    fields = *(case[name] for name in ("kind", "phase", "from", "to", "number", "depth")), payload
    yield "frame", frame(session, *fields).hex(), case["frame"]
    yield "read again", read_frame(unhex(case["frame"]), len(payload)), (session, *fields)


def frame_refused(vectors, entry):
    honest = unhex(vectors["cases"][0]["frame"])
    refused_by(entry, read_frame, (honest, entry["max_payload"]),
               (unhex(entry["frame"]), entry["max_payload"]))
    return ()


CHECKS = {
    "agreement": (agreement_case, agreement_refused),
    "derivation": (derivation_case, None),
    "frame": (frame_case, frame_refused),
    "seal": (seal_case, seal_refused),
    "signature": (signature_case, signature_refused),
    "stream": (stream_case, None),
}
