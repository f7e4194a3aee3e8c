"""``make faults``: plant the faults of :mod:`planted` one at a time in a copy of the tree; which test sees each?

A fault is caught if a test fails that passes without it. One that survives is a missing test.
"""

import argparse
import concurrent.futures
import contextlib
import fnmatch
import hashlib
import json
import os
import pathlib
import queue
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from typing import NamedTuple

from planted import FAULTS, Fault

ROOT = pathlib.Path(__file__).parents[2]
CACHE = ROOT / ".cache"
SUBPACKAGES = ("datasets", "diagnostics", "inference", "models")
PYTEST = ["-m", "pytest", "--exitfirst", "--quiet", "--tb=no", "-p", "no:cacheprovider", "-r", "fE"]
TIMEOUT = 600.0
"""Seconds for the tests of one fault: a hang is no catch."""
OUTCOMES = {0: "survived", 1: "caught"}
"""By pytest's exit code; others mean that the tests did not run as they should."""


class Found(NamedTuple):
    """What became of a fault: an outcome, the test that saw it, and the time that took."""

    outcome: str
    test: str
    seconds: float


class Copy:
    """A copy of the tree, and the package as links into it, which comes before the installed one."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.tree, self.path = folder / "tree", folder / "path"
        # Compiled code of Numba goes with its sources.
        ignored = shutil.ignore_patterns(".*", "build", "dist", "demo", "bench", "reproduced", "*.egg-info")
        shutil.copytree(ROOT, self.tree, ignore=ignored)
        package = self.path / "regbayes"
        package.mkdir(parents=True)
        for source in [*(self.tree / "regbayes").iterdir(), *(self.tree / name for name in SUBPACKAGES)]:
            (package / source.name).symlink_to(source)
        code = (
            "import importlib.util as u; print(u.find_spec('regbayes').origin, u.find_spec('regbayes.models').origin)"
        )
        found = subprocess.run(
            [sys.executable, "-P", "-c", code], cwd=self.tree, env=self._environment(), capture_output=True, text=True
        ).stdout.split()
        if found != [str(package / "__init__.py"), str(package / "models" / "__init__.py")]:
            raise SystemExit(f"the copy is not what Python imports, found {found}")

    def _environment(self) -> dict[str, str]:
        return {
            **os.environ,
            "PYTHONPATH": str(self.path),
            "PYTHONSAFEPATH": "1",
            "JAX_COMPILATION_CACHE_DIR": str(CACHE / "jax"),
        }

    @contextlib.contextmanager
    def planted(self, fault: Fault) -> Iterator[None]:
        """The tree with the fault, for a while."""
        path = self.tree / fault.file
        text = path.read_text()
        if text.count(fault.old) != 1:
            raise SystemExit(f"{fault.file} has {text.count(fault.old)} times the text of the fault {fault.why!r}")
        path.write_text(text.replace(fault.old, fault.new))
        try:
            yield
        finally:
            shutil.copy2(ROOT / fault.file, path)

    def test(self, *arguments: str, timeout: float = TIMEOUT) -> tuple[int | None, list[str]]:
        """pytest's exit code, None if it hangs, and the lines that name tests that failed."""
        command = [sys.executable, "-P", *PYTEST, *arguments]
        process = subprocess.Popen(
            command,
            cwd=self.tree,
            env=self._environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        try:
            output, _ = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
            return None, []
        except BaseException:
            os.killpg(process.pid, signal.SIGKILL)
            raise
        lines = output.splitlines()
        return process.returncode, [line for line in lines if line.startswith(("FAILED ", "ERROR "))] or lines[-1:]


def try_fault(fault: Fault, copies: "queue.Queue[Copy]") -> Found:
    """Plant it in a free copy, and run its tests until one fails."""
    copy = copies.get()
    start = time.monotonic()
    try:
        with copy.planted(fault):
            code, lines = copy.test("-n", "0", *fault.tests)
    finally:
        copies.put(copy)
    outcome = "hung" if code is None else OUTCOMES.get(code, "broken")
    line = lines[0] if lines else ""
    if outcome == "caught" and not line.startswith("FAILED "):
        outcome = "broken"
    test = line.removeprefix("FAILED ").partition(" - ")[0] if outcome == "caught" else line
    return Found(outcome, "" if outcome == "survived" else test, time.monotonic() - start)


def key_of(fault: Fault) -> str:
    """Tells faults apart in the file of results."""
    return hashlib.blake2b(repr(fault[:3]).encode(), digest_size=8).hexdigest()


def caught_before(path: pathlib.Path) -> dict[str, Found]:
    """By key, what an earlier run caught."""
    if not path.is_file():
        return {}
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    return {row["key"]: Found(*row["found"]) for row in rows if row["found"][0] == "caught"}


def needless(copy: Copy, tests: list[str], jobs: int) -> list[str]:
    """Those of the tests that fail in the tree as it is."""
    if not tests:
        return []
    workers = str(jobs if jobs > 1 else 0)
    code, lines = copy.test("--maxfail=1000", "-n", workers, *tests, timeout=TIMEOUT * len(tests))
    return lines if code else []


def report(faults: list[Fault], results: dict[str, Found]) -> str:
    """A line for each fault."""
    lines, width = [], max(len(fault.file) for fault in faults)
    for fault in faults:
        found = results[key_of(fault)]
        seen = found.test if found.outcome == "caught" else f"{found.outcome.upper()} {found.test}"
        lines.append(f"{fault.file:<{width}}  {found.seconds:4.0f} s  {fault.why}\n{'':<{width}}          {seen}")
    caught = sum(results[key_of(fault)].outcome == "caught" for fault in faults)
    return "\n".join([*lines, f"{caught} of {len(faults)} faults caught"])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="*", metavar="PATTERN", help="faults whose file or words match, as *limits*")
    parser.add_argument("--list", action="store_true", help="name the faults, and plant none")
    parser.add_argument("--resume", action="store_true", help="leave out what an earlier run has caught")
    parser.add_argument("--jobs", type=int, default=2, help="how many at a time")
    options = parser.parse_args()
    faults = [f for f in FAULTS if any(fnmatch.fnmatch(text, options.only) for text in (f.file, f.why))]
    if options.list or not faults:
        print("\n".join(f"{fault.file}: {fault.why}" for fault in faults))
        return 0 if faults else 2
    path = CACHE / "faults.jsonl"
    path.parent.mkdir(exist_ok=True)
    results = caught_before(path) if options.resume else {}
    if not options.resume:
        path.unlink(missing_ok=True)
    waiting = [fault for fault in faults if key_of(fault) not in results]
    with tempfile.TemporaryDirectory() as folder, open(path, "a") as file:
        copies: queue.Queue[Copy] = queue.Queue()
        for job in range(options.jobs):
            copies.put(Copy(pathlib.Path(folder) / str(job)))
        with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
            running = {pool.submit(try_fault, fault, copies): fault for fault in waiting}
            try:
                for number, future in enumerate(concurrent.futures.as_completed(running), start=1):
                    fault, found = running[future], future.result()
                    results[key_of(fault)] = found
                    file.write(json.dumps({"key": key_of(fault), "file": fault.file, "found": found}) + "\n")
                    file.flush()
                    place = f"[{number}/{len(waiting)}] {found.outcome:8} {found.seconds:4.0f} s"
                    print(f"{place}  {fault.file}: {fault.why}  {found.test}", flush=True)
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                raise
        tests = sorted({results[key_of(fault)].test for fault in faults if results[key_of(fault)].outcome == "caught"})
        failing = needless(copies.get(), tests, options.jobs)
    print(report(faults, results))
    for line in failing:
        print(f"without any fault: {line}")
    return int(bool(failing) or any(results[key_of(fault)].outcome != "caught" for fault in faults))


if __name__ == "__main__":
    sys.exit(main())
