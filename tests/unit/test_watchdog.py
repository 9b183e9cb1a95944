"""Which limit an exchange would reach first."""

from types import SimpleNamespace

import pytest

from harness.client.watchdog import CallLimits, nearest_limit
from harness.values import ErrorKind

S = 1_000_000_000
LIMITS = CallLimits(connect_s=5, first_output_s=20, stall_s=2.5, total_s=60)


@pytest.mark.parametrize(
    ("connected", "last_output_ns", "kind", "at_s"),
    [
        pytest.param(False, None, ErrorKind.CONNECT_TIMEOUT, 105, id="connecting"),
        pytest.param(True, None, ErrorKind.FIRST_OUTPUT_TIMEOUT, 120, id="waiting for the first output"),
        pytest.param(True, 110 * S, ErrorKind.IDLE_TIMEOUT, 112.5, id="between outputs"),
        pytest.param(True, 159 * S, ErrorKind.TOTAL_TIMEOUT, 160, id="near the end"),
    ],
)
def test_nearest_limit(connected, last_output_ns, kind, at_s):
    state = SimpleNamespace(sent_ns=100 * S, connected=connected, last_output_ns=last_output_ns)
    limit = nearest_limit(LIMITS, state)
    assert (limit.kind, limit.at_ns) == (kind, at_s * S)


def test_sentence_names_the_limit_and_its_value():
    state = SimpleNamespace(sent_ns=0, connected=True, last_output_ns=1)
    assert nearest_limit(LIMITS, state).sentence == "no output for 2.5 s after the last one (stall limit)"
