"""aiohttp's and the system's exceptions, told once as values: a closed kind and a sentence.

A sentence names host and port, never a header or a query: keys live there.
"""

import errno
import os
import re
import ssl

import aiohttp
from aiohttp import http_exceptions

from harness.client.frames import BrokenError, ClosedError
from harness.values import CallError, ErrorKind

_OUR_SHORTAGE = {errno.EMFILE, errno.ENFILE, errno.EADDRNOTAVAIL, errno.ENOBUFS, errno.ENOMEM}


_TOLD: tuple[tuple[tuple[type[Exception], ...], ErrorKind, str], ...] = (  # the first that fits
    ((aiohttp.ClientSSLError, ssl.SSLError), ErrorKind.TLS, "no TLS with {place}: {reason}"),
    ((aiohttp.ClientConnectorDNSError,), ErrorKind.CONNECT, "cannot resolve the host of {place}: {reason}"),
    ((aiohttp.ClientProxyConnectionError,), ErrorKind.CONNECT, "cannot connect to the proxy: {reason}"),
    ((aiohttp.ClientConnectorError,), ErrorKind.CONNECT, "cannot connect to {place}: {reason}"),
    (
        (aiohttp.ClientHttpProxyError,),
        ErrorKind.CONNECT,
        "the proxy opens no connection to {place}: {reason}",
    ),
    (
        (aiohttp.ClientPayloadError,),
        ErrorKind.TRUNCATED,
        "{place} closed the connection before the body's end",
    ),
    (
        (aiohttp.ClientResponseError, aiohttp.InvalidURL, http_exceptions.HttpProcessingError),
        ErrorKind.HTTP_ERROR,
        "{place} sent no valid HTTP/1.1: {reason}",
    ),
)
_COMPRESSED = "{place} sent a compressed body though it was asked not to (`identity`), and it cannot be read"
_QUOTED = re.compile(r": b['\"]|:?\n")  # from here on, aiohttp shows the bytes that it could not read
_STALE = "{place} had closed the idle connection on which this request was sent"
_RESET = "{place} closed the connection: {reason}"
_ORDERLY = {None, 1000, 1001, 1012}
"""Close codes of a WebSocket that accuse nobody: none, normal, going away, restart."""


def explain(error: Exception, place: str, *, stale: bool, heard: bool = False) -> CallError:
    """Name the failure of an exchange with `place` (host:port).

    stale: the connection had served before, and no byte of this answer had come. heard: of a WebSocket's
    answer some message had.
    """
    if isinstance(error, BrokenError | ClosedError):
        return _of_websocket(error, place, stale=stale, heard=heard)
    reason = _reason(error)
    if isinstance(error, OSError) and error.errno in _OUR_SHORTAGE:
        return CallError(ErrorKind.CLIENT_RESOURCE, f"this machine ran out of sockets: {reason}")
    if any(isinstance(cause, http_exceptions.ContentEncodingError) for cause in (error, error.__cause__)):
        return CallError(ErrorKind.NOT_SSE, _COMPRESSED.format(place=place))
    for types, kind, sentence in _TOLD:
        if isinstance(error, types):
            return CallError(kind, sentence.format(place=place, reason=reason))
    kind, sentence = (ErrorKind.STALE_CONNECTION, _STALE) if stale else (ErrorKind.RESET, _RESET)
    return CallError(kind, sentence.format(place=place, reason=reason))


def _of_websocket(error: BrokenError | ClosedError, place: str, *, stale: bool, heard: bool) -> CallError:
    """Name what broken frames, or a close frame in place of an answer's end, mean."""
    if isinstance(error, BrokenError):
        return CallError(error.kind, f"{place} {error}")
    told = "" if error.code is None else f" (close code {error.code}{error.reason and ': '}{error.reason})"
    if error.code not in _ORDERLY:
        return CallError(ErrorKind.STREAM_ERROR, f"{place} closed the connection{told}")
    if stale:
        return CallError(ErrorKind.STALE_CONNECTION, _STALE.format(place=place) + told)
    kind = ErrorKind.TRUNCATED if heard else ErrorKind.RESET
    return CallError(kind, f"{place} closed the connection before the answer's end{told}")


def _reason(error: Exception) -> str:
    """Word the cause in the system's own words, or aiohttp's less what they quote, or name its type."""
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        error = error.certificate_error
    elif isinstance(error, aiohttp.ClientConnectorError):
        error = error.os_error
    if isinstance(error, ssl.SSLError):
        # the verifier's words, OpenSSL's, or what Python says itself
        return str(getattr(error, "verify_message", "") or getattr(error, "reason", "") or error.strerror)
    if isinstance(error, OSError) and error.errno is not None and error.errno > 0:
        return os.strerror(error.errno)
    if isinstance(error, aiohttp.ServerDisconnectedError):
        return "it had not answered in whole"
    words = error.strerror if isinstance(error, OSError) else None  # the resolver's
    if isinstance(error, aiohttp.ClientResponseError | http_exceptions.HttpProcessingError):
        words = _QUOTED.split(error.message)[0]
    return words or type(error).__name__
