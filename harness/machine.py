"""Facts about this machine and this program, kept with every run."""

import os
import platform
import resource
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

PACKAGES = ("harness", "aiohttp", "numpy", "orjson", "pydantic", "asyncio-throttle", "locust")


def facts() -> dict[str, Any]:
    """Describe processor, kernel, Python, packages and the load at this moment."""
    return {
        "system": platform.system(),
        "kernel": platform.release(),
        "processor": _processor(),
        "cores": os.cpu_count(),
        "load_average": list(os.getloadavg()),
        "python": platform.python_version(),
        "packages": {name: _version(name) for name in PACKAGES},
    }


def busy_s() -> float | None:
    """Give the processor time of all programs since the machine started, in s; None where nobody tells."""
    try:
        first = Path("/proc/stat").read_text().partition("\n")[0]
    except OSError:
        return None
    user, nice, system, _, _, irq, softirq = map(
        int, first.split()[1:8]
    )  # without idle and waiting for disks
    return (user + nice + system + irq + softirq) / os.sysconf("SC_CLK_TCK")


def own_cpu_s() -> float:
    """Give the processor time of this process and of all its children that have ended, in seconds."""
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def ports() -> int | None:
    """Count the ports that outgoing connections to one address can have; None where the system hides it."""
    try:
        first, last = Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()
    except (OSError, ValueError):
        return None
    return int(last) - int(first) + 1


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), "")


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None
