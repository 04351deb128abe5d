"""The vectors of transfers: docs/spec/transfers.md."""
from .primitives import need, number, pieces, unhex, xor
from .reasons import refused_by
from .transfers import (Context, Extension, base_chosen, base_offer, base_reply, batch_words, block,
                        check_proof, mmo, reply_point, setup_length, tmmo, universal, whole)


def hash_case(case):
    if case["hash"] == "universal":
        made = universal(number(unhex(case["point"])),
                         [number(unhex(word)) for word in case["words"]])
        yield "digest", made.to_bytes(8, "little").hex(), case["digest"]
        return
    key = Context(unhex(case["session"]), b"test", case["sender"],
                  case["receiver"]).permutation(case["purpose"], case["index"])
    blocks = unhex("".join(case["blocks"]))
    tweaks = range(case["tweak"], case["tweak"] + len(case["blocks"]))
    yield "key", key.hex(), case["key"]
    yield "MMO", mmo(key, blocks).hex(), "".join(case["mmo"])
    yield "TMMO", tmmo(key, blocks, tweaks).hex(), "".join(case["tmmo"])


def base_parts(case):
    context = Context(unhex(case["session"]), b"test", 0, 1)
    return context, number(unhex(case["choices"])), [unhex(seed) for seed in case["seeds"]]


def base_case(case):
    context, choices, seeds = base_parts(case)
    offer = base_offer(context, choices, seeds[0])
    yield "offer", offer.hex(), case["offer"]
    keys, reply = base_reply(context, offer, seeds[1])
    yield "reply", reply.hex(), case["reply"]
    yield "zeros", b"".join(pair[0] for pair in keys).hex(), case["zeros"]
    yield "ones", b"".join(pair[1] for pair in keys).hex(), case["ones"]
    chosen = base_chosen(context, choices, seeds[0], offer, reply)
    yield "chosen", b"".join(chosen).hex(), case["chosen"]


def base_refused(vectors, entry):
    case = vectors["cases"][entry["case"]]
    context, _, seeds = base_parts(case)
    honest, changed = unhex(case[entry["field"]]), unhex(entry["message"])
    if entry["field"] == "offer":
        refused_by(entry, lambda offer: base_reply(context, offer, seeds[1]), (honest,), (changed,))
    else:
        refused_by(entry, reply_point, (honest,), (changed,))
    return ()


def made_of(case):
    seeds = [unhex(seed) for seed in case["seeds"]]
    return Extension(unhex(case["session"]), b"test", 0, 1, seeds, case["field"], case["malicious"])


def extension_case(case):
    made = made_of(case)
    yield "delta", block(made.delta).hex(), case["delta"]
    yield "offer", made.offer.hex(), case["offer"]
    yield "setup", made.setup.hex(), case["setup"]
    for index, batch in enumerate(case["batches"]):
        what, count = f"batch {index}, ", batch["count"]
        first, got = made.transfers, made.batch(count)
        yield what + "corrections", got.corrections.hex(), batch["corrections"]
        yield what + "challenge", got.challenge.hex(), batch["challenge"]
        yield what + "proof", got.proof.hex(), batch["proof"]
        bits, keys, zeros, ones = got.choices, got.chosen, got.zeros, got.ones
        random = [made.randomise(part, first) for part in (zeros, ones)]
        at = lambda data, t: data[16 * t:16 * t + 16]
        chosen = lambda both: b"".join(at(both[bits >> t & 1], t) for t in range(count)).hex()
        yield what + "choices", whole(bits, count).hex(), batch["choices"]
        yield what + "zeros", zeros.hex(), batch["zeros"]
        yield what + "chosen", keys.hex(), batch["chosen"]
        yield what + "correlation", chosen((zeros, ones)), keys.hex()
        yield what + "random zeros", random[0].hex(), batch["random_zeros"]
        yield what + "random ones", random[1].hex(), batch["random_ones"]
        yield what + "random chosen", chosen(random), batch["random_chosen"]


def check_extension(case, field, message):
    """The sender's checks of the setup and of the first batch."""
    made, batch = made_of(case), case["batches"][0]
    due = {"setup": made.setup, "corrections": unhex(batch["corrections"]),
           "proof": unhex(batch["proof"])}
    due[field] = message
    need(len(due["setup"]) == setup_length(made.f, made.malicious), "a setup of another length")
    reply_point(due["setup"][:32])
    words = batch_words(batch["count"], made.malicious)
    need(len(due["corrections"]) == 8 * words * (len(made.leaves) - 1),
         "corrections of another length")
    ws = made.sender_rows(64 * words, due["setup"][32:], due["corrections"])
    check_proof(number(unhex(batch["challenge"])), made.delta, ws, due["proof"], 0, words)


def extension_refused(vectors, entry):
    case, field = vectors["cases"][entry["case"]], entry["field"]
    honest = case["setup"] if field == "setup" else case["batches"][0][field]
    refused_by(entry, check_extension, (case, field, unhex(honest)),
               (case, field, unhex(entry["message"])))
    return ()


def chosen_case(case):
    wanted, random = unhex(case["wanted"]), unhex(case["random_choices"])
    keys = [pieces(unhex(case[name]), 16) for name in ("random_zeros", "random_ones")]
    changes = xor(wanted, random)
    yield "changes", changes.hex(), case["changes"]
    offered = opened = b""
    for t, pair in enumerate(pieces(unhex(case["messages"]), 32)):
        d, want, got = (number(words) >> t & 1 for words in (changes, wanted, random))
        sent = [xor(pair[:16], keys[d][t]), xor(pair[16:], keys[1 - d][t])]
        offered += b"".join(sent)
        opened += xor(sent[want], keys[got][t])
    yield "offered", offered.hex(), case["offered"]
    yield "opened", opened.hex(), case["opened"]


def check_chosen(count, field, message):
    due = {"changes": 8 * -(-count // 64), "offered": 32 * count}[field]
    need(len(message) == due, f"{len(message)} bytes, {due} are due")


def chosen_refused(vectors, entry):
    case, field = vectors["cases"][entry["case"]], entry["field"]
    count = len(unhex(case["random_zeros"])) // 16
    refused_by(entry, check_chosen, (count, field, unhex(case[field])),
               (count, field, unhex(entry["message"])))
    return ()


CHECKS = {
    "base-transfer": (base_case, base_refused),
    "chosen-transfer": (chosen_case, chosen_refused),
    "extension": (extension_case, extension_refused),
    "hash": (hash_case, None),
}
