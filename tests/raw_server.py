"""Servers for tests that answer with exactly the bytes a test wants, over plain TCP or TLS."""

import asyncio
import contextlib
import socket
import struct

STREAM_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
LAST_CHUNK = b"0\r\n\r\n"


def chunk(data):
    return b"%x\r\n%s\r\n" % (len(data), data)


class Peer:
    """The server's side of one connection."""

    def __init__(self, reader, writer):
        self.reader = reader
        self.writer = writer

    async def request(self):
        """Head and body of the next request; an IncompleteReadError is the client's farewell."""
        head = await self.reader.readuntil(b"\r\n\r\n")
        fields = dict(line.lower().split(b": ", 1) for line in head.split(b"\r\n")[1:-2])
        return head, await self.reader.readexactly(int(fields[b"content-length"]))

    async def send(self, data):
        self.writer.write(data)
        await self.writer.drain()

    async def gone(self):
        """Wait until the client has closed the connection."""
        with contextlib.suppress(ConnectionError):
            while await self.reader.read(65_536):
                pass

    def close(self):
        self.writer.close()

    def reset(self):
        """Drop the connection with RST."""
        sock = self.writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.writer.transport.abort()


@contextlib.asynccontextmanager
async def serve(handler, tls=None):
    """Run `handler(peer)` for each connection; yields the port. What a handler raises fails the test."""
    failures, running = [], set()

    async def connected(reader, writer):
        running.add(asyncio.current_task())
        try:
            await handler(Peer(reader, writer))
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass
        except Exception as failure:  # noqa: BLE001 - raised below
            failures.append(failure)
        finally:
            running.discard(asyncio.current_task())
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()

    server = await asyncio.start_server(connected, "127.0.0.1", 0, ssl=tls, backlog=512)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for task in running:
            task.cancel()
        await asyncio.sleep(0)
        await server.wait_closed()
    if failures:
        raise failures[0]
