"""Secure means and jobs of all applications on `Flower <https://flower.ai>`_.

================================  ==============================================================
:class:`SecureGrid`               for the ServerApp: strategies see only the secure mean
:func:`secure`                    for the ClientApp: updates leave only inside a secure mean
:func:`client`                    for the ClientApp: takes part in jobs
:func:`label`                     for the ServerApp: labels the rows of all nodes
:func:`train`                     for the ServerApp: trains a model with propagated labels
:func:`serve`                     for the ServerApp: a job of any application, on a connection of
                                  its own
================================  ==============================================================

A user changes two lines::

    app = ClientApp(mods=[secure(clip=4.0, max_weight=1000.0)])             # client_app.py
    grid = SecureGrid(grid, clip=4.0, max_weight=1000.0, strategy=strategy)  # server_app.py

Each side states the rules. A client refuses a server with other rules, and a server that asks for
an update in the clear.

Each node has a record of what its data have answered, and refuses a second answer. Its owner makes
the record before the first run (``undertone record new NAME``), and starts the SuperNode with
``--node-config 'undertone-record="NAME"'``. In a simulation write ``record=SIMULATED``.

Flower starts a new process for each message. So a client keeps its seed and the frames that came in
``context.state``, and runs its party again for each message. Each step is noted in a journal on
disk before its reply leaves.
"""

from ._client import CLIPPED, secure
from ._grid import Round, SecureGrid
from ._jobs import client
from ._label import LabelRound, label
from ._serve import Served, serve
from ._state import SIMULATED, TrainingError
from ._train import TrainRun, train
from ._wire import Exchange

__all__ = [
    "CLIPPED",
    "SIMULATED",
    "Exchange",
    "LabelRound",
    "Round",
    "SecureGrid",
    "Served",
    "TrainRun",
    "TrainingError",
    "client",
    "label",
    "secure",
    "serve",
    "train",
]
