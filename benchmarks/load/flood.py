"""What an Envoy in front lets through when a method is asked ten times what it can, by h2load.

Calls of the generator in Python cost its processes as much as they cost the service, so that ten times of what the
service can is more than it can send. h2load, of nghttp2, sends for next to nothing. Whether a call was answered or
refused it does not understand: that is taken from the log of Envoy.
"""

from __future__ import annotations

import shutil
import struct
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

from benchmarks.common import Document, say
from benchmarks.load.front import Front, Noted
from benchmarks.load.generator import Generator, Load, Target, percentiles
from benchmarks.load.overload import FACTORS
from benchmarks.load.subjects import Subject, System
from leman.v1 import jobs_pb2

_CONNECTIONS = 2
#: What may be under way of the flood at once; calls that are due beyond it wait in h2load, and it says so by its rate.
_UNDER_WAY = 800
_PROBES_PER_SECOND = 20.0
#: The probe that is one of the flooded calls, from a client of gRPC: how long refusals take, and whether they say why.
ITSELF = "itself"
_LOG_SECONDS = 10.0
#: What sends a flood has other cores than what answers it, and those who look on have theirs: here, where they share
#: them, the flood's sender gives way. `rate` and `calls_per_second` say whether it still sent what it was to send.
_GIVES_WAY = ("nice", "-n", "5")


def flood(system: System, front: Front, names: Sequence[str], seconds: float) -> Document:
    """Flood all methods, or those that are named. Raises SystemExit: there is no h2load."""
    if shutil.which("h2load") is None:
        raise SystemExit("flood needs h2load: package nghttp2-client of Debian, nghttp2 of Homebrew")
    with Generator(4) as prober:
        return {
            "seconds": seconds,
            "under_way": _UNDER_WAY,
            "subjects": {
                one.name: _Flood(system, front, one, prober, seconds).document()
                for one in system.subjects()
                if not names or one.name in names
            },
        }


@dataclass(frozen=True, slots=True)
class _Flood:
    system: System
    front: Front
    subject: Subject
    prober: Generator
    seconds: float

    def document(self) -> Document:
        """What it can in a closed loop, then from half to ten times that, then half again a second after."""
        self._step(0.0)
        peak = self._step(0.0)
        say(f"{self.subject.name}: {peak['answered_per_second']:.0f}/s of {self.subject.callers} callers")
        steps = []
        for factor in FACTORS:
            steps.append({"factor": factor, **self._step(factor * peak["answered_per_second"])})
            say(f"  {factor:g} times: {_short(steps[-1])}")
        time.sleep(1.0)  # what "one second after it" is about
        after = self._step(peak["answered_per_second"] / 2)
        say(f"  a second after it, half: {_short(after)}")
        return {"closed_loop": peak, "open_loop": steps, "after": after}

    def _step(self, rate: float) -> Document:
        """Call at a rate, 0: in a closed loop, while the probes run."""
        probes = {**self.system.probes(self.subject.service), ITSELF: self.subject.target}
        processes = {**self.system.processes(), "front": self.front.pid}
        busy = _busy_cores_seconds()
        worked = {name: _processor_seconds(pid) for name, pid in processes.items()}
        self.front.forget()
        beside = self.prober.begin_each(list(probes.values()), Load(self.seconds, rate=_PROBES_PER_SECOND))
        took = self._h2load(rate)
        told = {name: one.document(target) for (name, target), one in zip(probes.items(), beside(), strict=True)}
        spent = {name: (_processor_seconds(pid) - worked[name]) / self.seconds for name, pid in processes.items()}
        answers = self._answers(len(took))
        refused = [one.seconds for one in answers if one.refused]
        return {
            "rate": rate,
            "calls_per_second": len(took) / self.seconds,
            "answered_per_second": (len(answers) - len(refused)) / self.seconds,
            "all": percentiles(took),
            "refused_by_front": {"calls": len(refused), **percentiles(refused)},
            "codes": dict(Counter(one.code for one in answers if not one.refused)),
            "probes": told,
            "cores": {**spent, "all": (_busy_cores_seconds() - busy) / self.seconds},
        }

    def _h2load(self, rate: float) -> list[float]:
        """Return the seconds of each call."""
        target = self.subject.target
        callers = _UNDER_WAY if rate else self.subject.callers
        with tempfile.TemporaryDirectory() as folder:
            body, log = Path(folder, "body"), Path(folder, "log")
            message = _sent_often(target)
            body.write_bytes(b"\0" + struct.pack(">I", len(message)) + message)
            command = [
                *_GIVES_WAY,
                "h2load",
                f"--clients={_CONNECTIONS}",
                f"--max-concurrent-streams={callers // _CONNECTIONS}",
            ]
            command += [f"--duration={self.seconds:g}", "--warm-up-time=0", f"--data={body}", f"--log-file={log}"]
            for name, value in (("content-type", "application/grpc"), ("te", "trailers"), *target.metadata):
                command += ["--header", f"{name}: {value}"]
            if rate:
                command.append(f"--rps={rate / _CONNECTIONS:g}")
            subprocess.run([*command, f"http://{target.address}{target.method}"], stdout=subprocess.DEVNULL, check=True)
            return [int(line.split()[2]) / 1e6 for line in log.read_text().splitlines()]

    def _answers(self, calls: int) -> list[Noted]:
        """Return what the front noted of the calls that h2load counts, once it has noted all."""
        end = time.monotonic() + _LOG_SECONDS
        while True:
            answers = [one for one in self.front.noted() if one.method == self.subject.target.method]
            if len(answers) >= calls or time.monotonic() > end:
                return answers
            time.sleep(0.05)


def _sent_often(target: Target) -> bytes:
    """Return a message that does the same each time it is sent: a request id would have a job made but once."""
    if not target.makes_jobs:
        return target.message(0)
    message = jobs_pb2.CreateJobRequest.FromString(target.message(0))
    message.request_id = ""
    return message.SerializeToString()


def _processor_seconds(pid: int) -> float:
    used = psutil.Process(pid).cpu_times()
    return used.user + used.system


def _busy_cores_seconds() -> float:
    """Of the whole machine: more than the processes and h2load use says that other work was about."""
    times = psutil.cpu_times()
    return sum(times) - times.idle - times.iowait - times.guest - times.guest_nice


def _short(step: Document) -> str:
    probes = ", ".join(f"{name} {worst_of([told]):.0f}" for name, told in step["probes"].items())
    rates = f"{step['calls_per_second']:.0f}/s of {step['rate']:.0f}, {step['answered_per_second']:.0f}/s answered"
    times = f"p99 of all {step['all'].get('p99', 0):.0f} ms; probes p99 {probes} ms"
    return f"{rates}; {times}; {step['cores']['all']:.2f} cores"


def worst_of(probes: Iterable[Document]) -> float:
    """Return the longest p99 of what came of probes, answers and refusals, in milliseconds; infinite: nothing came."""
    took = [of["p99"] for probe in probes for of in (probe["answered"], *probe["others"].values()) if of]
    return max(took, default=float("inf"))
