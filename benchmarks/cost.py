"""Processor time per token of whole clients side by side: the product, a bare reader, peers that are here.

Every client reads the same server in turns, round after round, so that a busy neighbour meets all of
them. Start-up is taken off by runs of one request; benchmarks/README.md tells how a peer comes in.
"""

import os
import shlex
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from truth import HERE, Server, serving

TOKENS = 500
WAVES = 5
"""Requests of each stream in a run."""

ROUNDS = 4
STREAMS = (32, 50)

PRODUCT, BARE = "harness", "bare reader"
PEERS = {
    "vllm bench serve": "HARNESS_BENCH_VLLM",
    "SGLang's Rust client": "HARNESS_BENCH_SGLANG_RUST",
    "SGLang's Python client": "HARNESS_BENCH_SGLANG",
    "llm-locust": "HARNESS_BENCH_LLM_LOCUST",
}
"""Whose variable holds its command, with {url}, {root}, {streams}, {requests} and {tokens} to fill in."""

_OURS = "{python} {here}/{script}.py {url} {streams} {requests}"


@dataclass(frozen=True, slots=True)
class Cost:
    """Microseconds of processor time per token, one entry a round; `failure`: why there is none."""

    client: str
    streams: int
    us: list[float]
    failure: str | None = None

    @property
    def middle_us(self) -> float:
        return median(self.us)

    def ratio(self, other: "Cost") -> float:
        """How many times the other's cost this is: the middle of the rounds' own ratios."""
        return median(mine / theirs for mine, theirs in zip(self.us, other.us, strict=True))


def commands() -> dict[str, str]:
    """All clients that are here, by name."""
    ours = {PRODUCT: "product_client", BARE: "bare_reader"}
    found = {name: _OURS.replace("{script}", script) for name, script in ours.items()}
    return found | {
        name: os.environ[variable] for name, variable in PEERS.items() if os.environ.get(variable)
    }


def costs(binary: Path | None, streams: int) -> list[Cost]:
    """Run every client in turns; a peer that fails is left out from then on."""
    started_s: dict[str, list[float]] = {name: [] for name in commands()}
    whole_s: dict[str, list[float]] = {name: [] for name in commands()}
    failures: dict[str, str] = {}
    requests = streams * WAVES
    with serving(binary, tokens=TOKENS) as server:
        for _ in range(ROUNDS):
            for name, command in commands().items():
                if name in failures:
                    continue
                try:
                    started_s[name].append(cpu_s(command, server, streams=streams, requests=1))
                    whole_s[name].append(cpu_s(command, server, streams=streams, requests=requests))
                except RuntimeError as failure:
                    if name in (PRODUCT, BARE):
                        raise SystemExit(f"{name}: {failure}") from None
                    failures[name] = str(failure)
    tokens = (requests - 1) * TOKENS
    return [
        Cost(name, streams, [], failures[name])
        if name in failures
        else Cost(
            name, streams, [(whole - median(started_s[name])) * 1e6 / tokens for whole in whole_s[name]]
        )
        for name in commands()
    ]


def cpu_s(command: str, server: Server, *, streams: int, requests: int) -> float:
    """Run a client to its end; user and system time of it and of all children that it waited for."""
    parts = [
        part.format(
            python=sys.executable,
            here=HERE,
            url=server.url,
            root=server.url.removesuffix("/v1"),
            streams=streams,
            requests=requests,
            tokens=TOKENS,
        )
        for part in shlex.split(command)
    ]
    done = server.stats()["done"]
    with tempfile.TemporaryDirectory() as folder, (Path(folder) / "words").open("w+b") as words:
        environment = os.environ | {"PYTHONPATH": str(HERE.parent)} if parts[0] == sys.executable else None
        process = subprocess.Popen(parts, cwd=folder, stdout=words, stderr=words, env=environment)
        _, status, usage = os.wait4(process.pid, 0)
        words.seek(0)
        last = words.read().decode(errors="replace").strip().rpartition("\n")[2]
    code = process.returncode = os.waitstatus_to_exitcode(status)
    served = server.stats()["done"] - done
    if code or served < requests:
        raise RuntimeError(f"exit code {code}, {served} of {requests} answers: {last}")
    return usage.ru_utime + usage.ru_stime
