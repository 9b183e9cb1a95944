"""Distance between clients and a simulator: a relay in front of it that holds every byte back.

A client on loopback is connected at once, whoever is far away. So the first bytes of a new connection wait
the round trip that TCP's handshake would have taken, and then half a round trip, as all bytes do in either
direction. TLS ends behind the relay, so each of its flights costs what it costs (TLS 1.3: one round trip
more). Order is kept and there is no limit on bandwidth. What came in two reads goes out in two writes.
"""

import asyncio
import socket
import ssl
from collections import deque
from collections.abc import Callable

from harness.clock import Clock

_END = b""
_NO_SOCKETS_S = 0.1  # to wait when the machine has no more of them


class _Way:
    """One direction of a connection: pieces wait here until they are due; no bytes are its end."""

    def __init__(self, *, delay_ns: int, opens_ns: int, clock: Clock) -> None:
        self._delay_ns = delay_ns
        self._opens_ns = opens_ns
        self._clock = clock
        self._pieces: deque[tuple[int, bytes]] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._out: asyncio.Transport | None = None

    def leads_to(self, out: asyncio.Transport) -> None:
        """Tell where pieces go; none leave before."""
        self._out = out
        self._arm()

    def put(self, data: bytes) -> None:
        """Take a piece that has come now."""
        due_ns = max(self._clock.now_ns(), self._opens_ns) + self._delay_ns
        self._pieces.append((due_ns, data))
        self._arm()

    def _arm(self) -> None:
        if self._timer is None and self._out is not None and self._pieces:
            at_s = self._pieces[0][0] / 1e9
            self._timer = asyncio.get_running_loop().call_at(at_s, self._pass_on, self._out)

    def _pass_on(self, out: asyncio.Transport) -> None:
        self._timer = None
        while self._pieces and self._pieces[0][0] <= self._clock.now_ns():
            _, data = self._pieces.popleft()
            if data:
                out.write(data)
            else:
                out.close()
        self._arm()


class _End(asyncio.Protocol):
    """One end of a relayed connection: what is read here goes `away`, what comes `back` is written here."""

    def __init__(self, *, away: _Way, back: _Way) -> None:
        self._away = away
        self._back = back

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Let what comes back out."""
        if isinstance(transport, asyncio.Transport):
            self._back.leads_to(transport)

    def data_received(self, data: bytes) -> None:
        """Send a piece on its way."""
        self._away.put(data)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - the protocol's signature
        """Let the other side hear of it as late as of anything."""
        self._away.put(_END)


async def relay(
    listener: socket.socket,
    server: Callable[[], asyncio.Protocol],
    *,
    rtt_ns: int,
    tls: ssl.SSLContext | None,
    clock: Clock,
) -> None:
    """Take connections until cancelled; each is served by a protocol of `server`, `rtt_ns` away."""
    loop = asyncio.get_running_loop()

    async def carry(client: socket.socket, opens_ns: int) -> None:
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # asyncio sets it on its own only
        near, far = socket.socketpair()
        up = _Way(delay_ns=rtt_ns // 2, opens_ns=opens_ns, clock=clock)
        down = _Way(delay_ns=rtt_ns // 2, opens_ns=opens_ns, clock=clock)
        try:
            await loop.connect_accepted_socket(lambda: _End(away=down, back=up), near)
            await loop.connect_accepted_socket(lambda: _End(away=up, back=down), client)
            await loop.connect_accepted_socket(server, far, ssl=tls)
        except OSError:  # ssl.SSLError among them: the client does not trust us, or has gone
            return

    async with asyncio.TaskGroup() as connections:
        while True:
            try:
                client, _ = await loop.sock_accept(listener)
            except OSError:  # out of file descriptors
                await asyncio.sleep(_NO_SOCKETS_S)
                continue
            connections.create_task(carry(client, clock.now_ns() + rtt_ns))
