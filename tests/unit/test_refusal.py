"""Answers that are no stream become one clear sentence."""

import pytest

from harness.wire import DIALECTS

CHAT = DIALECTS["openai-chat"]


@pytest.mark.parametrize(
    ("status", "body", "kind", "said"),
    [
        pytest.param(
            429, b'{"error":{"message":"slow down"}}', "http_error", "HTTP 429: slow down", id="json"
        ),
        pytest.param(400, b'{"error":{"message":"no","code":400}}', "http_error", "HTTP 400: no", id="code"),
        pytest.param(422, b'{"detail":[{"msg":"bad"}]}', "http_error", '[{"msg":"bad"}]', id="detail"),
        pytest.param(404, b'{"message":"no model"}', "http_error", "no model", id="message"),
        pytest.param(
            502,
            b"<html><style>x{}</style><h1>Bad\nGateway</h1>",
            "http_error",
            "HTTP 502: Bad Gateway",
            id="page",
        ),
        pytest.param(500, b"", "http_error", "HTTP 500", id="empty"),
        pytest.param(500, b"\xff\xfe", "http_error", "HTTP 500", id="bytes"),
        pytest.param(307, b"", "http_error", "redirects are not followed: HTTP 307", id="redirect"),
        pytest.param(200, b'{"choices":[],"usage":{}}', "not_streamed", "not a stream", id="whole-answer"),
        pytest.param(200, b'{"error":"busy"}', "stream_error", "busy", id="error-with-200"),
        pytest.param(200, b"<html>Login</html>", "not_sse", "(text/x): Login", id="page-with-200"),
        pytest.param(200, b"", "not_sse", "it is empty", id="empty-with-200"),
    ],
)
def test_refusals(status, body, kind, said):
    error = CHAT.unstreamed(status=status, content_type="text/x", body=body).error
    assert error.kind == kind
    assert said in error.message
    assert len(error.message) < 400


def test_no_key_gets_into_a_message():
    body = b'{"error":{"message":"Incorrect key sk-proj-abcdef123456, header Bearer abcdef123456"}}'
    said = CHAT.unstreamed(status=401, content_type=None, body=body).error.message
    assert "Incorrect key" in said
    assert "abcdef123456" not in said


def test_the_text_of_an_answer_that_came_at_once_is_kept():
    choice = b'{"index":0,"message":{"content":"All."},"finish_reason":"stop"}'
    body = b'{"id":"c1","choices":[%b],"usage":{"completion_tokens":2}}' % choice
    told = CHAT.unstreamed(status=200, content_type="application/json", body=body)
    assert (told.text, told.finish_reason, told.usage.output_tokens, told.error.kind) == (
        "All.",
        "stop",
        2,
        "not_streamed",
    )
    assert len(told.high_ns) == 0  # no time of any output is known
