"""Instruments: what the product measures, at the place where the value is known. Until `bind` they do nothing.

A process in which nobody asked for metrics imports no OpenTelemetry, and pays one look at an attribute for a measure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from opentelemetry import metrics
    from opentelemetry.metrics import CallbackOptions, Observation

#: Values of an instrument's attributes, by their names.
Attributes: TypeAlias = Mapping[str, str]
#: What a gauge shows now: values with their attributes. It is asked by a thread of its own.
Look: TypeAlias = Callable[[], Iterable[tuple[float, Attributes]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Description:
    """What is known of an instrument before anything is measured."""

    name: str
    """By OpenTelemetry's conventions; what is the product's own begins with `leman.`."""
    unit: str
    """In UCUM; a word in braces is counted."""
    text: str
    """What it measures, in a sentence."""
    attributes: tuple[str, ...] = ()
    """The names of its attributes. Their values are bounded by the code: no name of a table, a job or a caller."""


class Counter:
    """A sum that only grows."""

    def __init__(self, description: Description) -> None:
        self.description = description
        self._bound: metrics.Counter | None = None

    @property
    def is_bound(self) -> bool:
        """Tell whether somebody takes what is counted."""
        return self._bound is not None

    def add(self, amount: float, attributes: Attributes | None = None) -> None:
        """Add an amount; from any thread."""
        if self._bound is not None:
            self._bound.add(amount, attributes)

    def bind(self, meter: metrics.Meter | None) -> None:
        """Count with a meter from now on; None: nowhere."""
        about = self.description
        self._bound = None if meter is None else meter.create_counter(about.name, about.unit, about.text)


class Histogram:
    """How values are distributed over buckets, whose upper bounds are `bounds`."""

    def __init__(self, description: Description, bounds: tuple[float, ...]) -> None:
        self.description = description
        self.bounds = bounds
        self._bound: metrics.Histogram | None = None

    @property
    def is_bound(self) -> bool:
        """Tell whether somebody takes values: what they cost to make can be saved otherwise."""
        return self._bound is not None

    def record(self, value: float, attributes: Attributes | None = None) -> None:
        """Take a value; from any thread."""
        if self._bound is not None:
            self._bound.record(value, attributes)

    def bind(self, meter: metrics.Meter | None) -> None:
        """Record with a meter from now on; None: nowhere."""
        about = self.description
        self._bound = None
        if meter is not None:
            self._bound = meter.create_histogram(
                about.name, about.unit, about.text, explicit_bucket_boundaries_advisory=self.bounds
            )


class Gauge:
    """Something that is looked at when values are asked for, and costs nothing in between."""

    def __init__(self, description: Description) -> None:
        self.description = description
        self._look: Look | None = None
        self._shown = False

    @property
    def is_shown(self) -> bool:
        """Tell whether somebody takes values: what they cost to make can be saved otherwise."""
        return self._shown

    def show(self, look: Look | None) -> None:
        """Have values made by a function, called in a thread of its own; None: there are none any more."""
        self._look = look

    def values(self) -> list[tuple[float, Attributes]]:
        """Return what is to be seen now."""
        return [] if self._look is None else list(self._look())

    def bind(self, meter: metrics.Meter | None) -> None:
        """Show values to a meter from now on; None: to nobody."""
        self._shown = meter is not None
        if meter is None:
            return
        from opentelemetry.metrics import Observation  # noqa: PLC0415 - see above

        def observed(_options: CallbackOptions) -> list[Observation]:
            return [Observation(value, attributes) for value, attributes in self.values()]

        self._create(meter, [observed])

    def _create(self, meter: metrics.Meter, callbacks: list[Callable[[CallbackOptions], list[Observation]]]) -> None:
        about = self.description
        meter.create_observable_gauge(about.name, callbacks, about.unit, about.text)


class ObservedCounter(Gauge):
    """A sum that only grows and that someone else counts, such as the operating system."""

    def _create(self, meter: metrics.Meter, callbacks: list[Callable[[CallbackOptions], list[Observation]]]) -> None:
        about = self.description
        meter.create_observable_counter(about.name, callbacks, about.unit, about.text)


Instrument: TypeAlias = Counter | Histogram | Gauge
