"""Buckets of requests and tokens that fill evenly."""

import pytest

from harness.simulator.limits import Limits, anthropic_headers, go_duration, openai_headers

S = 1_000_000_000


def limits(requests=None, tokens=None):
    return Limits(requests_per_min=requests, tokens_per_min=tokens)


def test_without_limits_all_is_admitted_and_nothing_told():
    free = limits()
    assert free.admit(10**9, 0) is None
    assert free.headers(openai_headers, now_ns=0, wall_s=0) == {}


def test_a_minute_of_requests_at_once_then_one_each_time_a_part_has_come():
    bucket = limits(requests=60)
    assert [bucket.admit(1, 0) for _ in range(60)] == [None] * 60
    refusal = bucket.admit(1, S // 4)
    assert (refusal.status, refusal.limited, refusal.should_retry) == (429, "requests", None)
    assert refusal.retry_after_ms == pytest.approx(750)
    assert refusal.headers() == {"retry-after": "1", "retry-after-ms": "750"}
    assert bucket.admit(1, S + 1) is None
    assert bucket.admit(1, S + 1) is not None


def test_tokens_are_charged_at_admission_and_what_is_refused_is_free():
    bucket = limits(requests=100, tokens=6000)
    assert bucket.admit(5000, 0) is None
    assert [bucket.admit(2000, 0).limited for _ in range(3)] == ["tokens"] * 3
    assert bucket.admit(2000, 0).retry_after_ms == pytest.approx(10_000)
    assert bucket.admit(2000, 10 * S) is None
    told = bucket.headers(openai_headers, now_ns=10 * S, wall_s=0)
    assert told["x-ratelimit-remaining-tokens"] == "0"
    assert told["x-ratelimit-reset-tokens"] == "1m0s"
    assert told["x-ratelimit-limit-requests"] == "100"


def test_a_bucket_holds_a_minute_and_no_more():
    bucket = limits(tokens=600)
    assert bucket.admit(600, 3600 * S) is None
    assert bucket.admit(1, 3600 * S) is not None


def test_what_never_fits_is_not_worth_another_try():
    refusal = limits(tokens=600).admit(601, 0)
    assert refusal.headers() == {"x-should-retry": "false"}
    assert "601" in refusal.message


def test_anthropic_tells_times():
    bucket = limits(requests=60)
    bucket.admit(1, 0)
    told = bucket.headers(anthropic_headers, now_ns=0, wall_s=86_400.0)
    assert told == {
        "anthropic-ratelimit-requests-limit": "60",
        "anthropic-ratelimit-requests-remaining": "59",
        "anthropic-ratelimit-requests-reset": "1970-01-02T00:00:01Z",
    }


@pytest.mark.parametrize(
    ("ms", "text"),
    [
        (0, "0ms"),
        (11.2, "12ms"),
        (1500, "1.5s"),
        (7_660, "7.66s"),
        (90_000, "1m30s"),
        (21_600_000, "6h0m0s"),
    ],
)
def test_durations_are_written_as_go_does(ms, text):
    assert go_duration(ms) == text
