"""What the planner decides about one fragment after the other: slow, and written as the rules are said."""

from leman_core.model import keys, row_states
from leman_core.model.plan import SETTLED, Reason
from leman_planner.planning.fragment_status import FragmentStatus


def inspect_one(asked, fragment):
    """Return the status of a fragment."""
    sources = keys.sources(asked.input_pairs(fragment))
    fingerprint = keys.fingerprint_of(asked.versions[0], sources)
    files = fragment.files_of(asked.output.field.field_ids)
    reason, version = _reason(asked, fragment, files, fingerprint)
    if reason not in (Reason.REUSED, Reason.PARTIAL) and asked.is_past(fragment):
        reason = Reason.PAST_INPUT
    return FragmentStatus(fragment, reason, fingerprint, sources, files[0] if files else "", None, version)


def _reason(asked, fragment, files, fingerprint):
    if fragment.live_rows == 0:
        return Reason.REUSED, 0
    if not files:
        return Reason.MISSING, 0
    name = keys.parse_column_file_name(files[0])
    if len(files) > 1 or name is None:
        return Reason.EXTERNAL_WRITE, 0
    if name.function_part not in asked.versions:
        return Reason.UDF_CHANGED, 0
    if name.sources_part != fingerprint[16:]:
        return Reason.INPUT_CHANGED, 0
    return Reason.PARTIAL if name.partial else Reason.REUSED, asked.versions.index(name.function_part)


def decide_one(asked, status, states):
    """Return the reason of a fragment, and the row states that count."""
    known = _states(asked, status, states)
    if asked.failed_only:
        if known is not None and known.failed + known.failed_older:
            return Reason.PARTIAL, known
        whole = status.reason in SETTLED or (known is not None and not known.untouched)
        return Reason.REUSED if whole else Reason.REUSED_FILTER, known
    if status.reason is not Reason.PARTIAL:
        return status.reason, known
    if known is None:
        return Reason.EXTERNAL_WRITE, None
    if known.untouched + known.failed_older == 0:
        return Reason.REUSED, known
    if asked.selective and keys.md5(asked.filter_identity(status.fragment)) in known.filters:
        return Reason.REUSED_FILTER, known
    return Reason.PARTIAL, known


def _states(asked, status, states):
    if status.moved is not None:
        return status.moved.summary
    name = keys.parse_column_file_name(status.current_file)
    if status.reason is not Reason.PARTIAL or name is None or status.current_file not in states:
        return None
    return row_states.summary_for_version(states[status.current_file], name.function_part, asked.versions)
