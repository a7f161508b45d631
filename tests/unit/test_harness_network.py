"""A network of one's own: its ports are nobody else's, and it is over in the end."""

from __future__ import annotations

import socket

import pytest

from harness.network import own_network


@pytest.mark.root
def test_the_same_port_is_free_in_it_and_taken_again_afterwards() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with own_network():
            with socket.create_server(("127.0.0.1", port)) as inside:
                socket.create_connection(inside.getsockname()).close()
        with pytest.raises(OSError, match="in use"):
            socket.create_server(("127.0.0.1", port))
