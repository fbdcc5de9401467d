"""Which rows a refresh touches, against a plain model of a source that anything may happen to."""

from __future__ import annotations

import tempfile

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.integration.changing_source import Source, View

SHAPES = {
    "all": (None, None, 0),
    "filter": (5, None, 0),
    "limit": (4, 6, 0),
    "window": (3, 5, 3),
    "tail": (2, None, 4),
    "unreached": (4, 1000, 2),
}
SMALL = st.integers(0, 12)
STEPS = st.one_of(
    st.tuples(st.just("append"), st.integers(1, 6)),
    st.tuples(st.just("delete"), st.builds("id % 5 = {}".format, st.integers(0, 4))),
    st.tuples(st.just("delete"), st.builds("id < {}".format, SMALL)),
    st.tuples(
        st.just("update"), st.just("x"), st.sampled_from(["0", "9", "x + 1"]), st.builds("id % 7 = {}".format, SMALL)
    ),
    st.tuples(st.just("update"), st.just("y"), st.just("y + 1"), st.builds("id % 6 = {}".format, SMALL)),
    st.tuples(st.just("upsert"), st.lists(st.integers(0, 40), min_size=1, max_size=4, unique=True), SMALL),
    st.tuples(st.just("compact")),
    st.tuples(st.just("rewrite"), st.sampled_from(["x", "y"]), SMALL),
    st.tuples(st.just("evolve")),
    st.tuples(st.just("restore"), SMALL),
    st.tuples(st.just("overwrite"), st.integers(1, 9)),
)


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    shape=st.sampled_from(sorted(SHAPES)),
    steps=st.lists(st.tuples(STEPS, st.booleans()), min_size=1, max_size=8),
    back=st.one_of(st.none(), SMALL),
)
def test_a_view_follows_any_history(shape, steps, back):
    with tempfile.TemporaryDirectory() as folder:
        source = Source.make(folder)
        least, limit, offset = SHAPES[shape]
        view = View(source, least, limit, offset, base=source.version)
        view.lay(view.should_hold(source.version))
        for (name, *arguments), refresh in steps:
            getattr(source, name)(*arguments)
            if refresh:
                view.refresh(source.version)
        view.refresh(source.version)
        if back is not None:
            versions = sorted(source.versions)
            view.refresh(versions[back % len(versions)])
            view.refresh(source.version)


@pytest.fixture
def source(tmp_path):
    return Source.make(str(tmp_path), 40)


@pytest.fixture
def view(source):
    view = View(source, 3, base=source.version)
    view.lay(view.should_hold(source.version))
    return view
