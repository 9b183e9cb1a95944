"""The engine's own condition while it runs: lateness of its loop, processor time, money spent."""

from dataclasses import dataclass, field

import numpy as np

from harness.accounts import Machinery
from harness.clock import Clock, cpu_ns
from harness.measure.calls import calls_of
from harness.measure.charge import task_usd, tokens_usd
from harness.prices import TokenPrice, entry_at, prices_of
from harness.records import CallRecord
from harness.results import FindingName
from harness.scenario_backend import Backend

PULSE_NS = 20_000_000
"""How often the loop's own lag is sampled."""


@dataclass(slots=True)
class Meter:
    """The engine's own condition while it runs."""

    lags_ms: list[float] = field(default_factory=list)
    cpu_ns: int = 0
    elapsed_ns: int = 0

    async def pulse(self, clock: Clock) -> None:
        """Wake at absolute times and note how late: what any reading by this loop may be late."""
        began, cpu, due = clock.now_ns(), cpu_ns(), clock.now_ns()
        try:
            while True:
                due += PULSE_NS
                await clock.sleep_until(due)
                self.lags_ms.append((clock.now_ns() - due) / 1e6)
                due = max(due, clock.now_ns() - PULSE_NS)
        finally:
            self.cpu_ns += cpu_ns() - cpu
            self.elapsed_ns += clock.now_ns() - began

    @property
    def cpu_share(self) -> float:
        """Processor time / elapsed time: 1 is a whole core."""
        return self.cpu_ns / max(1, self.elapsed_ns)

    def machinery(self) -> Machinery:
        """Tell how the process fared."""
        return Machinery(cpu_share=self.cpu_share, loop_lag_p99_ms=self.lag_p99_ms())

    def lag_p99_ms(self) -> float | None:
        """99th percentile of the lag."""
        return float(np.quantile(self.lags_ms, 0.99, method="inverted_cdf")) if self.lags_ms else None


@dataclass(slots=True)
class Spending:
    """Money spent so far, as far as servers told it; over the limit the run drains."""

    limit_usd: float | None
    usd: float = 0.0
    stopped: bool = False

    def passes(self, backend: Backend, call: CallRecord) -> bool:
        """Add a call; tell whether it is the one that passes the limit."""
        if backend.price is not None:
            self.usd += self._cost(backend, call)
        before, self.stopped = self.stopped, self.limit_usd is not None and self.usd > self.limit_usd
        return self.stopped and not before

    @staticmethod
    def _cost(backend: Backend, call: CallRecord) -> float:
        """Take what a call cost; where the server does not tell, what was planned: the limit must hold."""
        prices = prices_of(backend.model, backend.price)
        known = task_usd(calls_of([call]), prices)
        entry = entry_at(prices, call.tier_served or call.tier_asked)
        if known is not None or entry is None or not isinstance(entry.price, TokenPrice):
            return known or 0.0
        planned_in, planned_out = call.input_planned or 0, call.output_asked or 0
        return float(
            tokens_usd(entry.price, input_tokens=planned_in, cached_tokens=0, output_tokens=planned_out)
        )

    def findings(self) -> list[tuple[FindingName, str]]:
        """Say so if the limit ended the run."""
        if not self.stopped:
            return []
        detail = (
            f"the spend limit of USD {self.limit_usd:g} was passed at USD {self.usd:.2g}: the run was ended"
        )
        return [(FindingName.SPEND_LIMIT, detail)]
