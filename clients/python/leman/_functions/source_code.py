"""The source of loaded code: in a normal form, as text for people, and digests of plain values.

Digests of plain values: the same on every machine, for values of different types never the same.

The source of loaded code, in a form that comments, layout and docstrings do not change.

The text of a function and of what it uses, for people who want to see what changed between two versions.
"""

from __future__ import annotations

import ast
import contextlib
import functools
import hashlib
import linecache
import struct
import sys
import textwrap
import threading
import typing
from collections.abc import Iterator
from types import CodeType, FunctionType
from typing import TYPE_CHECKING, Any

from leman._installed import is_installed
from leman.errors import VersionRequired

if TYPE_CHECKING:
    import pyarrow as pa
else:
    from leman import _arrow as pa


def plain(value: Any) -> tuple[bytes, ...] | None:
    """Type and content of values that hold no others; None for anything else."""
    kind = type(value)
    if kind is int:
        return (b"int", hex(value).encode())  # repr refuses very long ones
    if value is None or value is ... or value is NotImplemented or kind in (bool, str, complex, range):
        return (kind.__name__.encode(), repr(value).encode())
    if kind is slice and {type(part) for part in (value.start, value.stop, value.step)} <= {int, type(None)}:
        return (kind.__name__.encode(), repr(value).encode())
    if kind is float:
        return (b"float", struct.pack(">d", value))
    if kind in (bytes, bytearray):
        return (kind.__name__.encode(), bytes(value))
    if isinstance(value, pa.DataType | pa.Field | pa.Schema):
        return (kind.__name__.encode(), str(value).encode(), *_arrow_notes(value))
    return None


def _arrow_notes(value: Any) -> list[bytes]:
    """What the text of an Arrow type, field or schema leaves out: metadata, and parameters of extension types."""
    found = []
    if not isinstance(value, pa.DataType) and value.metadata:
        found.append(of_parts(*(part for pair in value.metadata.items() for part in pair)))
    if isinstance(value, pa.BaseExtensionType):
        serialize = getattr(value, "__arrow_ext_serialize__", bytes)  # the text of Arrow's own types leaves nothing out
        found += [type(value).__name__.encode(), serialize(), *_arrow_notes(value.storage_type)]
    inner: list[Any] = []
    if isinstance(value, pa.Schema):
        inner = list(value)
    elif isinstance(value, pa.Field):
        inner = [value.type]
    elif pa.types.is_nested(value):
        inner = [value.field(index) for index in range(value.num_fields)]
    for index, item in enumerate(inner):
        notes = _arrow_notes(item)
        if notes:
            found.append(of_parts(str(index).encode(), *notes))
    return found


def of_tree(tree: Any) -> bytes:
    """Return the digest of a tree of lists and values."""
    if isinstance(tree, list):
        return of_parts(b"tree", *(of_tree(item) for item in tree))
    return str(tree).encode()


def of_parts(*parts: bytes) -> bytes:
    """sha256 over the parts, each with its length before it."""
    digest = hashlib.sha256()
    for part in parts:
        digest.update(struct.pack(">Q", len(part)) + part)
    return digest.digest()


FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda

_OWN_FLAGS = 0xFFFF  # those above are of __future__ imports
_FLAGS = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT  # notebooks have it
_IGNORED_FIELDS = {"ctx", "type_comment", "kind"}
_PARSES = 5
_parsing = threading.RLock()  # a finalizer may parse in the midst of a parse


def function_node(function: FunctionType) -> FunctionNode | None:
    """The syntax tree of a loaded function; None where it was typed in (`python -c`, a REPL, `exec`), and no one keeps
    its source.

    Raises VersionRequired where its file cannot be read, or is not what was loaded.
    """
    code = function.__code__
    linecache.checkcache(code.co_filename)
    linecache.lazycache(code.co_filename, function.__globals__)
    text = "".join(linecache.getlines(code.co_filename, function.__globals__))
    if not text and code.co_filename.startswith("<"):
        return None
    if not text:
        raise VersionRequired(f"the source of {function.__qualname__}() cannot be read")
    parsed = _parse(code.co_filename, text)
    found = _find(parsed.functions, code) or _find(parsed.of_cell(), code) if parsed is not None else None
    if found is None:
        raise VersionRequired(
            f"the source of {function.__qualname__}() in {code.co_filename} is not the code that is loaded:"
            " it was edited since, or rewritten on import"
        )
    return found


def normal_form(node: FunctionNode) -> list[Any]:
    """What the function does, as nested lists: parameters and body.

    Left out because they change nothing or are looked at as values: docstrings, decorators, defaults, the
    function's own annotations.
    """
    body = [node.body] if isinstance(node, ast.Lambda) else _without_docstring(node.body)
    names = [arg.arg for arg in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)]
    stars = [arg.arg if arg else "" for arg in (node.args.vararg, node.args.kwarg)]
    return [type(node).__name__, names, stars, [_dump(item) for item in body]]


def attribute_chains(node: ast.AST) -> dict[str, set[tuple[str, ...]]]:
    """How each name is used: `a.b.c` gives {"a": {("b", "c")}}, a bare `a` gives {"a": {()}}."""
    chains: dict[str, set[tuple[str, ...]]] = {}
    _collect(node, (), chains)
    return chains


def order_free(node: ast.AST) -> set[str]:
    """Names of what is used only where the order of keys changes nothing: `a[k]`, `k in a`, `a.get(k)`, `len(a)`."""
    free: dict[str, bool] = {}
    blind: set[int] = set()
    for item in ast.walk(node):
        match item:
            case ast.Subscript(value=value, ctx=ast.Load()):
                blind.add(id(value))
            case ast.Compare(ops=[ast.In() | ast.NotIn()], comparators=[value]):
                blind.add(id(value))
            case ast.Call(func=ast.Attribute(value=value, attr="get")):
                blind.add(id(value))
            case ast.Call(func=ast.Name(id="len"), args=[value]):
                blind.add(id(value))
    inner = {id(item.value) for item in ast.walk(node) if isinstance(item, ast.Attribute)}
    for item in ast.walk(node):
        name = _dotted(item)
        if name and id(item) in blind:
            free.setdefault(name, True)
        elif name and id(item) not in inner and not name.endswith(".get"):
            while name:
                free[name] = False
                name = name.rpartition(".")[0]
    return {name for name, only in free.items() if only}


def _dotted(node: ast.AST) -> str:
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        owner = _dotted(node.value)
        return f"{owner}.{node.attr}" if owner else ""
    return ""


def names_in(text: str) -> set[str]:
    """The names that an annotation written as a text speaks of."""
    try:
        return {node.id for node in ast.walk(_tree(text.strip())) if isinstance(node, ast.Name)}
    except SyntaxError:
        return set()


def is_plain_hint(hint: Any) -> bool:
    """Return whether the text of an annotation says all about it: it holds no class of the user's own, and no
    object."""
    if isinstance(hint, type) and not typing.get_args(hint):
        return is_installed(hint.__module__)
    if typing.get_origin(hint) is typing.Literal:
        return True
    if typing.get_args(hint):
        return all(is_plain_hint(item) for item in typing.get_args(hint))
    return hint is None or hint is ... or isinstance(hint, str) or type(hint).__module__ == "typing"


def text_of(function: FunctionType, node: FunctionNode) -> str:
    """The source of a function as it is written."""
    lines = linecache.getlines(function.__code__.co_filename, function.__globals__)
    first = min([node.lineno, *(item.lineno for item in getattr(node, "decorator_list", []))])
    return "".join(lines[first - 1 : node.end_lineno])


#: Stands among the names that code mentions for one that it makes up, such as `getattr(x, NAMES[0])`.
ANY_NAME = "getattr(...)"
_BY_NAME = {"getattr", "hasattr"}


def reads_any_name(code: CodeType, node: FunctionNode | None) -> bool:
    """Return whether a function asks for attributes by names that do not stand in it."""
    if not any(not _BY_NAME.isdisjoint(inner.co_names) for inner in (code, *_nested(code))):
        return False
    if node is None:
        return True
    calls = (item for item in ast.walk(node) if isinstance(item, ast.Call) and len(item.args) > 1)
    names = (call.args[1] for call in calls if isinstance(call.func, ast.Name) and call.func.id in _BY_NAME)
    return not all(isinstance(name, ast.Constant) for name in names)


_Functions = list[tuple[CodeType, FunctionNode]]


class _Parsed:
    """A source file: its functions and lambdas as (code, node) pairs."""

    def __init__(self, tree: ast.Module, code: CodeType) -> None:
        self._tree = tree
        self._named: dict[tuple[str, int], FunctionNode] = {}
        self._lambdas: dict[int, list[ast.Lambda]] = {}
        self.classes: dict[str, list[ast.ClassDef]] = {}
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                first = node.decorator_list[0] if node.decorator_list else node
                self._named[(node.name, first.lineno)] = node
            elif isinstance(node, ast.Lambda):
                self._lambdas.setdefault(node.lineno, []).append(node)
            elif isinstance(node, ast.ClassDef):
                self.classes.setdefault(node.name, []).append(node)
        self.functions = self._in(code)

    def of_cell(self) -> _Functions:
        """As a notebook compiles a cell, each statement by itself: calls of what it imports are other code then."""
        alone = (ast.Module([statement], type_ignores=[]) for statement in self._tree.body)
        codes = (compile(module, "<cell>", "exec", _FLAGS, dont_inherit=True) for module in alone)
        return [found for code in codes for found in self._in(code)]

    def _in(self, code: CodeType) -> _Functions:
        pairs = []
        for nested in _nested(code):
            line = nested.co_firstlineno
            found = self._named.get((nested.co_name, line)) or _lambda_of(nested, self._lambdas.get(line, []))
            if found is not None:
                pairs.append((nested, found))
        return pairs


@functools.lru_cache(maxsize=64)
def _parse(filename: str, text: str) -> _Parsed | None:
    try:
        return _Parsed(_tree(text), compile(text, filename, "exec", _FLAGS, dont_inherit=True))
    except SyntaxError:
        return None


def _tree(text: str) -> ast.Module:
    """Parse `text`, one thread at a time.

    Up to 3.11.7 and 3.12.1 CPython counts the depth of all parses together (its issue 106905): one that begins during
    another, in a thread or in a finalizer (tracebacks parse), ends either with a SystemError. The lock does not reach
    what others parse, so a parse is tried again.
    """
    with _parsing:
        for _ in range(_PARSES - 1):
            with contextlib.suppress(SystemError):
                return ast.parse(text)
        return ast.parse(text)


def _find(functions: _Functions, code: CodeType) -> FunctionNode | None:
    if "TypeCheckMemo" in code.co_names:  # typeguard recompiles functions with its checks, without decorators
        at = (code.co_qualname, code.co_firstlineno)
        return next((node for nested, node in functions if (nested.co_qualname, node.lineno) == at), None)
    rewritten = any(name.startswith("@") for name in (*code.co_names, *code.co_varnames))
    wanted = _place(code) if rewritten else _essence(code)
    same = [
        (nested, node)
        for nested, node in functions
        if nested.co_name == code.co_name and wanted == (_place(nested) if rewritten else _essence(nested))
    ]
    # Equal code has equal source; the line only picks the right one for reading imports.
    same.sort(key=lambda pair: abs(pair[0].co_firstlineno - code.co_firstlineno))
    return same[0][1] if same else None


def _place(code: CodeType) -> tuple[Any, ...]:
    """Where code stands: all there is to go by in test modules, whose assertions were rewritten on import."""
    return (code.co_qualname, code.co_firstlineno)


def _essence(code: CodeType) -> CodeType:
    """Code without its place in the file, and without marks of `__future__` imports: cells inherit those."""
    constants = tuple(_essence(item) if isinstance(item, CodeType) else item for item in code.co_consts)
    return code.replace(
        co_filename="",
        co_qualname="",
        co_firstlineno=1,
        co_linetable=b"",
        co_flags=code.co_flags & _OWN_FLAGS,
        co_consts=constants,
    )


def _nested(code: CodeType) -> Iterator[CodeType]:
    for item in code.co_consts:
        if isinstance(item, CodeType):
            yield item
            yield from _nested(item)


def _lambda_of(code: CodeType, candidates: list[ast.Lambda]) -> ast.Lambda | None:
    """The lambda on a line that holds this code: the innermost whose body spans all of its instructions."""
    if code.co_name != "<lambda>":
        return None
    places = [
        ((line, start), (end_line, end))
        for line, end_line, start, end in code.co_positions()
        if line is not None and end_line is not None and start is not None and end  # end 0: of the frame
    ]
    spans = [(_span(node.body), node) for node in candidates]
    around = [(span, node) for span, node in spans if all(span[0] <= p[0] and p[1] <= span[1] for p in places)]
    return max(around, key=lambda pair: pair[0][0])[1] if around and places else None


def _span(node: ast.expr) -> tuple[tuple[int, int], tuple[int, int]]:
    return (node.lineno, node.col_offset), (node.end_lineno or 0, node.end_col_offset or 0)


def _without_docstring(body: list[ast.stmt]) -> list[ast.stmt]:
    match body:
        case [ast.Expr(value=ast.Constant(value=str())), *rest]:
            return rest
    return body


def _dump(item: Any) -> Any:
    """A syntax tree as nested lists. Empty fields are left out: those that later Pythons add do no harm."""
    if isinstance(item, list):
        return [_dump(child) for child in item]
    if not isinstance(item, ast.AST):
        return f"{type(item).__name__}:{item!r}"
    has_docstring = isinstance(item, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
    fields = []
    for name, value in ast.iter_fields(item):
        is_absent = value == [] or (value is None and not isinstance(item, ast.Constant))
        if not is_absent and name not in _IGNORED_FIELDS:
            content = _without_docstring(value) if has_docstring and name == "body" else value
            fields.append([name, _dump(content)])
    return [type(item).__name__, fields]


def _collect(node: ast.AST, tail: tuple[str, ...], chains: dict[str, set[tuple[str, ...]]]) -> None:
    if isinstance(node, ast.Attribute):
        _collect(node.value, (node.attr, *tail), chains)
        return
    if isinstance(node, ast.Name):
        chains.setdefault(node.id, set()).add(tail)
        return
    for child in ast.iter_child_nodes(node):
        _collect(child, (), chains)


#: The services take a source of so many bytes.
MAX_BYTES = 64 << 10
_SHOWN = (bool, int, float, complex, type(None))
_NAMED = (str, bytes, list, tuple, dict, set, frozenset)
#: Stands in the names of files that Jupyter gives to cells.
_CELL = "ipykernel"


class SourceText:
    """Functions and values in the order in which they are met; each is told once."""

    def __init__(self) -> None:
        self._functions: dict[tuple[str, int], str] = {}
        self._classes: dict[type, None] = {}
        self._values: dict[str, str] = {}

    def function(self, function: FunctionType, node: FunctionNode | None) -> None:
        """Take a function whose syntax tree is known to be what was loaded; None: it has no source to show."""
        if node is None:
            return
        first = min([node.lineno, *(d.lineno for d in getattr(node, "decorator_list", []))])
        place = (function.__code__.co_filename, first)
        if place not in self._functions:
            lines = linecache.getlines(place[0], function.__globals__)
            self._functions[place] = textwrap.dedent("".join(lines[first - 1 : node.end_lineno])).rstrip()

    def declared(self, value: type) -> None:
        """Take a class for the fields that it declares; its methods are taken as functions."""
        self._classes[value] = None

    def value(self, name: str, value: Any) -> None:
        """Take a constant that a function reads; values of other types are left out."""
        if type(value) in (*_SHOWN, *_NAMED):
            self._values.setdefault(name, constant(value))

    def __str__(self) -> str:
        values = [f"{name} = {value}" for name, value in sorted(self._values.items())]
        declared = [text for text in map(_declaration, self._classes) if text]
        text = "\n\n".join(["\n".join(values)] * bool(values) + declared + list(self._functions.values()))
        return text.encode(errors="replace")[:MAX_BYTES].decode(errors="ignore")


def _declaration(value: type) -> str:
    """The fields of a class as it declares them, with decorators and settings; empty if it has none, or no source."""
    node = _class_node(value)
    if node is None:
        return ""
    fields = [_without_text(item) for item in node.body if isinstance(item, ast.AnnAssign) or _is_made_by_call(item)]
    if not fields:
        return ""
    return ast.unparse(ast.ClassDef(node.name, node.bases, node.keywords, fields, node.decorator_list))


def _is_made_by_call(item: ast.stmt) -> bool:
    return isinstance(item, ast.Assign) and isinstance(item.value, ast.Call)


def _without_text(item: ast.stmt) -> ast.stmt:
    """A field with a mark in place of a default that is a text, which may be secret."""
    if isinstance(item, ast.AnnAssign) and isinstance(item.value, ast.Constant):
        return ast.AnnAssign(item.target, item.annotation, ast.Name(constant(item.value.value)), item.simple)
    return item


def _class_node(value: type) -> ast.ClassDef | None:
    """The last class of this name and these fields in the files that may declare it; None where there is none."""
    fields = set(vars(value).get("__annotations__", {}))
    for file in _files_of(value):
        parsed = _parse(file, "".join(linecache.getlines(file)))
        for node in reversed(parsed.classes.get(value.__name__, []) if parsed is not None else []):
            if {name for item in node.body if (name := _annotated_name(item))} == fields:
                return node
    return None


def _annotated_name(item: ast.stmt) -> str:
    return item.target.id if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name) else ""


def _files_of(value: type) -> Iterator[str]:
    """The file of a class's module; of a notebook, which has none, its cells, the latest first."""
    file = getattr(sys.modules.get(value.__module__), "__file__", None)
    if file:
        linecache.checkcache(file)
        yield file
    else:
        yield from (name for name in reversed(list(linecache.cache)) if _CELL in name or name.startswith("<"))


def constant(value: Any) -> str:
    """A number in full; of texts and containers, which may hold what is secret, only a mark that tells changes."""
    if type(value) in _SHOWN:
        return repr(value)
    return f"<{type(value).__name__} {_mark(value)}>"


def _mark(value: Any) -> str:
    """Four hex digits: enough to see that something changed, too few to try out what it is."""
    held = value.copy() if type(value) is set else value  # other threads may write to it
    try:
        parts = sorted(map(_mark, held)) if isinstance(held, set | frozenset) else repr(held)
    except Exception:  # noqa: BLE001 - what it holds may be of anybody's classes
        parts = type(held).__name__
    return hashlib.sha256(str(parts).encode(errors="replace")).hexdigest()[:4]


def own_text(target: Any) -> str:
    """The text of a function, or of the methods of a class, without what they use; empty where it cannot be read."""
    found = SourceText()
    for function in vars(target).values() if isinstance(target, type) else [target]:
        if isinstance(function, FunctionType):
            with contextlib.suppress(VersionRequired):
                found.function(function, function_node(function))
    return str(found)
