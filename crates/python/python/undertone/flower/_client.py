"""The mod of the ClientApp: updates leave the node only inside a secure mean."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from logging import ERROR, WARNING, getLogger
from typing import TYPE_CHECKING, Any

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, RecordDict
from numpy.typing import NDArray

from .. import _arrays, _checks, _engine
from .._party import Path
from .._sum import SumClient
from . import _state, _wire
from ._state import RecordChoice, TrainingError
from ._wire import TRAINS, Terms, Told

if TYPE_CHECKING:
    from flwr.clientapp.typing import ClientAppCallable, Mod

STATE = "undertone.sum"
PLACE = "undertone.groups"
CLIPPED = "undertone-clipped"
"""A metric that the mod adds by itself: 1 if some value was clipped, else 0."""

_log = getLogger("undertone")


@dataclass(frozen=True)
class _Agreed:
    """What this client agrees to, whatever the server asks for."""

    clip: float
    max_weight: float
    min_clients: int
    metrics: frozenset[str]
    weighted_by: str
    bits: int | None
    malicious_server: bool
    suite: str
    groups: int | None
    key: Path | None
    roster: Path | None
    record: RecordChoice
    journal: Path | None

    def word_bits(self, terms: Terms) -> int:
        """The bits of a word: those that are stated, or what the limits need."""
        if self.bits is not None:
            return self.bits
        return _engine.word_bits(self.clip, self.max_weight, terms.number("clients"))

    def check(self, terms: Terms) -> None:
        """Raises :class:`undertone.RefusedError` for other rules than the client's own."""
        if len(set(terms.texts("metrics"))) != len(terms.texts("metrics")):
            raise Told("the server names a metric twice")
        same: list[tuple[str, object, object]] = [
            ("clip", terms.real("clip"), self.clip),
            ("max_weight", terms.real("max-weight"), self.max_weight),
            ("bits", terms.number("bits"), self.word_bits(terms)),
            ("malicious_server", terms.flag("malicious-server"), self.malicious_server),
            ("weighted_by", terms.text("weighted-by"), self.weighted_by),
            ("suite", terms.text("suite"), self.suite),
        ]
        for name, theirs, ours in same:
            if theirs != ours:
                raise Told(
                    f"the server asks for {name} {theirs!r}, this client agrees to {ours!r}; give "
                    "SecureGrid and secure() the same value"
                )
        fewest, clients = terms.number("min-clients"), terms.number("clients")
        if fewest < self.min_clients or clients < self.min_clients:
            raise Told(
                f"the server sums over {clients} clients, {fewest} at least; this client asks for "
                f"{self.min_clients} (min_clients)"
            )
        _wire.check_groups(
            terms.number("groups") or None, self.groups, "weight, and arrays that hardly change"
        )
        for metric in terms.texts("metrics"):
            if metric not in self.metrics:
                raise Told(
                    f"the server asks for the metric {metric!r}, this client allows "
                    f"{', '.join(sorted(self.metrics)) or 'none'} (metrics)"
                )


def secure(
    *,
    clip: float,
    max_weight: float,
    min_clients: int = 3,
    metrics: Iterable[str] = (),
    weighted_by: str = "num-examples",
    bits: int | None = None,
    malicious_server: bool = False,
    suite: str = "aes128ctr",
    groups_at_least: int = 5,
    allow_free_sampling: bool = False,
    evaluate: str = "refuse",
    key: Path | None = None,
    roster: Path | None = None,
    record: RecordChoice = None,
    journal: Path | None = None,
) -> Mod:
    """A mod for the ClientApp: training updates leave the node only inside a secure mean.

    The server learns the weighted mean over all contributors and the total weight. From one round
    it learns no client's arrays, metrics or weight; from many rounds, sums over fixed groups of
    clients. Write
    ``ClientApp(mods=[secure(...)])``, and wrap the ServerApp's grid in :class:`SecureGrid` with the
    same ``clip``, ``max_weight``, ``bits``, ``weighted_by``, ``suite`` and ``malicious_server``.
    The arguments are this client's terms. A server that asks for anything else is refused.

    ============================  ==================================================================
    ``clip``                      largest magnitude of a value; larger ones are moved to it, and the
                                  node's log gives their number
    ``max_weight``                largest weight of a client
    ``min_clients``               fewest contributors of a mean
    ``metrics``                   names of training metrics that may travel inside the mean; they
                                  are clipped, too. All others stay on the node.
                                  ``"undertone-clipped"`` is 1 if this client clipped, else 0.
    ``weighted_by``               name of the metric that is the weight
    ``bits``                      of a word, 32 or 64. 32 halves the bytes. The default is that of
                                  :class:`SecureGrid`.
    ``malicious_server``          True: the means stay private if the server lies about who dropped
                                  out. Needs ``key`` and ``roster``.
    ``groups_at_least``           fewest clients of a group. A group contributes whole or not at
                                  all.
    ``allow_free_sampling``       True: any clients may contribute. From many rounds the server then
                                  learns all weights, and arrays that are constant at a client.
    ``evaluate``                  ``"refuse"``: evaluation, queries and whatever is not training are
                                  refused, because their replies are in the clear. ``"clear"``: they
                                  are passed on.
    ``key``, ``roster``           paths of this node's ``client.key`` and of ``roster.toml``. The
                                  node config entries ``undertone-key`` and ``undertone-roster``
                                  come first.
    ``record``                    the :class:`undertone.Record` of this node's data, its name, or
                                  :data:`SIMULATED`. The node config entries ``undertone-record``
                                  (a name) and ``undertone-records`` (the folder of records) come
                                  first. The default is the client's name on its own roster, if it
                                  has ``key`` and ``roster``. Without a record the node takes no
                                  part.
    ``journal``                   a folder on disk that survives the process. The node config entry
                                  ``undertone-journal`` comes first. The default is ``journal`` in
                                  the folder of the record, or ``undertone/journal`` in the user's
                                  state folder if the record is in memory.
    ============================  ==================================================================

    The record has digests of all updates that this node has sent. The node refuses to send exactly
    the same update again, whatever its node id and the run: if one mean has another contributor
    more, their difference is that contributor's update.

    The mod protects all messages only where it is given to the ClientApp. As
    ``@app.train(mods=[secure(...)])`` it sees no evaluation and no query.

    What a client must never do is to take part in one session twice with one seed, for two sets of
    contributors. So each message is noted in the journal before its reply leaves. Without its
    journal a session is refused; the next round is a new session.
    """
    if evaluate not in ("refuse", "clear"):
        raise ValueError(f"evaluate is {evaluate!r}; it is 'refuse' or 'clear'")
    agreed = _Agreed(
        _checks.positive("clip", clip),
        _checks.positive("max_weight", max_weight),
        _checks.whole("min_clients", min_clients, least=2),
        frozenset(metrics),
        _checks.text("weighted_by", weighted_by),
        None if bits is None else _checks.word("bits", bits),
        _checks.flag("malicious_server", malicious_server),
        _checks.text("suite", suite),
        None
        if _checks.flag("allow_free_sampling", allow_free_sampling)
        else _checks.whole("groups_at_least", groups_at_least),
        key,
        roster,
        _state.check_record(record),
        journal,
    )

    def mod(message: Message, context: Context, call_next: ClientAppCallable) -> Message:
        return _state.own(lambda: replied(message, context, call_next), "the mod secure()")

    def replied(message: Message, context: Context, call_next: ClientAppCallable) -> Message:
        category, _, action = message.metadata.message_type.partition(".")
        if category == "train":
            return _take(agreed, message, context, call_next)
        if category == "query" and _wire.is_ours(action):
            reply = call_next(message, context)
            if reply.has_content() and _wire.without_ours(reply.content):
                raise Told(f"the handler of {action!r} replies in the clear; client() does not")
            return reply
        if evaluate != "clear":
            raise Told(
                f"replies to {category!r} messages are in the clear; this client refuses them. "
                "Evaluate on the server, or write secure(..., evaluate='clear')"
            )
        return call_next(message, context)

    return mod


def _take(
    agreed: _Agreed, message: Message, context: Context, call_next: ClientAppCallable
) -> Message:
    """Takes one message of a round."""
    terms = Terms(
        message.content,
        "the server asks for an update in the clear; wrap the ServerApp's grid in SecureGrid",
    )
    if terms.text("kind") != "sum":
        raise Told(f"a training message is of kind {terms.text('kind')!r}, not 'sum'")
    agreed.check(terms)
    kept = _state.Kept.load(context, STATE, terms)
    step, metrics = terms.number("step"), terms.texts("metrics")
    clients, index, signing = terms.number("clients"), terms.number("index"), None
    if agreed.malicious_server:
        signing = _state.identity(context, agreed.key, agreed.roster)
        index = signing.index
        if clients != len(signing.public_keys):
            raise Told(
                f"the server's roster has {clients} clients, this node's "
                f"{len(signing.public_keys)}; all parties need the same roster.toml"
            )
    if agreed.groups is not None:
        _check_place(context, [clients, terms.number("groups"), index])
    record = _state.record(context, agreed.record, agreed.key, agreed.roster)
    party = SumClient(
        index,
        session=kept.session,
        clients=clients,
        size=terms.number("size"),
        bound=agreed.clip,
        max_weight=agreed.max_weight,
        clip=True,
        bits=agreed.word_bits(terms),
        min_clients=terms.number("min-clients"),
        malicious_server=agreed.malicious_server,
        suite=agreed.suite,
        groups=terms.number("groups") or None,
        about=terms.digest("about"),
        key=None if signing is None else signing.key,
        public_keys=None if signing is None else signing.public_keys,
        record=record,
        seed=kept.seed,
    )

    def values() -> tuple[Sequence[NDArray[Any]], float, int]:
        if step != TRAINS:
            raise Told(f"values are due in message {TRAINS}, this is message {step}")
        sent = _only_arrays(_wire.without_ours(message.content), "the server's message")
        # The masks are bound to this: the others add the same arrays and metrics in this order.
        if _wire.about(sent, metrics, agreed.weighted_by) != terms.digest("about"):
            raise Told("the arrays or metrics are not those that the server named at the beginning")
        arrays, weight = _train(
            agreed, message, context, call_next, terms.number("size"), metrics
        )
        # The server chooses the metrics, which are the last array.
        return arrays, weight, len(arrays) - 1

    folder = _state.journal(context, agreed.journal, "sum", record)
    if step == 0:
        _state.clean(folder, kept.session)
    bundle = _wire.carried(message.content)
    reply = party.replay(folder, kept.past, bundle, values, sent=kept.sent)
    if party.done:
        kept.forget(terms)
    else:
        kept.save(terms, bundle, party.sent)
    _state.keep(context, record)
    content = RecordDict({_wire.TERMS: ConfigRecord({"index": index})})
    return Message(_wire.carry(content, reply), reply_to=message)


def _check_place(context: Context, place: list[int]) -> None:
    """Raises :class:`Told` if groups, or this client's place among them, change within a run."""
    if PLACE not in context.state:
        context.state[PLACE] = ConfigRecord({"place": place})
    elif context.state.config_records[PLACE]["place"] != place:
        raise Told(
            "the server forms other groups than before in this run: sums over both would tell "
            "sums over parts of them. Start another run"
        )


def _train(
    agreed: _Agreed,
    message: Message,
    context: Context,
    call_next: ClientAppCallable,
    size: int,
    metrics: list[str],
) -> tuple[Sequence[NDArray[Any]], float]:
    """The arrays and metrics that training gives, and their weight."""
    whole = message.content
    message.content = _wire.without_ours(whole)
    sent = _only_arrays(message.content, "the server's message")
    try:
        trained = call_next(message, context)
    except Exception:
        _log.log(ERROR, "training failed; this node drops out of the round", exc_info=True)
        raise TrainingError("training failed; the log of the node has the reason") from None
    finally:
        message.content = whole
    if trained.has_error():
        _log.log(ERROR, "training failed; this node drops out: %s", trained.error.reason)
        raise TrainingError("training failed; the log of the node has the reason")
    arrays = _values(sent, _only_arrays(trained.content, "the reply of the train function"))
    weight, measured = _metrics(agreed, trained.content, metrics)
    broken = _not_finite([*zip(sent, arrays, strict=True), *zip(metrics, measured, strict=True)])
    if broken:
        _log.log(ERROR, "training gave values that are not finite; this node drops out: %s", broken)
        raise TrainingError("training gave no usable update; the log of the node has the reason")
    clipped = sum(int(np.count_nonzero(np.abs(array) > agreed.clip)) for array in arrays)
    clipped += int(np.count_nonzero(np.abs(measured) > agreed.clip))
    if clipped:
        _log.log(WARNING, "%d of %d values were clipped to %g", clipped, size, agreed.clip)
    if CLIPPED in metrics:
        # At most the clip. The server scales it back.
        measured[metrics.index(CLIPPED)] = min(1.0, agreed.clip) * (clipped > 0)
    arrays.append(measured)
    have = sum(array.size for array in arrays)
    if have != size:
        raise Told(
            f"the server sums {size} values, this client has {have}: "
            f"{have - len(metrics)} of arrays and {len(metrics)} metrics"
        )
    return arrays, weight


def _not_finite(values: Iterable[tuple[str, Any]]) -> str:
    """The first value that is NaN or infinite, with its place, for the log of this node."""
    for name, one in values:
        wrong = np.argwhere(~np.isfinite(one))
        if len(wrong):
            place = [int(at) for at in wrong[0]]
            return f"{name!r} at {place} is {np.asarray(one)[tuple(place)]}"
    return ""


def _only_arrays(content: RecordDict, what: str) -> ArrayRecord:
    records = list(content.array_records.values())
    if len(records) != 1:
        raise ValueError(f"{what} has {len(records)} ArrayRecords; a secure mean takes one")
    return records[0]


def summable(name: str, array: Array) -> None:
    """Raises ``ValueError`` for an array that has no mean."""
    kind = np.dtype(array.dtype)
    if kind.kind not in "fiu" or kind == np.uint8:
        raise ValueError(
            f"array {name!r} is of {array.dtype}; a secure mean takes numbers: float16 to float64, "
            "integers of 16 bits or more. Leave it out, or send x.astype(numpy.float32)"
        )


def _values(sent: ArrayRecord, trained: ArrayRecord) -> list[NDArray[Any]]:
    """The trained arrays in the order in which the server sent them."""
    if set(sent) != set(trained):
        odd = sorted(set(sent) ^ set(trained))
        raise ValueError(
            f"the train function must return the arrays that the server sent; {odd[0]!r} is on one "
            "side only"
        )
    values = []
    for name, like in sent.items():
        array = trained[name]
        summable(name, array)
        if tuple(array.shape) != tuple(like.shape):
            raise ValueError(
                f"array {name!r} has shape {tuple(array.shape)}, the server sent "
                f"{tuple(like.shape)}"
            )
        # Integers, such as the counters of layers, become floats, and their mean is rounded.
        values.append(_arrays.floats(array.numpy(), f"array {name!r} is"))
    return values


def _metrics(
    agreed: _Agreed, content: RecordDict, names: list[str]
) -> tuple[float, NDArray[np.float64]]:
    """The weight, and the metrics that the server asked for."""
    records = list(content.metric_records.values())
    if len(records) != 1:
        raise ValueError(
            f"the reply of the train function has {len(records)} MetricRecords; it needs one, with "
            f"{agreed.weighted_by!r}"
        )

    def number(name: str) -> float:
        value = records[0].get(name)
        if not isinstance(value, (int, float)):
            raise ValueError(f"the train function returned no number as metric {name!r}")
        return float(value)

    weight = number(agreed.weighted_by)
    if not 0 <= weight <= agreed.max_weight:
        raise ValueError(
            f"the weight ({agreed.weighted_by}) must be from 0 to max_weight, "
            f"{agreed.max_weight:g}; raise max_weight on both sides"
        )
    values = [0.0 if name == CLIPPED else number(name) for name in names]
    return weight, np.array(values, np.float64)
