"""The source of loaded code, as a normal form and as text for people, and whether code is installed.

The normal form does not depend on comments, layout and docstrings. The digest of a plain value is the same on every
machine, and values of different types never have the same digest.
"""

from __future__ import annotations

import ast
import contextlib
import functools
import hashlib
import importlib.util
import linecache
import struct
import sys
import sysconfig
import textwrap
import threading
import types
import typing
from collections.abc import Iterator
from importlib.machinery import BuiltinImporter, FrozenImporter
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

from leman._arrow import pa
from leman.errors import VersionRequired

#: Packages of the services' distribution.
_PACKAGES = frozenset(
    {"leman_coordinator", "leman_core", "leman_executor", "leman_internal", "leman_local", "leman_planner"}
)
_INSTALLED_FOLDERS = ("site-packages", "dist-packages")


def is_installed(name: str) -> bool:
    """Return True for a module of the standard library, of an installed distribution or of Leman itself.

    Workers have such code, so it is sent by name only. All other code is the user's own and is sent by value. That
    includes distributions in editable mode, whose code can change while their version does not. The path of the
    module's file decides, not its name: a user's `profile.py` is not part of Python.
    """
    top = name.partition(".")[0]
    if top == "__main__" or not name:
        return False
    if top == "leman" or top in _PACKAGES or _is_built_in(name):
        return True
    places = _locations(name)
    if not places:  # parts of a module that have no file, and modules that this platform does not have
        return is_installed(top) if top != name else name in sys.stdlib_module_names
    return any(_is_installed_path(path) for path in places)


def is_installed_code(namespace: dict[str, Any]) -> bool:
    """Return True if the module with these globals is installed, even if `sys.modules` has another by its name."""
    name = str(namespace.get("__name__") or "")
    module = sys.modules.get(name)
    file = namespace.get("__file__")
    if not isinstance(file, str) or name == "__main__" or (module is not None and vars(module) is namespace):
        return is_installed(name)
    return _is_installed_path(file) or name.partition(".")[0] == "leman"


def is_installed_class(value: type) -> bool:
    """Return True for a class that workers have.

    The module name of a class may mislead. Classes that the standard library makes for others, such as by
    `dataclasses.make_dataclass`, have the module `types`, and metaclasses set their own module. A user's file may be
    loaded under the name of an installed module. In this last case, the class's methods show where it comes from.
    """
    if value.__module__ == "types":
        return getattr(types, value.__qualname__, None) is value
    if not is_installed(value.__module__) or _is_named_by_metaclass(value):
        return False
    methods = (item for item in vars(value).values() if isinstance(item, FunctionType))
    own = next((m for m in methods if m.__code__.co_qualname == f"{value.__qualname__}.{m.__name__}"), None)
    return own is None or own.__module__ != value.__module__ or is_installed_code(own.__globals__)


def _is_named_by_metaclass(value: type) -> bool:
    """Return True for a class with the module of the code that made it: `type("C", (abc.ABC,), {})` is in `abc`."""
    home = value.__module__
    if home == "builtins" or home not in [kind.__module__ for kind in type.mro(type(value))]:
        return False
    return getattr(sys.modules.get(home), value.__qualname__.partition(".")[0], None) is None


def loaded_user_modules() -> list[ModuleType]:
    return [module for name, module in list(sys.modules.items()) if _is_user(name, module)]


def _is_built_in(name: str) -> bool:
    """Return True for a module of the interpreter itself, which has no file, or whose file is not read."""
    module = sys.modules.get(name)
    if module is None:
        return name in sys.builtin_module_names
    spec = getattr(module, "__spec__", None)
    return getattr(spec, "loader", None) in (BuiltinImporter, FrozenImporter)


def _locations(name: str) -> list[str]:
    module = sys.modules.get(name)
    if module is not None:
        file = getattr(module, "__file__", None)
        return [file] if file else [str(path) for path in getattr(module, "__path__", ())]
    try:
        spec = importlib.util.find_spec(name)
    except (ImportError, ValueError):
        return []
    if spec is None:
        return []
    return [spec.origin] if spec.origin and spec.has_location else list(spec.submodule_search_locations or ())


@functools.cache
def _is_installed_path(path: str) -> bool:
    if any(part in _INSTALLED_FOLDERS for part in Path(path).parts):
        return True
    return any(place.is_relative_to(folder) for place in {Path(path), Path(path).resolve()} for folder in _folders())


@functools.cache
def _folders() -> frozenset[Path]:
    """Return the folders of this Python, also with links resolved, and its archive, if any."""
    kinds = ("purelib", "platlib", "stdlib", "platstdlib")
    found = {Path(folder) for kind in kinds if (folder := sysconfig.get_paths().get(kind))}
    found.add(Path(functools.__file__).parent)
    return frozenset(found | {folder.resolve() for folder in found})


def _is_user(name: str, module: ModuleType | None) -> bool:
    if not isinstance(module, ModuleType) or module.__name__ != name or name == "__main__":
        return False
    return bool(_locations(name)) and not is_installed(name)


def plain(value: Any) -> tuple[bytes, ...] | None:
    """Return the type and content of a value that contains no other values, or None for anything else."""
    kind = type(value)
    if kind is int:
        return (b"int", hex(value).encode())  # repr refuses very long integers
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
    """Return what the text of an Arrow type, field or schema omits: metadata, and parameters of extension types."""
    found = []
    if not isinstance(value, pa.DataType) and value.metadata:
        found.append(of_parts(*(part for pair in value.metadata.items() for part in pair)))
    if isinstance(value, pa.BaseExtensionType):
        serialize = getattr(value, "__arrow_ext_serialize__", bytes)  # the text of Arrow's own types is complete
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
    """Return the sha256 of the parts, each of which is preceded by its length."""
    digest = hashlib.sha256()
    for part in parts:
        digest.update(struct.pack(">Q", len(part)) + part)
    return digest.digest()


FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda

_OWN_FLAGS = 0xFFFF  # higher bits stand for __future__ imports
_FLAGS = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT  # as in notebooks
_IGNORED_FIELDS = {"ctx", "type_comment", "kind"}
_PARSES = 5
_parsing = threading.RLock()  # reentrant, because a finalizer may parse during a parse


def function_node(function: FunctionType) -> FunctionNode | None:
    """Return the syntax tree of a loaded function, or None if it has no file (`python -c`, a REPL, `exec`).

    Raises VersionRequired if its file cannot be read, or does not contain the loaded code.
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
    """Return the parameters and the body of a function as nested lists.

    Docstrings, decorators, defaults and the function's own annotations are omitted: they either have no effect, or are
    digested as values.
    """
    body = [node.body] if isinstance(node, ast.Lambda) else _without_docstring(node.body)
    names = [arg.arg for arg in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)]
    stars = [arg.arg if arg else "" for arg in (node.args.vararg, node.args.kwarg)]
    return [type(node).__name__, names, stars, [_dump(item) for item in body]]


def attribute_chains(node: ast.AST) -> dict[str, set[tuple[str, ...]]]:
    """Return how each name is used. `a.b.c` is {"a": {("b", "c")}}, and a bare `a` is {"a": {()}}."""
    chains: dict[str, set[tuple[str, ...]]] = {}
    _collect(node, (), chains)
    return chains


def order_free(node: ast.AST) -> set[str]:
    """Return names whose uses never depend on the order of keys: `a[k]`, `k in a`, `a.get(k)`, `len(a)`."""
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
    try:
        return {node.id for node in ast.walk(_tree(text.strip())) if isinstance(node, ast.Name)}
    except SyntaxError:
        return set()


def is_plain_hint(hint: Any) -> bool:
    """Return whether an annotation's text describes it fully: it contains no user's class and no object."""
    if isinstance(hint, type) and not typing.get_args(hint):
        return is_installed(hint.__module__)
    if typing.get_origin(hint) is typing.Literal:
        return True
    if typing.get_args(hint):
        return all(is_plain_hint(item) for item in typing.get_args(hint))
    return hint is None or hint is ... or isinstance(hint, str) or type(hint).__module__ == "typing"


def text_of(function: FunctionType, node: FunctionNode) -> str:
    """Return the source text of a function, unchanged."""
    lines = linecache.getlines(function.__code__.co_filename, function.__globals__)
    first = min([node.lineno, *(item.lineno for item in getattr(node, "decorator_list", []))])
    return "".join(lines[first - 1 : node.end_lineno])


#: Stands for a name that code computes, as in `getattr(x, NAMES[0])`.
ANY_NAME = "getattr(...)"
_BY_NAME = {"getattr", "hasattr"}


def reads_any_name(code: CodeType, node: FunctionNode | None) -> bool:
    """Return whether a function reads attributes whose names it computes."""
    if not any(not _BY_NAME.isdisjoint(inner.co_names) for inner in (code, *_nested(code))):
        return False
    if node is None:
        return True
    calls = (item for item in ast.walk(node) if isinstance(item, ast.Call) and len(item.args) > 1)
    names = (call.args[1] for call in calls if isinstance(call.func, ast.Name) and call.func.id in _BY_NAME)
    return not all(isinstance(name, ast.Constant) for name in names)


_Functions = list[tuple[CodeType, FunctionNode]]


class _Parsed:
    """A source file with its functions and lambdas as (code, node) pairs."""

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
        """Return the functions compiled as in a notebook's cell: one statement at a time, which changes their code."""
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

    Up to 3.11.7 and 3.12.1, CPython counts the depth of all parses together (its issue 106905). Two concurrent parses
    can therefore fail with a SystemError; finalizers parse too, as tracebacks do. Other code parses without this lock,
    so a failed parse is retried.
    """
    with _parsing:
        for _ in range(_PARSES - 1):
            with contextlib.suppress(SystemError):
                return ast.parse(text)
        return ast.parse(text)


def _find(functions: _Functions, code: CodeType) -> FunctionNode | None:
    if "TypeCheckMemo" in code.co_names:  # typeguard recompiles functions with its checks and without decorators
        at = (code.co_qualname, code.co_firstlineno)
        return next((node for nested, node in functions if (nested.co_qualname, node.lineno) == at), None)
    rewritten = any(name.startswith("@") for name in (*code.co_names, *code.co_varnames))
    wanted = _place(code) if rewritten else _essence(code)
    same = [
        (nested, node)
        for nested, node in functions
        if nested.co_name == code.co_name and wanted == (_place(nested) if rewritten else _essence(nested))
    ]
    # Equal code has equal source. The line only decides which one is used to read imports.
    same.sort(key=lambda pair: abs(pair[0].co_firstlineno - code.co_firstlineno))
    return same[0][1] if same else None


def _place(code: CodeType) -> tuple[Any, ...]:
    """Return the position of code, by which code of test modules is found although pytest rewrites their assertions."""
    return (code.co_qualname, code.co_firstlineno)


def _essence(code: CodeType) -> CodeType:
    """Return code without its place in the file, and without the flags of `__future__` imports, which cells inherit."""
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
    """Return the syntax tree of a lambda: the innermost one on its line whose body spans all of its instructions."""
    if code.co_name != "<lambda>":
        return None
    places = [
        ((line, start), (end_line, end))
        for line, end_line, start, end in code.co_positions()
        if line is not None and end_line is not None and start is not None and end  # end is 0 for frame setup
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
    """Return a syntax tree as nested lists without empty fields, so that fields of later Pythons change nothing."""
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


#: The services accept a source of at most this size.
MAX_BYTES = 64 << 10
_SHOWN = (bool, int, float, complex, type(None))
_NAMED = (str, bytes, list, tuple, dict, set, frozenset)
#: Part of the file names that Jupyter gives to cells.
_CELL = "ipykernel"


class SourceText:
    """The text of functions and values, each once, in the order in which they are added."""

    def __init__(self) -> None:
        self._functions: dict[tuple[str, int], str] = {}
        self._classes: dict[type, None] = {}
        self._values: dict[str, str] = {}

    def function(self, function: FunctionType, node: FunctionNode | None) -> None:
        """Add a function by its syntax tree, which is None if it has no source."""
        if node is None:
            return
        first = min([node.lineno, *(d.lineno for d in getattr(node, "decorator_list", []))])
        place = (function.__code__.co_filename, first)
        if place not in self._functions:
            lines = linecache.getlines(place[0], function.__globals__)
            self._functions[place] = textwrap.dedent("".join(lines[first - 1 : node.end_lineno])).rstrip()

    def declared(self, value: type) -> None:
        """Add the fields that a class declares. Its methods are added as functions."""
        self._classes[value] = None

    def value(self, name: str, value: Any) -> None:
        """Add a value that a function reads, if it is a number, text, bytes, a built-in collection or None."""
        if type(value) in (*_SHOWN, *_NAMED):
            self._values.setdefault(name, constant(value))

    def __str__(self) -> str:
        values = [f"{name} = {value}" for name, value in sorted(self._values.items())]
        declared = [text for text in map(_declaration, self._classes) if text]
        text = "\n\n".join(["\n".join(values)] * bool(values) + declared + list(self._functions.values()))
        return text.encode(errors="replace")[:MAX_BYTES].decode(errors="ignore")


def _declaration(value: type) -> str:
    """Return the declared fields of a class with decorators and settings, or "" if it has none, or no source."""
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
    """Return a field of a class. If its default is text, which may be secret, a mark replaces the default."""
    if isinstance(item, ast.AnnAssign) and isinstance(item.value, ast.Constant):
        return ast.AnnAssign(item.target, item.annotation, ast.Name(constant(item.value.value)), item.simple)
    return item


def _class_node(value: type) -> ast.ClassDef | None:
    """Return the last class of this name with these fields in the files that may declare it, or None."""
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
    """Yield the file of a class's module. In a notebook, yield the cells instead, the latest first."""
    file = getattr(sys.modules.get(value.__module__), "__file__", None)
    if file:
        linecache.checkcache(file)
        yield file
    else:
        yield from (name for name in reversed(list(linecache.cache)) if _CELL in name or name.startswith("<"))


def constant(value: Any) -> str:
    """Return the text of a constant.

    A number is written in full. Text and containers may be secret, so for them only a mark is returned, which changes
    if they change.
    """
    if type(value) in _SHOWN:
        return repr(value)
    return f"<{type(value).__name__} {_mark(value)}>"


def _mark(value: Any) -> str:
    """Return four hex digits: enough digits to show that something changed, too few to guess the value."""
    held = value.copy() if type(value) is set else value  # other threads may change it meanwhile
    try:
        parts = sorted(map(_mark, held)) if isinstance(held, set | frozenset) else repr(held)
    except Exception:  # noqa: BLE001 - it may contain objects of the user's classes
        parts = type(held).__name__
    return hashlib.sha256(str(parts).encode(errors="replace")).hexdigest()[:4]


def own_text(target: Any) -> str:
    """Return the text of a function, or of a class's methods, without the code that they use, or "" if unreadable."""
    found = SourceText()
    for function in vars(target).values() if isinstance(target, type) else [target]:
        if isinstance(function, FunctionType):
            with contextlib.suppress(VersionRequired):
                found.function(function, function_node(function))
    return str(found)
