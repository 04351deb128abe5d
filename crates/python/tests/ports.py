"""Ports for servers on this machine."""

from __future__ import annotations

import secrets
import socket


def free_port() -> int:
    """A free port below those that systems give to whoever asks for any port.

    No other connection takes it before a server listens on it.
    """
    while True:
        port = 12_000 + secrets.randbelow(20_000)
        with socket.socket() as one:
            if one.connect_ex(("127.0.0.1", port)):
                return port
