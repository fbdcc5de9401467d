"""One RPC under more and more load: what it can, then from half of that to ten times as much, and after it."""

from __future__ import annotations

import time
from collections.abc import Mapping

from benchmarks.common import Document, say
from benchmarks.load.generator import Generator, Load, Outcomes, Target
from benchmarks.load.subjects import Subject

FACTORS = (0.5, 1.0, 2.0, 5.0, 10.0)
#: Calls a second that the generator's processes can send while a server shares their two cores; more would measure
#: them.
MOST_PER_SECOND = 4000.0
_PROBES_PER_SECOND = 20.0
_WARM_UP_SECONDS = 1.0


class Overload:
    """The measurement; `seconds`: of each step."""

    def __init__(self, generator: Generator, prober: Generator, seconds: float) -> None:
        self._generator = generator
        self._prober = prober
        self.seconds = seconds

    def closed_loop(self, subject: Subject) -> Outcomes:
        """Call as fast as is answered."""
        return self._generator.run(subject.target, Load(self.seconds, subject.callers))

    def document(self, subject: Subject, probes: Mapping[str, Target]) -> Document:
        """Measure an RPC while the probes run."""
        self._generator.run(subject.target, Load(_WARM_UP_SECONDS, subject.callers))
        alone = self._generator.run(subject.target, Load(self.seconds / 2, 1)).document(subject.target)
        peak = self.closed_loop(subject).document(subject.target)
        say(f"{subject.name}: {peak['answered_per_second']:.0f}/s of {subject.callers} callers, {_short(peak)}")
        say(f"  one caller: {_short(alone)}")
        steps = []
        for factor in FACTORS:
            rate = factor * peak["answered_per_second"]
            if rate > MOST_PER_SECOND:
                say(f"  {factor:g} times is more than the generator can send")
                break
            steps.append({"factor": factor, **self._step(subject, probes, rate)})
            say(f"  {factor:g} times: {_short(steps[-1])}; probes p99 {_p99(steps[-1]['probes'])}")
        time.sleep(1.0)  # what "one second after it" is about
        after = self._step(subject, probes, peak["answered_per_second"] / 2)
        say(f"  a second after it, half: {_short(after)}")
        return {
            "callers": subject.callers,
            "one_caller": alone,
            "closed_loop": peak,
            "open_loop": steps,
            "after": after,
        }

    def _step(self, subject: Subject, probes: Mapping[str, Target], rate: float) -> Document:
        ending = self._generator.begin(subject.target, Load(self.seconds, rate=rate))
        beside = self._prober.begin_each(list(probes.values()), Load(self.seconds, rate=_PROBES_PER_SECOND))
        answers = ending().document(subject.target)
        told = {
            name: outcomes.document(target) for (name, target), outcomes in zip(probes.items(), beside(), strict=True)
        }
        return {"rate": rate, **answers, "probes": told}


def _short(step: Document) -> str:
    took = step["answered"]
    others = ", ".join(f"{n['calls']} {code} p99 {n['p99']:.0f} ms" for code, n in step["others"].items())
    answered = f"{step['answered_per_second']:.0f}/s answered"
    late = f"generator late p99 {step['generator_late'].get('p99', 0):.0f} ms"
    return (
        f"{answered}, p50 {took.get('p50', 0):.1f} p99 {took.get('p99', 0):.1f} ms; {others or 'no refusals'}; {late}"
    )


def _p99(probes: Document) -> str:
    parts = (f"{name} {told['answered'].get('p99', float('nan')):.0f} ms" for name, told in probes.items())
    return ", ".join(parts)
