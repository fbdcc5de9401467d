"""Labels: texts under keys, which callers choose."""

from __future__ import annotations

import re
from collections.abc import Mapping

from leman_core.model.errors import InvalidArgument
from leman_core.model.shown_text import CONTROL, repeated

_MOST_LABELS = 32
_MOST_LABEL_BYTES = 255
_LABEL_KEY = re.compile(r"[A-Za-z0-9_./-]{1,63}")


def labels_from_proto(labels: Mapping[str, str], field: str = "labels") -> dict[str, str]:
    """Return the labels of a job or a database.

    Raises:
        InvalidArgument: BAD_LABEL – too many, or one with a key or a value that none can have.
    """
    if len(labels) > _MOST_LABELS:
        raise InvalidArgument("BAD_LABEL", f"{len(labels)} labels: give {_MOST_LABELS} at the most", field=field)
    for key, value in labels.items():
        if not _LABEL_KEY.fullmatch(key):
            message = f"{repeated(key)!r} is no key of a label: 1 to 63 letters, digits, _, -, . or /"
            raise InvalidArgument("BAD_LABEL", message, field=field)
        if len(value.encode()) > _MOST_LABEL_BYTES:
            message = f"the value of label {key} has {len(value.encode())} bytes: {_MOST_LABEL_BYTES} are allowed"
            raise InvalidArgument("BAD_LABEL", message, field=field)
        if found := CONTROL.search(value):
            message = f"the value of label {key} has the control character {found[0]!a}: send it without"
            raise InvalidArgument("BAD_LABEL", message, field=field)
    return dict(labels)
