"""What a certificate of the meter says of one run: whether its stamps were proved at the load that it had."""

from dataclasses import dataclass

from harness.measure.load import Load
from harness.results import Certificate, FindingName, Standing

SLACK = 1.05
"""How far above the proved rate is still within it: rates of short streams are good to some percent."""

BOUND_SHARE_MAX = 0.01
"""Beyond the certificate, times of tasks still decide while their bounds add up to less than this of them."""


@dataclass(frozen=True, slots=True)
class Doubt:
    """Why single stamps of a run decide nothing. bound_share: summed bounds of its calls / task time."""

    why: str
    bound_share: float


@dataclass(frozen=True, slots=True)
class Trust:
    """certified: None where nothing was proved. why: what a reader is told of it, "" for nothing."""

    certified: bool | None
    why: str = ""

    def findings(self) -> list[tuple[FindingName, str]]:
        """Say so unless all was proved."""
        if self.certified:
            return []
        name = FindingName.UNCERTIFIED if self.certified is None else FindingName.BEYOND_CERTIFICATE
        return [(name, self.why)]

    def doubt(self, bound_share: float) -> Doubt | None:
        """Tell what objectives must know, if anything."""
        return Doubt(self.why, bound_share) if self.certified is False else None


def trust(standing: Standing, *, clock: str, load: Load) -> Trust:
    """Hold a run's clock and its greatest load against the certificate."""
    proved = standing.certificate
    if proved is None:
        return Trust(None, standing.why)
    if proved.key.clock != clock:
        return Trust(None, f"{_named(proved)} is of {proved.key.clock} stamps, this run's are the {clock}'s")
    beyond = []
    if load.streams > proved.streams:
        beyond.append(f"{load.streams} streams (proved: {proved.streams})")
    if load.events_per_s > SLACK * proved.events_per_s:
        beyond.append(f"{load.events_per_s:,.0f} events/s (proved: {proved.events_per_s:,.0f})")
    if not beyond:
        return Trust(True)
    return Trust(False, f"{_named(proved)} does not reach to {' and '.join(beyond)} at a time")


def _named(proved: Certificate) -> str:
    return f"the meter's certificate of {proved.made[:10]}"
