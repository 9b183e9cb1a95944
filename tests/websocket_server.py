"""A WebSocket's server side for tests, byte by byte: frames are sent as a test wants them cut."""

import base64
import hashlib
import struct

ACCEPT = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
TEXT, CLOSE, PING, PONG = 1, 8, 9, 10


def frame(payload, opcode=TEXT, *, last=True):
    """A server's frame, which is not masked."""
    head = bytes([(0x80 if last else 0) | opcode])
    size = len(payload)
    if size < 126:
        return head + bytes([size]) + payload
    if size < 65_536:
        return head + b"\x7e" + struct.pack(">H", size) + payload
    return head + b"\x7f" + struct.pack(">Q", size) + payload


def closing(code=None, reason=b""):
    return frame(b"" if code is None else struct.pack(">H", code) + reason, CLOSE)


def accepted(head):
    """The answer to a client's handshake."""
    fields = dict(line.split(b": ", 1) for line in head.split(b"\r\n")[1:-2])
    key = {name.lower(): value for name, value in fields.items()}[b"sec-websocket-key"]
    accept = base64.b64encode(hashlib.sha1(key + ACCEPT).digest())
    answer = b"HTTP/1.1 101 X\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: "
    return answer + accept + b"\r\n\r\n"


async def upgrade(peer, then=b""):
    """Answer the client's handshake; returns its head. `then` goes out with the answer."""
    head = await peer.reader.readuntil(b"\r\n\r\n")
    await peer.send(accepted(head) + then)
    return head


async def received(peer):
    """The next frame of the client, unmasked: (opcode, payload)."""
    first, second = await peer.reader.readexactly(2)
    assert second & 0x80, "a client's frames are masked"
    size = second & 0x7F
    if size >= 126:
        size = int.from_bytes(await peer.reader.readexactly(2 if size == 126 else 8))
    mask = await peer.reader.readexactly(4)
    payload = await peer.reader.readexactly(size)
    return first & 0x0F, bytes(byte ^ mask[i % 4] for i, byte in enumerate(payload))
