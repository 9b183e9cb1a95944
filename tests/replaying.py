"""A loopback server that answers one request with bytes that a test has."""

import socket
import threading
from contextlib import contextmanager

STREAM = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"


@contextmanager
def replaying(raw):
    """Answer one request with `raw`, HTTP's framing included, and close; yields the server's URL."""

    def serve():
        connection, _ = server.accept()
        with connection:
            request = b""
            while b"\r\n\r\n" not in request:
                request += connection.recv(65536)
            head, _, body = request.partition(b"\r\n\r\n")
            length = int(head.lower().partition(b"content-length:")[2].split(b"\r\n")[0])
            while len(body) < length:
                body += connection.recv(65536)
            connection.sendall(raw)

    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(10)
        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.getsockname()[1]}"
        finally:
            thread.join()
