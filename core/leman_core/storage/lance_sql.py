"""SQL for Lance: translation to its dialect, types, checks of regular expressions, and readable errors.

Lance's parser has no CASE and does not convert text to times. CASE becomes nested calls of `nvl2`, which Lance
evaluates lazily: a branch that is not taken is not computed. This module chooses the common type of the branches. Lance
would take the coarser unit of two timestamps and cut values off, and nanoseconds for a date and a timestamp, whose
range is too small. Regular expressions are compiled before a table's rows are read. If a read fails, `failed_row` finds
out whether the SQL has no value for a row (a division by zero, a cast) or the storage cannot be read.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Any

import lance
import pyarrow as pa
import pyarrow.types as pt

from leman._format import sql_limits
from leman._format.stored_functions import UdfDefinition
from leman_core.functions.arrow_types import ARROW_CAST_UNITS, arrow_cast_name
from leman_core.functions.column_checks import unknown_column_text
from leman_core.functions.function_definitions import bad_inputs
from leman_core.model.row_ids import Ids
from leman_core.model.service_errors import FailedPrecondition, InvalidArgument, LemanError, excerpt
from leman_core.sql import expressions, filters, time_values
from leman_core.sql.expressions import Case
from leman_core.sql.filters import Kind, Token, invalid_filter, tokenize
from leman_core.storage.error_translation import LANCE_ERRORS
from leman_core.storage.panics import is_panic, panics_as_errors

_INTEGER = re.compile(r"[\s(]*(-?)\s*(\d+)[\s)]*")
_SORTS: dict[str, tuple[Callable[[pa.DataType], bool], ...]] = {
    "numbers": (pt.is_integer, pt.is_floating, pt.is_decimal),
    "text": (pt.is_string, pt.is_large_string, pt.is_string_view),
    "bytes": (pt.is_binary, pt.is_large_binary, pt.is_binary_view),
    "dates and timestamps": (pt.is_date, pt.is_timestamp),
    "times of day": (pt.is_time,),
    "durations": (pt.is_duration,),
    "truth values": (pt.is_boolean,),
}
_FINER = list(ARROW_CAST_UNITS)


def sort_of(kind: pa.DataType) -> str:
    """Return the sort of a type's values: a key of `_SORTS`.

    Raises:
        InvalidArgument: INVALID_FILTER – values of this type cannot be the result of a CASE.
    """
    found = next((sort for sort, tests in _SORTS.items() if any(test(kind) for test in tests)), None)
    if found is None:
        raise invalid_filter(
            f"the result of CASE is {kind}, which is not supported: numbers, text, bytes, times and truth values are"
        )
    return found


def common_type(
    values: Sequence[str], kinds: Sequence[pa.DataType], type_of: Callable[[str], pa.DataType]
) -> pa.DataType:
    """Return the common type of the values of these expressions.

    Args:
        values: The expressions.
        kinds: Their types, at least one of which is not the type of NULL.
        type_of: Returns Lance's type of an expression.

    Raises:
        InvalidArgument: INVALID_FILTER – they have no common type.
    """
    plain = [kind.value_type if pt.is_dictionary(kind) else kind for kind in kinds]
    branches = {(text, kind) for text, kind in zip(values, plain, strict=True) if not pt.is_null(kind)}
    sorts = {sort_of(kind) for _, kind in branches}
    if sorts == {"numbers", "text"}:
        branches, sorts = {(text, kind) for text, kind in branches if sort_of(kind) == "text"}, {"text"}
    if len(sorts) > 1:
        raise invalid_filter(f"the branches of CASE are {' and '.join(sorted(sorts))}: cast them to one type")
    distinct = list(dict.fromkeys(kind for kind in plain if kind in {kind for _, kind in branches}))
    if len(distinct) == 1:
        return distinct[0]
    if sorts == {"numbers"}:
        return _number(branches, distinct, type_of)
    return _of_time(distinct) if not sorts & {"text", "bytes"} else _by_lance(distinct, type_of)


def _of_time(kinds: Sequence[pa.DataType]) -> pa.DataType:
    stamps = [kind for kind in kinds if pt.is_timestamp(kind)]
    if not stamps and pt.is_date(kinds[0]):
        return pa.date64()
    unit = max((kind.unit for kind in stamps or kinds), key=_FINER.index)
    if stamps:
        return pa.timestamp(unit, next((kind.tz for kind in stamps if kind.tz), None))
    if pt.is_duration(kinds[0]):
        return pa.duration(unit)
    return pa.time32(unit) if unit in {"s", "ms"} else pa.time64(unit)


def _number(
    branches: Iterable[tuple[str, pa.DataType]], kinds: Sequence[pa.DataType], type_of: Callable[[str], pa.DataType]
) -> pa.DataType:
    """Return the common type of numbers. A literal integer takes the type of the other branches if it fits into it."""
    written = {text: match for text, _ in branches if (match := _INTEGER.fullmatch(text)) is not None}
    others = [kind for kind in kinds if any(kind == of and text not in written for text, of in branches)]
    if others:
        found = _of_numbers(others, type_of)
        if all(_has(found, int(match[1] + match[2])) for match in written.values()):
            return found
    return _of_numbers(kinds, type_of)


def _of_numbers(kinds: Sequence[pa.DataType], type_of: Callable[[str], pa.DataType]) -> pa.DataType:
    if any(map(pt.is_floating, kinds)) and any(map(pt.is_decimal, kinds)):
        return pa.float64()
    found = _by_lance(kinds, type_of)
    for kind in kinds:
        if pt.is_decimal(found) and _whole_digits(kind) > found.precision - found.scale:
            raise invalid_filter(
                f"no type can hold all branches of CASE, {' and '.join(map(str, kinds))}: cast them to one type"
            )
    return found


def _by_lance(kinds: Sequence[pa.DataType], type_of: Callable[[str], pa.DataType]) -> pa.DataType:
    found, *others = kinds
    for kind in others:
        some = f"arrow_cast(NULL, '{arrow_cast_name(found)}')"
        found = type_of(f"nvl2({some}, {some}, arrow_cast(NULL, '{arrow_cast_name(kind)}'))")
    return found


def _whole_digits(kind: pa.DataType) -> int:
    if pt.is_decimal(kind):
        return int(kind.precision - kind.scale)
    return len(str((1 << (kind.bit_width - pt.is_signed_integer(kind))) - 1))


def _has(kind: pa.DataType, number: int) -> bool:
    if pt.is_decimal(kind):
        return bool(len(str(abs(number))) <= kind.precision - kind.scale)
    if not pt.is_integer(kind):
        return True
    signed = pt.is_signed_integer(kind)
    bits = kind.bit_width - signed
    return bool(-(1 << bits) * signed <= number < 1 << bits)


_RUST_PATH = re.compile(r",?\s*/\S+?\.rs:\d+:\d+")
#: Most characters of Lance's error to repeat, which may contain the caller's whole text.
_LONGEST = 500
_PARSER = re.compile(r"\(sql parser error: (.*)\)$", re.DOTALL)
_NO_FIELD = re.compile(r"No field named (?:\"(?P<quoted>(?:[^\"]|\"\")*)\"|(?P<plain>[^\s.]+))\.")
_PREFIXES = ("Invalid user input: ", "Schema error: ", "Not supported: ", "Error during planning: ")
_NO_TIME = re.compile(r"literal Utf8.*literal of type '(Timestamp|Date)")
_NO_TYPE = re.compile(
    r"Unsupported data type: (?:Custom\(.*?value: \"(?P<name>[^\"]*)\"|(?P<other>\w+)).*Supported types", re.DOTALL
)
_TYPES = "bigint, int, smallint, tinyint, double, float, decimal(p, s), string, binary, boolean, date, timestamp"
_NO_COLUMN = "Scans must request at least one column"


def clean_message(message: str) -> str:
    """Return an error text of Lance without paths of its sources, names of its error classes, and further lines."""
    text = _RUST_PATH.sub("", message).strip()
    text = re.sub(r"LanceError\(\w+\): ", "", text)
    parser = _PARSER.search(text)
    if parser:
        return parser[1][:_LONGEST]
    for prefix in _PREFIXES:
        text = text.replace(prefix, "")
    if unknown := _NO_TYPE.search(text):
        name = excerpt(unknown["name"] or unknown["other"])
        return f"'{name}' is no type that SQL casts to: those are {_TYPES}, and arrow_cast(…, 'Int8') has the others"
    return text.split("\n")[0][:_LONGEST]


def expression_error(error: Exception, columns: list[str]) -> LemanError:
    """Translate Lance's error for an expression over a table with these columns."""
    text = clean_message(str(error))
    if _NO_COLUMN in text:
        return expressions.invalid_expression(
            "it reads no column, so every row would get the same value: use at least one column of the table"
        )
    missing = _missing_name(text)
    if missing in columns:  # Lance says so of a column without the field
        return expressions.invalid_expression(
            f"column '{excerpt(missing)}' has no field of that name: `{excerpt(missing)}.x` is the field x of a struct"
        )
    if not missing:
        return expressions.invalid_expression(text)
    return FailedPrecondition("INPUT_COLUMN_MISSING", unknown_column_text(missing, columns), columns=missing)


def filter_message(error: Exception, columns: list[str]) -> str:
    """Return what is wrong with a filter, from Lance's error for it and the table's columns."""
    text = clean_message(str(error))
    if "INTERVAL" in text:
        return f"{text}; intervals can only follow now() and current_date: now() - interval '30 days'"
    if _NO_TIME.search(text):
        return f"{text}; write times like timestamp '2024-06-01' or date '2024-06-01'"
    missing = _missing_name(text)
    return unknown_column_text(missing, columns) if missing else text


def _missing_name(text: str) -> str:
    """Return the name of the column that Lance did not find; empty if the error is about something else."""
    unknown = _NO_FIELD.search(text)
    return "" if unknown is None else unknown["plain"] or unknown["quoted"].replace('""', '"')


#: Lance's errors for a text that is invalid whatever the columns and their types are.
_NEVER = re.compile(
    "sql parser error|Invalid function|Unsupported type '|Unsupported data type: Custom|not supported SQL"
)


def check_syntax(udf: UdfDefinition) -> None:
    """Refuse a SQL function that is invalid for every table with its columns, whatever their types are.

    `LanceTables.expression_type` checks the expression against the types of a table.

    Raises:
        InvalidArgument: INVALID_EXPRESSION; BAD_UDF – it reads another column.
    """
    columns = {name: pa.array([0], pa.int64()) for name in udf.input_columns}
    row = lance.write_dataset(pa.table(columns), "memory://syntax.lance")
    known = {name.casefold() for name in columns}
    try:
        check_patterns(udf.sql_expression)
        check_constants(udf.sql_expression)
        for part in _without_cases(udf.sql_expression):
            try:
                with panics_as_errors():
                    _ = row.scanner(columns={"value": f"({part})", "row": "_rowid"}).projected_schema
            except ERRORS as error:
                missing = _missing_name(clean_message(str(error)))
                if missing and missing.casefold() not in known:
                    named = expressions.names_in_expression(udf.sql_expression, udf.input_columns)
                    raise bad_inputs(udf, named) from None
                if _NEVER.search(str(error)):
                    raise invalid_filter(clean_message(str(error))) from None
    except InvalidArgument as error:
        if error.reason != "INVALID_FILTER":
            raise
        raise expressions.invalid_expression(error.message.removeprefix("Invalid filter: ")) from None


def _without_cases(sql: str) -> Iterator[str]:
    """Yield the operands, conditions and values of all CASEs, and the expression with NULL in the place of each CASE.

    Lance can parse each of them, whereas its parser has no CASE.
    """
    expressions.check_cases(tokenize(sql))
    while (case := expressions.first_case(sql, tokenize(sql))) is not None:
        parts = (case.operand, *itertools.chain.from_iterable(case.branches), case.otherwise)
        for part in filter(None, parts):
            yield from _without_cases(part)
        sql = f"{sql[: case.begin]} NULL {sql[case.end :]}"
    yield sql


_PATTERNS = frozenset({"regexp_like", "regexp_match"})
_OPENING, _CLOSING = frozenset("(["), frozenset(")]")


def check_patterns(sql: str) -> None:
    """Refuse regular expressions that do not compile, or are too large when compiled.

    Only literal ones are checked. One that is read from a column, or computed, can still fail at a row.

    Raises:
        InvalidArgument: INVALID_FILTER.
    """
    for _, arguments in _calls(filters.tokenize(sql), _PATTERNS):
        if len(arguments) > 1 and all(len(given) == 1 and given[0].kind is Kind.STRING for given in arguments[1:]):
            pattern, *flags = (given[0].text for given in arguments[1:])
            fault = _fault(pattern, tuple(flags))
            if fault:
                raise filters.invalid_filter(f"the regular expression {pattern[:100]} cannot be used: {fault}")


def _calls(found: Sequence[Token], names: Collection[str]) -> Iterator[tuple[Token, list[list[Token]]]]:
    """Yield the calls of these functions, as their name and their arguments."""
    for at, token in enumerate(found[:-1]):
        if token.name.lower() not in names or found[at + 1].text != "(":
            continue
        depth, arguments = 0, [list[Token]()]
        for inner in found[at + 2 :]:
            depth += (inner.text in _OPENING) - (inner.text in _CLOSING)
            if depth < 0:
                break
            if inner.text == "," and not depth:
                arguments.append([])
            else:
                arguments[-1].append(inner)
        yield token, arguments


@lru_cache(maxsize=256)
def _fault(pattern: str, flags: tuple[str, ...]) -> str:
    """Try a regular expression on one row. Return what is wrong with it, or empty."""
    text = _failure_of(f"regexp_match({', '.join(('s', pattern, *flags))})")
    if "CompiledTooBig" in text or "size limit" in text:
        return "it is too large once it is compiled: use fewer or smaller repetitions"
    if "regular expression" in text.lower() or "regex" in text.lower():
        return (
            "it does not compile: its brackets do not match, or it uses look-around or backreferences, which are "
            "not supported"
        )
    return ""


#: For functions whose constants Lance reads only with a row: the constant's position, a call to try it, and Lance's
#: error that blames the constant.
_CONSTANTS = {
    "date_trunc": (0, "date_trunc({}, at)", "granularity"),
    "date_part": (0, "date_part({}, at)", "Date part|date_part"),
    "date_bin": (0, "date_bin({}, at)", "stride"),
    "json_extract": (1, "json_extract(j, {})", "Invalid JSONPath"),
    "json_exists": (1, "json_exists(j, {})", "Invalid JSONPath"),
    "json_array_length": (1, "json_array_length(j, {})", "Invalid JSONPath"),
    "json_array_contains": (1, "json_array_contains(j, {}, '1')", "Invalid JSONPath"),
}
#: Functions with formats after the text. One that fits is enough.
_WITH_FORMATS = frozenset(
    {"to_date", "to_unixtime", "to_timestamp"}
    | {f"to_timestamp_{unit}" for unit in ("seconds", "millis", "micros", "nanos")}
)
_FORMAT_PART = re.compile(r"%[-_0]?(?::{1,3}z|#z|\.?[369]?f|.)?", re.DOTALL)
_BAD_FORMAT = "unsupported format"
#: Calls that compute an argument only for some rows.
_LAZY = frozenset({"coalesce", "nvl"})


def check_constants(sql: str) -> None:
    """Refuse calls with a constant that is wrong for every row, such as `date_trunc('bogus', at)`.

    Calls are not checked in a CASE or `coalesce`, which may never compute them.

    Raises:
        InvalidArgument: INVALID_FILTER.
    """
    if fault := _constant_fault(sql):
        raise invalid_filter(fault)


def _constant_fault(sql: str, *, also_lazy: bool = False) -> str:
    """Return what is wrong with the constants of a call, or empty."""
    found = tokenize(sql)
    lazy = frozenset() if also_lazy else _lazily_computed(found)
    for call, arguments in _calls(found, _CONSTANTS.keys() | _WITH_FORMATS):
        name = call.name.lower()
        at, end = (1, None) if name in _WITH_FORMATS else (_CONSTANTS[name][0], _CONSTANTS[name][0] + 1)
        constants = [_constant(sql, argument) for argument in arguments[at:end]]
        if call.start in lazy or not constants or not all(constants):
            continue
        faults = [_fault_of(name, constant) for constant in constants]
        if all(faults):
            return f"{call.text} fails for every row because of {excerpt(constants[-1])}: {faults[-1]}"
    return ""


def _constant(sql: str, argument: Sequence[Token]) -> str:
    """Return the text of an argument if it is a text or an interval, else empty."""
    is_interval = len(argument) == 2 and argument[0].lower == "interval"
    if argument and argument[-1].kind is Kind.STRING and (len(argument) == 1 or is_interval):
        return sql[argument[0].start : argument[-1].end]
    return ""


@lru_cache(maxsize=256)
def _fault_of(function: str, constant: str) -> str:
    """Try a constant of a function on one row. Return Lance's error if it blames the constant, else empty."""
    if function in _WITH_FORMATS:
        parts = _FORMAT_PART.findall(constant[1:-1])
        failed = (part for part in parts if _BAD_FORMAT in _failure_of(f"to_timestamp(s, '{part}')"))
        return next((f"{part} is not part of any format" for part in failed), "")
    _, call, blame = _CONSTANTS[function]
    text = _failure_of(call.format(constant))
    return text if re.search(blame, text) else ""


def _failure_of(call: str) -> str:
    texts = pa.ExtensionArray.from_storage(pa.json_(), pa.array(["{}"]))
    times = pa.array([0], pa.timestamp("us"))
    return _evaluation_failure(pa.table({"s": ["1"], "at": times, "j": texts}), call)


_ERROR_CLASSES = re.compile(r"^(?:LanceError\(\w+\): |\w+(?: \w+)* error: |This feature is not implemented: )+")


def _evaluation_failure(row: pa.Table, spoken: str, file_format: Any = None) -> str:
    """Return Lance's error for an expression over a table in memory, or empty."""
    try:
        with panics_as_errors():
            table = lance.write_dataset(row, "memory://trial.lance", data_storage_version=file_format)
    except ERRORS:  # a type that cannot be made up: the rows will show
        return ""
    try:
        with panics_as_errors():
            columns = {"value": f"({spoken})", "row": "_rowid"}
            table.scanner(columns=columns, blob_handling="all_binary").to_table()
    except ERRORS as error:
        return "" if is_panic(error) else _ERROR_CLASSES.sub("", clean_message(str(error)))
    return ""


#: What may have a value although an operand is NULL, or computes an operand only for some rows.
_NOT_STRICT = _LAZY | {
    *("and", "array", "arrow_typeof", "between", "cardinality", "case", "concat", "concat_ws", "empty", "greatest"),
    *("in", "is", "json_array_contains", "json_exists", "least", "nullif", "or"),
}
#: Operators that fail for some operands; calls do as well.
_MAY_FAIL = frozenset({"/", "%", "-", "::"})


def check_on_a_row(sql: str, spoken: str, dataset: lance.LanceDataset) -> None:
    """Refuse SQL that fails for every row of any table with this schema, by a trial on made-up rows.

    If all operators are strict, everything that depends on a column is NULL in a row of NULLs. So what fails there, and
    with plain values too, fails because of constants or types. Other SQL is not judged.

    Args:
        sql: The SQL as its caller wrote it.
        spoken: The same in Lance's dialect.
        dataset: The table; it is not read.

    Raises:
        InvalidArgument: INVALID_FILTER.
    """
    found = tokenize(sql)
    if any(token.kind is Kind.WORD and token.lower in _NOT_STRICT for token in found):
        return
    if not any(token.text in _MAY_FAIL or token.text == "(" for token in found):
        return
    schema, form = dataset.schema, dataset.data_storage_version
    fields = [schema.field(name).with_nullable(True) for name in expressions.columns_of_expression(sql, schema.names)]
    made = pa.schema(fields or [pa.field("x", pa.int8())])
    values = pa.Table.from_arrays([_made_up(field.type) for field in made], schema=made)
    failure = _evaluation_failure(values, spoken, form)
    if not failure:
        return
    nulls = pa.Table.from_arrays([_of_null(field.type) for field in made], schema=made)
    if cause := _evaluation_failure(nulls, spoken, form):
        raise invalid_filter(f"it fails for every row: {cause}")
    divisors = _zero_divisors(spoken)
    if (
        divisors
        and _BY_ZERO in failure
        and _BY_ZERO not in _evaluation_failure(values, _with_ones(spoken, divisors), form)
    ):
        raise invalid_filter("it fails for every row: it divides by the constant 0")


_BY_ZERO = "Divide by zero"


def _zero_divisors(sql: str) -> list[Token]:
    return [
        token
        for before, token in itertools.pairwise(tokenize(sql))
        if before.text in {"/", "%"} and token.kind is Kind.NUMBER and float(token.text) == 0
    ]


def _with_ones(sql: str, tokens: Sequence[Token]) -> str:
    for token in reversed(tokens):
        sql = f"{sql[: token.start]}1{sql[token.end :]}"
    return sql


def _made_up(kind: pa.DataType) -> pa.Array:
    """Return one plain value of a type, or NULL if it has no such value."""
    try:
        if isinstance(kind, pa.JsonType):
            return pa.ExtensionArray.from_storage(kind, pa.array(["{}"], kind.storage_type))
        return pa.array([_plain_value(kind)], kind)
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        return _of_null(kind)


def _of_null(kind: pa.DataType) -> pa.Array:
    if isinstance(kind, pa.BaseExtensionType):
        return pa.ExtensionArray.from_storage(kind, pa.nulls(1, kind.storage_type))
    return pa.nulls(1, kind)


def _plain_value(kind: pa.DataType) -> object:
    if pt.is_struct(kind):
        return {field.name: _plain_value(field.type) for field in kind}
    if pt.is_list(kind) or pt.is_large_list(kind):
        return [_plain_value(kind.value_type)]
    if pt.is_dictionary(kind):
        return _plain_value(kind.value_type)
    if pt.is_nested(kind) or isinstance(kind, pa.BaseExtensionType):
        return None
    if any(is_sort(kind) for is_sort in _SORTS["text"]):
        return "1"
    if any(is_sort(kind) for is_sort in (*_SORTS["bytes"], pt.is_fixed_size_binary)):
        return b"1"
    return True if pt.is_boolean(kind) else 1


def _lazily_computed(found: Sequence[Token]) -> frozenset[int]:
    """Return the starts of the tokens in a CASE, or in a call of `_LAZY`."""
    words, open_parts, inside = expressions.case_keywords(found), list[bool](), set[int]()
    for before, token in itertools.pairwise([None, *found]):
        if token is None:
            continue
        if token.start in words and token.lower == "case":
            open_parts.append(True)
        elif token.text in _OPENING:
            open_parts.append(before is not None and before.lower in _LAZY)
        elif open_parts and (token.text in _CLOSING or (token.start in words and token.lower == "end")):
            open_parts.pop()
        elif any(open_parts):
            inside.add(token.start)
    return frozenset(inside)


def filter_failed(what: str, where: str, cause: str) -> FailedPrecondition:
    """Return the error of a filter or condition without a value for a row, with advice for Lance's error."""
    divisions = sum(token.text in {"/", "%"} for token in tokenize(where))
    if fault := _constant_fault(where, also_lazy=True):
        advice = f"Correct the constant: {fault}"
    elif _BY_ZERO in cause and len(_zero_divisors(where)) == divisions:
        advice = "It divides by the constant 0: correct that"
    elif _OTHER_JSON in cause:
        advice = (
            "json_get_int and the like fail for JSON of another type: use json_extract, such as "
            "try_cast(json_extract(j, '$.a') as bigint)"
        )
    elif _NO_VALUES.search(cause):
        advice = "No row can have a value: correct the expression that the error names"
    else:
        advice = "Change it so that it has a value for every row, for example with nullif or try_cast"
    return FailedPrecondition(
        "FILTER_FAILED", f"The {what} {excerpt(where)} cannot be evaluated for every row: {cause}. {advice}"
    )


_OTHER_JSON = "InvalidCast"
_NO_VALUES = re.compile("Invalid arithmetic operation|must be non-null scalar|is greater than precision")


#: Lance's errors for an expression that it cannot plan.
ERRORS = (ValueError, OSError, RuntimeError, NotImplementedError, pa.ArrowException)


class Dialect:
    """A translator of SQL to Lance's dialect, for one version of a table. Any number of threads may call it."""

    def __init__(self, dataset: lance.LanceDataset) -> None:
        self._dataset = dataset
        self._known: dict[str, str] = {}

    def lance(self, sql: str) -> str:
        """Translate a checked filter or expression to Lance's dialect. Most need no change.

        Stored SQL may come from other programs, so too deep nesting, which could end the process, is refused here.

        Raises:
            InvalidArgument: INVALID_FILTER.
            Exception: One of `ERRORS`, if Lance cannot plan a part of it.
        """
        if sql not in self._known:
            if problem := sql_limits.stored_nesting_problem(sql):
                raise invalid_filter(problem)
            self._known[sql] = self._translated(sql)
        return self._known[sql]

    def type_of(self, expression: str) -> pa.DataType:
        """Return the type of an expression in Lance's dialect. Reads no rows. Raises `ERRORS`."""
        columns = {"value": f"({expression})", "row": "_rowid"}  # Lance refuses to read no column
        with panics_as_errors():
            return self._dataset.scanner(columns=columns).projected_schema.field("value").type

    def _translated(self, sql: str) -> str:
        found = tokenize(sql)
        has_case = any(token.kind is Kind.WORD and token.lower == "case" for token in found)
        if not has_case and not time_values.mentions_times(found):
            return sql
        while has_case and (case := expressions.first_case(sql, tokenize(sql))) is not None:
            sql = f"{sql[: case.begin]} {self._without_case(case)} {sql[case.end :]}".strip()
        return time_values.with_typed_times(sql, self._type_if_any)

    def _type_if_any(self, expression: str) -> pa.DataType | None:
        try:
            return self.type_of(expression)
        except ERRORS:
            return None  # Lance reports the error when it gets the whole text

    def _without_case(self, case: Case) -> str:
        conditions = [self._condition(case.operand, when) for when, _ in case.branches]
        values = [self._translated(value) for value in (*(then for _, then in case.branches), case.otherwise)]
        kinds = [self.type_of(value) for value in values]
        if all(pt.is_null(kind) for kind in kinds):
            raise invalid_filter("all branches of CASE are NULL, which has no type: write cast(NULL as …)")
        common = common_type(values, kinds, self.type_of)
        if pt.is_boolean(common):
            # Lance turns nvl2 of booleans into AND and OR, which compute all branches
            numbers = [f"cast(({value}) as bigint)" for value in values]
            return f"({_chosen(conditions, numbers, _as_number)} = 1)"
        name = arrow_cast_name(common)
        alike = [v if kind == common else f"arrow_cast({v}, '{name}')" for v, kind in zip(values, kinds, strict=True)]
        return _chosen(conditions, alike, lambda condition: _as(common, condition))

    def _condition(self, operand: str, when: str) -> str:
        if operand:
            when = f"({operand}) = {when if len(tokenize(when)) == 1 else f'({when})'}"
        made = self._translated(when)
        kind = self.type_of(made)
        if not (pt.is_boolean(kind) or pt.is_null(kind)):
            raise invalid_filter(f"WHEN needs a condition, but {when} is {kind}: write a comparison")
        return made


def _chosen(conditions: Sequence[str], values: Sequence[str], marked: Callable[[str], str]) -> str:
    """Return SQL for the value of the first condition that holds, or else the last value.

    `marked` turns a condition into SQL that is NULL unless the condition holds, and otherwise has the values' sort.
    """
    *values, result = values
    for condition, value in zip(reversed(conditions), reversed(values), strict=True):
        result = f"nvl2({marked(condition)}, {value}, {result})"
    return result


def _as(kind: pa.DataType, condition: str) -> str:
    """Return SQL of a non-boolean type that is NULL unless the condition holds.

    Numbers and times are 0 if it holds, as all their types have that value.
    """
    if sort_of(kind) in {"text", "bytes"}:
        return f"arrow_cast({_as_text(condition)}, '{arrow_cast_name(kind)}')"
    number = f"1 - {_as_number(condition)}"
    if pt.is_time32(kind):
        number = f"arrow_cast({number}, 'Int32')"
    return f"arrow_cast({number}, '{arrow_cast_name(kind)}')"


def _as_number(condition: str) -> str:
    return f"nullif(cast(({condition}) as bigint), 0)"


def _as_text(condition: str) -> str:
    return f"nullif(cast(({condition}) as string), 'false')"


_Read = Callable[[Ids], object]


def failed_row(ids: Ids, inputs: _Read, values: _Read) -> tuple[int, Exception] | None:
    """Return the id of the first row whose `inputs` can be read and whose `values` cannot, and the error.

    Returns:
        None if there is no such row.
    """
    error = _failure(ids, inputs, values)
    while error is not None and len(ids) > 1:
        middle = len(ids) // 2
        first = _failure(ids[:middle], inputs, values)
        if first is None:
            ids, error = ids[middle:], _failure(ids[middle:], inputs, values)
        else:
            ids, error = ids[:middle], first
    return None if error is None else (int(ids[0]), error)


def _failure(ids: Ids, inputs: _Read, values: _Read) -> Exception | None:
    try:
        inputs(ids)
    except LANCE_ERRORS:
        return None
    try:
        values(ids)
    except LANCE_ERRORS as error:
        return error
    return None


def expression_failed(row_id: int, version: int, uri: str, error: Exception) -> FailedPrecondition:
    """Return the error for a row for which the SQL of a view has no value."""
    return FailedPrecondition(
        "EXPRESSION_FAILED",
        f"The view's SQL has no value for the row with id {row_id} in version {version} of its source: "
        f"{clean_message(str(error))}. Change the row, or recreate the view with SQL that handles it, such as "
        "try_cast(…) or x / nullif(y, 0): a condition before AND or OR may not prevent the evaluation",
        row_id=row_id,
        source_version=version,
        uri=uri,
    )
