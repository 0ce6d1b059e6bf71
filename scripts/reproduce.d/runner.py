# SPDX-License-Identifier: Apache-2.0
"""Runs of programs of the build, each kept on disk by what it was asked, and a pool of workers with progress."""
import collections
import concurrent.futures
import hashlib
import inspect
import json
import pathlib
import subprocess
import sys
import threading
import time

Bar = collections.namedtuple("Bar", "text value met")
# What an experiment hands back: `data` for the JSON, `body` for the page, `images` {name: SVG}, `bars`.
Section = collections.namedtuple("Section", "data body images bars")
# `plan(size)` gives {key: Job}, `report(answers, size)` a Section; what `plan` does not run costs nothing.
Experiment = collections.namedtuple("Experiment", "name title plan report")
# `work(run)` gives a JSON value by any number of runs; `cost` are seconds of a core, for the time left.
Job = collections.namedtuple("Job", "work cost")


class Size:
    """How much is asked: a smoke test, what ends within half an hour on two cores, or all."""

    def __init__(self, name):
        self.name = name

    def pick(self, smoke, usual, full=None):
        return smoke if self.name == "smoke" else full if self.name == "full" and full is not None else usual


class Stopped(Exception):
    pass


class Runner:
    """`run(program, *options, input=..., files=...)`: the program's JSON, from disk if it was asked before.

    A key is of the program's bytes, the options, and what is read: standard input and the files, which are written to
    `out`/inputs and named there, so that a command line means the same on any machine."""

    def __init__(self, build, out):
        self.build, self.out = pathlib.Path(build).resolve(), out
        self.inputs, self.kept = out / "inputs", out / "runs"
        for folder in (self.inputs, self.kept):
            folder.mkdir(parents=True, exist_ok=True)
        self.programs, self.asked, self.lock = {}, {}, threading.Lock()

    def program(self, name):
        path = self.build / name
        with self.lock:
            if name not in self.programs:
                if not path.is_file():
                    raise Stopped(f"{path} is not there: build it first (cmake --build --preset release)")
                digest = hashlib.sha256(path.read_bytes()).hexdigest()
                self.programs[name] = (digest, path.stat().st_mtime_ns)
            digest, changed = self.programs[name]
            if not path.is_file() or path.stat().st_mtime_ns != changed:
                raise Stopped(f"{path} was built anew meanwhile: start again, what it said is not mixed")
        return path, digest

    def file(self, text, suffix):
        """A file with this text; its name, by its content."""
        path = self.inputs / (hashlib.sha256(text.encode()).hexdigest()[:16] + suffix)
        with self.lock:
            if not path.is_file():
                path.write_text(text)
        return path.name

    def folder(self, source, names):
        """A folder with copies of those of these files that `source` has; its name, by their content."""
        found = {n: (source / n).read_bytes() for n in names if (source / n).is_file()}
        path = self.inputs / hashlib.sha256(repr(sorted(found.items())).encode()).hexdigest()[:16]
        with self.lock:
            path.mkdir(exist_ok=True)
            for n, content in found.items():
                if not (path / n).is_file():
                    (path / n).write_bytes(content)
        return path.name

    def __call__(self, program, *options, input=None, negative=False, lines=False, keep=None):
        """`negative`: exit status 1 is an answer, too. `lines`: the answer is JSON Lines. `keep(answer)` is what is
        kept of a long one."""
        path, digest = self.program(program)
        text = input if isinstance(input, str) or input is None else json.dumps(input)
        asked = [program, *map(str, options)]
        kept_by = inspect.getsource(keep) if keep else None
        key = hashlib.sha256(json.dumps([digest, asked, text, kept_by]).encode()).hexdigest()[:32]
        with self.lock:
            once = self.asked.setdefault(key, threading.Lock())  # Two experiments may ask the same at a time.
        with once:
            kept = self.kept / f"{key}.json"
            if kept.is_file():
                return json.loads(kept.read_text())["answer"]
            answer = self.answer(path, asked, text, negative, lines)
            answer = keep(answer) if keep else answer
            # Written whole or not at all: who is interrupted must not leave half an answer.
            part = kept.with_suffix(".part")
            part.write_text(json.dumps({"command": asked, "input": text, "answer": answer}))
            part.replace(kept)
            return answer

    def answer(self, path, asked, text, negative, lines):
        done = subprocess.run([path, *asked[1:]], input=text, capture_output=True, text=True, cwd=self.inputs)
        if done.returncode not in ((0, 1) if negative else (0,)) or not done.stdout.strip():
            raise Stopped(f"{' '.join(asked)}: exit status {done.returncode}: {done.stderr.strip()}"
                          + (f"\nits input: {text[:400]}" if text else ""))
        return [json.loads(x) for x in done.stdout.splitlines()] if lines else json.loads(done.stdout)


def clock(seconds):
    return f"{int(seconds) // 60}:{int(seconds) % 60:02d}"


class Progress:
    """On a terminal one line that is written over, else a line each half minute."""

    def __init__(self, total):
        self.total, self.done, self.start, self.told = total, 0.0, time.monotonic(), 0.0
        self.fresh = 0.0  # Of `done`, what took its time in this run: the time left is told by that alone.

    def step(self, cost, name, fresh):
        self.done += cost
        self.fresh += cost if fresh else 0
        now = time.monotonic()
        terminal = sys.stderr.isatty()
        if not terminal and now - self.told < 30 and self.done < self.total:
            return
        self.told = now
        spent = now - self.start
        left = (self.total - self.done) * spent / self.fresh if self.fresh else 0
        part = f"{100 * self.done / self.total:3.0f} %"
        text = f"reproduce: {part}, {clock(spent)} gone, about {clock(left)} left: {name}"
        print(f"\r{text[:110]:110}" if terminal else text, end="" if terminal else "\n", file=sys.stderr, flush=True)
        if terminal and self.done >= self.total:
            print(file=sys.stderr)


def run_all(experiments, runner, size, jobs, finished):
    """Runs all jobs of all experiments on `jobs` workers; `finished(experiment, answers, seconds)` as each ends."""
    plans = {e: e.plan(size) for e in experiments}
    progress = Progress(sum(j.cost for p in plans.values() for j in p.values()) or 1)
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        def work(job):
            start = time.monotonic()
            return job.work(runner), time.monotonic() - start

        futures = {e: {k: pool.submit(work, j) for k, j in p.items()} for e, p in plans.items()}
        try:
            for e, waiting in futures.items():
                answers, seconds = {}, 0.0
                for key, future in waiting.items():
                    answers[key], took = future.result()
                    seconds += took
                    progress.step(plans[e][key].cost, e.name, took > 0.05)
                finished(e, answers, seconds)
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
