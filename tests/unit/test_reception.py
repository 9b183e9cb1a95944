"""What a reception passes on of a read, over a real socket that it finds as the exchange would."""

import asyncio
import select
import socket

import pytest

from harness.client.reception import Reception
from harness.client.stamped_socket import stamped
from harness.clock import MachineClock
from harness.values import Progress


class Connection:
    """As much of aiohttp's connection as a reception looks at."""

    protocol = None

    def __init__(self, sock):
        self.transport = self
        self.get_extra_info = {"socket": sock}.get


@pytest.mark.parametrize("bufsize", [20, 262_144], ids=["stopped", "whole"])
def test_a_read_that_stopped_before_the_end_of_the_queue_is_told_to_have_gone_on(bufsize):
    async def main():
        heard = []

        def on_read(data, stamp):
            heard.append((data, stamp))
            return Progress.SILENT

        loop = asyncio.get_running_loop()
        reception = Reception(MachineClock(), on_read, loop.create_future(), began_ns=0)
        with socket.create_server(("127.0.0.1", 0)) as listener:
            client = stamped((socket.AF_INET, socket.SOCK_STREAM, 0, "", ()))
            client.setblocking(True)
            client.connect(listener.getsockname())
            server, _ = listener.accept()
            with client, server:
                reception.uses(Connection(client))
                server.sendall(b"x" * 30)
                select.select([client], [], [], 5)
                reception.take(client.recv(bufsize))
                return heard, client.arrival_ns

    heard, stamp = asyncio.run(main())
    went_on = [] if bufsize > 30 else [(b"", stamp)]
    assert heard == [(b"x" * min(bufsize, 30), stamp), *went_on]
