"""Expressions that read fields of structs, under the names that the fields have now."""

import pyarrow as pa
import pytest

from leman_core.model.service_errors import FailedPrecondition
from leman_core.sql.expressions import Renamed, with_current_names

_IN = pa.struct([("a", pa.int64()), ("B", pa.int64())])
_NEW = pa.struct([("x`y", pa.int64()), ("it's", pa.int64())])
COLUMNS = {
    "s": Renamed(_IN, _NEW),
    "n": Renamed(pa.struct([("in", _IN), ("same", pa.int64())]), pa.struct([("out", _NEW), ("same", pa.int64())])),
    "l": Renamed(pa.list_(_IN), pa.list_(_NEW)),
    "a": Renamed(pa.int64(), pa.int64()),
}


@pytest.mark.parametrize(
    ("written", "now"),
    [
        ("s.a + a", "s.`x``y` + a"),
        ("s.B", "s.`it's`"),
        ("s.b > 1", "s.`it's` > 1"),
        ("S['B']", "S['it''s']"),
        ("`s`.`a`", "`s`.`x``y`"),
        ("get_field(s, 'a') + get_field(n.in, 'B')", "get_field(s, 'x`y') + get_field(n.`out`, 'it''s')"),
        ("n.in.a = n.same", "n.`out`.`x``y` = n.same"),
        ("n['in']['a']", "n['out']['x`y']"),
        ("l[l[1].a].B", "l[l[1].`x``y`].`it's`"),
        ("l[1]['a']", "l[1]['x`y']"),
        (
            "s is null or n.in IS NOT NULL or cardinality(l) > 1",
            "s is null or n.`out` IS NOT NULL or cardinality(l) > 1",
        ),
        ("s", "s"),
        ("n.in", "n.`out`"),
        ("a = 's.a'", "a = 's.a'"),
    ],
)
def test_fields_are_followed_to_their_new_names(written, now):
    assert with_current_names(written, COLUMNS) == now


@pytest.mark.parametrize(
    "text", ["coalesce(s, s).a", "(n.in).a", "arrow_typeof(s)", "s = s", "l[1] = l[2]", "s is distinct from n"]
)
def test_what_may_see_a_new_name_is_refused(text):
    with pytest.raises(FailedPrecondition) as caught:
        with_current_names(text, COLUMNS)
    assert caught.value.reason == "TYPE_MISMATCH"


def test_without_a_renamed_field_the_text_stays():
    same = {"s": Renamed(_IN, _IN)}
    assert with_current_names("coalesce(s, s).a", same) == "coalesce(s, s).a"
