# ruff: noqa: E501 - each case is a program of a few lines
"""A version covers what the function can observe of the objects that it uses, and nothing that it cannot."""

from __future__ import annotations

import importlib.util
import itertools
import os
import pickle
import re
import string
import subprocess
import sys
import textwrap

import cloudpickle
import pandas as pd
import pyarrow as pa
import pytest

import leman
from leman._functions import version_digest
from leman._functions.bundle import make_bundle
from leman._functions.version_digest import derive_version
from leman.errors import UdfDefinitionError

#: Each is a module with a function `f`; K is 2, and 3 after the edit. MODELS run where their library is installed.
EDITS = {
    "order of a dict": "D = {'ab': 1, 'a': 2} if K == 2 else {'a': 2, 'ab': 1}\ndef f(n): return next(iter(D))",
    "order of a dict that is also looked up":
        "D = {'ab': 1, 'a': 2} if K == 2 else {'a': 2, 'ab': 1}\ndef f(n): return D['a'] + list(D.items())[0][1]",
    "order of an inner dict": "D = {'d': {'x': 1, 'y': 2} if K == 2 else {'y': 2, 'x': 1}}\ndef f(n): return list(D['d'])",
    "order of an OrderedDict":
        "import collections\nD = collections.OrderedDict([('a', 1), ('b', 2)][::K * 2 - 5])\ndef f(n): return next(iter(D))",
    "order of a Counter": "import collections\nD = collections.Counter('ab' if K == 2 else 'ba')\ndef f(n): return D.most_common(1)",
    "order of an object's attributes":
        "import types\nN = types.SimpleNamespace()\nfor a in ['x', 'y'][::K * 2 - 5]: setattr(N, a, 1)\ndef f(n): return list(vars(N))",
    "order of a class": "C = type('C', (), {'x': 1, 'y': 2} if K == 2 else {'y': 2, 'x': 1})\n"
        "def f(n): return [name for name in vars(C) if len(name) == 1]",
    "order of keywords":
        "import functools\ndef g(**kw): return next(iter(kw))\nP = functools.partial(g, **({'a': 1, 'b': 1} if K == 2 else {'b': 1, 'a': 1}))\n"
        "def f(n): return P()",
    "factory of a defaultdict":
        "import collections, functools\nD = collections.defaultdict(functools.partial(int, K))\ndef f(n): return D['x']",
    "attribute of a function": "def g(n): return n * g.by\ng.by = K\ndef f(n): return g(n)",
    "attribute of a function, by getattr": "def g(n): return n\ng.by = K\ndef f(n): return getattr(g, 'by')",
    "attribute of a decorated function":
        "import contextlib\n@contextlib.contextmanager\ndef g(): yield 1\ng.by = K\ndef f(n): return g.by",
    "attribute of a dict": "class V(dict): pass\nD = V(); D.by = K\ndef f(n): return D.by",
    "attribute of a list": "class V(list): pass\nD = V(); D.by = K\ndef f(n): return D.by",
    "attribute of a set": "class V(set): pass\nD = V(); D.by = K\ndef f(n): return D.by",
    "attribute of an array":
        "import numpy as np\nclass V(np.ndarray): pass\nD = np.zeros(1).view(V); D.by = K\ndef f(n): return D.by",
    "attribute of a date": "import datetime\nclass V(datetime.date): pass\nD = V(2020, 1, 1); D.by = K\ndef f(n): return D.by",
    "decorator object":
        "import functools\nclass By:\n    def __init__(self, g, by): functools.update_wrapper(self, g); self.g, self.by = g, by\n"
        "    def __call__(self, n): return self.g(n) * self.by\nG = By(lambda n: n, K)\ndef f(n): return G(n)",
    "metadata of a dataclass field":
        "import dataclasses\n@dataclasses.dataclass\nclass R:\n    n: int = dataclasses.field(default=0, metadata={'by': K})\n"
        "def f(n): return dataclasses.fields(R)[0].metadata['by']",
    "repr of a dataclass field":
        "import dataclasses\n@dataclasses.dataclass\nclass R:\n    n: int = dataclasses.field(default=0, repr=K == 2)\n"
        "def f(n): return repr(R())",
    "order of parameters of a dataclass":
        "import dataclasses\nI = dataclasses.InitVar[int]\nR = dataclasses.make_dataclass('R', [('a', I, 1), ('b', I, 1)][::K * 2 - 5],\n"
        "    namespace={'__post_init__': lambda s, *v: None})\ndef f(n): return R(1)",
    "annotations of a tuple":
        "import typing\nclass H(typing.NamedTuple):\n    n: (int if K == 2 else float)\ndef f(n): return H.__annotations__['n'](n)",
    "annotations of a function":
        "def hint(g): return lambda v: g(g.__annotations__['v'](v))\n@hint\ndef g(v: (int if K == 2 else float)): return repr(v)\n"
        "def f(n): return g(n)",
    "annotations, read by the standard library":
        "import typing as t\ndef g(v: (int if K == 2 else float)): return 1\nread = t.get_type_hints\ndef f(n): return repr(read(g))",
    "a class that an annotation names":
        "from __future__ import annotations\nimport dataclasses, typing\n@dataclasses.dataclass\nclass In:\n    n: int = K\n"
        "@dataclasses.dataclass\nclass Out:\n    i: In = None\ndef f(n): return typing.get_type_hints(Out)['i']().n",
    "slots": "C = type('C', (), {'__slots__': ('a',) if K == 2 else ('b',)})\ndef f(n): return C.__slots__",
    "match args":
        "class P:\n    __match_args__ = ('a', 'b') if K == 2 else ('b', 'a')\n    a, b = 1, 2\n"
        "def f(n):\n    match P():\n        case P(x, y): return x",
    "generic bases":
        "import typing\nT = typing.TypeVar('T')\nclass B(typing.Generic[T]): pass\nclass C(B[int if K == 2 else float]): pass\n"
        "def f(n): return repr(C.__orig_bases__)",
    "metadata of a field": "import pyarrow as pa\nF = pa.field('n', pa.int64(), metadata={'by': str(K)})\ndef f(n): return F.metadata[b'by']",
    "metadata of a schema":
        "import pyarrow as pa\nF = pa.schema([pa.field('n', pa.int64())], metadata={'by': 'x' * 5000 + str(K)})\ndef f(n): return F.metadata",
    "metadata inside a type":
        "import pyarrow as pa\nF = pa.struct([pa.field('n', pa.int64(), metadata={'by': str(K)})])\ndef f(n): return F[0].metadata",
    "a docstring": "def g(): 'Words'\ng.__doc__ = 'Words' * K\ndef f(n): return g.__doc__",
    "a docstring, by inspect": "import inspect\ndef g(): 'Words'\ng.__doc__ = 'Words' * K\ndef f(n): return inspect.getdoc(g)",
    "a docstring, by another name":
        "from inspect import getdoc as words\ndef g(): 'Words'\ng.__doc__ = 'Words' * K\ndef f(n): return words(g)",
    "docstring of a class": "C = type('C', (), {'__doc__': 'Words' * K})\ndef f(n): return C.__doc__",
    "name of a class": "C = [type('C' * K, (), {})]\ndef f(n): return C[0].__name__",
    "module as a whole":
        "import sys, types\nm = types.ModuleType('whole'); m.__file__ = '/mine/whole.py'; sys.modules['whole'] = m\n"
        "def g(n): return n * K\nm.g = g\ndef f(n): return getattr(m, 'g')(n)",
    "a value that is computed once":
        "import functools\nclass C:\n    @functools.cached_property\n    def v(self): return K\nc = C()\ndef f(n): return c.v",
    "attributes of an enum's members":
        "import enum\nclass B(enum.Enum):\n    def __new__(cls, v, label):\n        o = object.__new__(cls); o._value_ = v; o.label = label; return o\n"
        "class E(B):\n    A = (1, K)\n    ALSO = (1, 0)\ndef f(n): return E.A.label, E(1).name, list(E.__members__)",
    "an attribute that a member was given": "import enum\nclass E(enum.Enum): A = 1\nE.A.by = K\ndef f(n): return E.A.by",
    "members with values of another type":
        "import enum\nclass E(str, enum.Enum):\n    def __new__(cls, v, label):\n        o = str.__new__(cls, v * 2); o._value_ = v; o.label = label\n"
        "        return o\n    A = ('x', K)\nclass P(enum.Flag): R, W, RW = 1, 2, 3\ndef f(n): return E.A == 'xx', E('x').label, P(3).name, P.R | P.W is P.RW",
    "values that an __init__ of an enum takes":
        "import enum\nclass E(enum.Enum):\n    A = (1, K)\n    def __init__(self, x, y): self.sum = x + y\ndef f(n): return E.A.sum, E((1, K)).name",
    "a class that is registered with an abstract one":
        "import abc\nclass A(abc.ABC): pass\nA.register(int if K == 2 else str)\ndef f(n): return isinstance(1, A)",
    "a class that gets the module of its metaclass":
        "import abc\nC = type('C', (abc.ABC,), {'x': K})\ndef f(n): return C.x",
    "whether a cache tells types apart":
        "import functools\ng = functools.lru_cache(typed=K == 2)(lambda n: type(n).__name__)\ndef f(n): return g(1.0), g(True)",
    "the size of a cache, where it is read":
        "import functools\n@functools.lru_cache(maxsize=K)\ndef g(n): return n\ndef f(n): return g.cache_parameters()['maxsize']",
    "a method that dispatches by type":
        "import functools\nclass C:\n    @functools.singledispatchmethod\n    def g(self, n): return 0\n    @g.register(int)\n"
        "    def _(self, n): return K\ndef f(n): return C().g(n)",
    "code of a derived partial":
        "import functools\nclass P(functools.partial):\n    def __call__(self, *a): return super().__call__(*a) * self.by\nG = P(abs); G.by = K\n"
        "def f(n): return G(n)",
    "code of a derived property":
        "class P(property):\n    def __get__(self, o, t=None): return self if o is None else super().__get__(o, t) * self.by\n"
        "class C:\n    v = P(lambda self: 1)\n    v.by = K\ndef f(n): return C().v",
    "code of a derived property that is computed once":
        "import functools\nclass P(functools.cached_property):\n    def __get__(self, o, t=None): return self if o is None else self.func(o) * K\n"
        "class C:\n    @P\n    def v(self): return 1\ndef f(n): return C().v",
    "code of a derived class method":
        "class M(classmethod):\n    def __get__(self, o, t=None): return lambda: K\nclass C:\n    @M\n    def v(cls): return 1\ndef f(n): return C.v()",
    "docstring of a property": "class C: v = property(lambda self: 1, doc='Words' * K)\ndef f(n): return C.v.__doc__",
    "entries behind another __getitem__":
        "class V(dict):\n    def __getitem__(self, k): return 0\nD = V(a=K)\ndef f(n): return list(D.items())",
    "items behind another __iter__": "class V(tuple):\n    def __iter__(self): return iter(())\nD = V([K])\ndef f(n): return D[0]",
    "a slot of a container": "class V(dict): __slots__ = ('by',)\nD = V(); D.by = K\ndef f(n): return D.by",
    "an attribute by a name in a variable":
        "def g(n): return n\ng.rule_a = K\nNAMES = ['rule_a']\ndef f(n): return [getattr(g, name) for name in NAMES]",
    "an attribute by a name that is put together":
        "def g(n): return n\ng.rule_a = K\ndef f(n): return getattr(g, f'rule_{chr(97)}')",
    "an attribute by attrgetter": "import operator\ndef g(n): return n\ng.by = K\nG = operator.attrgetter('by')\ndef f(n): return G(g)",
    "name of a function": "def g(n): return n\ng.__name__ = 'g' * K\ndef f(n): return g.__name__",
    "an object in a module as a whole":
        "import string, sys, types\nm = types.ModuleType('whole'); m.__file__ = '/mine/whole.py'; sys.modules['whole'] = m\n"
        "m.words = string.Template('x' * K)\ndef f(n): return getattr(m, 'words').template",
    "what a module gives by __getattr__":
        "import sys, types\nm = types.ModuleType('whole'); m.__file__ = '/mine/whole.py'; sys.modules['whole'] = m\n"
        "def give(name): return K\nm.__getattr__ = give\ndef f(n): return getattr(m, 'any')",
    "the type behind a NewType":
        "import typing\nL = typing.NewType('L', int if K == 2 else str)\ndef f(n): return L.__supertype__.__name__",
    "a typed dict":
        "import typing\nclass T(typing.TypedDict, total=K == 2):\n    'Words.'\n    a: int\nclass U(T):\n    more: 'U'\ndef g(u: U) -> T: return u\n"
        "def f(n): return g({}), T.__total__, sorted(U.__required_keys__), T(a=1)",
    "a packed layout": "import struct\nS = struct.Struct('<i' if K == 2 else '>i')\ndef f(n): return S.pack(n)",
    "precision of decimals": "import decimal\nX = decimal.Context(prec=K)\ndef f(n): return str(X.divide(1, 3))",
    "numpy's vectorize": "import numpy as np\nV = np.vectorize(lambda a: a * K, otypes=[float])\ndef f(n): return V([n]).tolist()",
    "a global that only a class in the function reads":
        "V = K\ndef f(n):\n    class C:\n        class D: x = V\n    return C.D.x",
    "a slice with an object": "class I:\n    def __index__(self): return K\nS = slice(0, I())\ndef f(n): return [1, 2, 3, 4][S]",
    "a key that has no text":
        "class I:\n    def __init__(self): self.k = K\n    def __repr__(self): raise ValueError\nD = {I(): 1}\ndef f(n): return [i.k for i in D]",
    "a class that make_dataclass made":
        "import dataclasses\nR = dataclasses.make_dataclass('R', [('a', int, K)])\ndef f(n): return R().a",
}  # fmt: skip
MODELS = {
    "pydantic":
        "import pydantic\nclass M(pydantic.BaseModel):\n    n: int = pydantic.Field(default=K, ge=0)\n    @pydantic.field_validator('n')\n"
        "    @classmethod\n    def check(cls, v): return v\ndef f(n): return M(n=n).n",
    "pydantic, referring to itself":
        "import pydantic\nclass M(pydantic.BaseModel):\n    n: int = K\n    more: 'list[M]' = []\ndef f(n): return M(n=n).n",
    "pydantic, a constraint":
        "import pydantic, typing\nclass M(pydantic.BaseModel):\n    n: typing.Annotated[int, pydantic.Field(ge=K - 9)]\ndef f(n): return M(n=n).n",
    "pydantic, a model within":
        "import pydantic\nclass I(pydantic.BaseModel):\n    n: int = K\nclass M(pydantic.BaseModel):\n    i: I = I()\n"
        "def f(n): return M().i.n",
    "pydantic, mode of a validator":
        "import pydantic\nclass M(pydantic.BaseModel):\n    n: int = 1\n    @pydantic.field_validator('n', mode='before' if K == 2 else 'after')\n"
        "    @classmethod\n    def check(cls, v): return v\ndef f(n): return M(n=n).n",
    "pydantic, a setting": "import pydantic\nclass M(pydantic.BaseModel, frozen=K == 2):\n    n: int = 1\ndef f(n): return M(n=n).n",
    "pydantic, a type adapter":
        "import pydantic\nA = pydantic.TypeAdapter(int if K == 2 else float)\ndef f(n): return A.validate_python(n)",
    "pydantic, a checked function":
        "import pydantic\n@pydantic.validate_call\ndef g(n: (int if K == 2 else float)): return n\ndef f(n): return g(n)",
    "attrs":
        "import attrs\n@attrs.define\nclass A:\n    n: int = attrs.field(default=K, validator=attrs.validators.ge(0), metadata={'a': 1})\n"
        "def f(n): return A(n).n",
    "msgspec, a default": "import msgspec\nclass S(msgspec.Struct):\n    n: int = K\ndef f(n): return S().n",
    "msgspec, a setting": "import msgspec\nclass S(msgspec.Struct, frozen=K == 2):\n    n: int = 1\ndef f(n): return S(n).n",
    "msgspec, names":
        "import msgspec\nclass S(msgspec.Struct, rename='camel' if K == 2 else 'kebab'):\n    a_b: int = 1\ndef f(n): return S(n).a_b",
    "attrs, frozen":
        "import attrs\n@attrs.frozen\nclass A:\n    n: list = attrs.Factory(lambda: [K])\ndef f(n): return A().n",
    "msgspec, fields of several kinds":
        "import msgspec, typing\nclass B(msgspec.Struct, tag='b', frozen=True):\n    x: typing.Annotated[int, msgspec.Meta(ge=K - 9)]\n"
        "class S(B, rename='camel', kw_only=True, frozen=True):\n    a_b: int = K\n    c: list = msgspec.field(default_factory=list)\n    d: int\n"
        "    def m(self): return self.d * K\n    def __post_init__(self): self.c.append(K)\n"
        "def f(n): return msgspec.json.encode(S(1, d=n)), S(1, d=n).m(), msgspec.convert({'type': 'b', 'x': 1, 'd': 2}, S)",
    "pydantic, a dataclass":
        "import pydantic.dataclasses\n@pydantic.dataclasses.dataclass(config={'frozen': K == 2})\nclass M:\n    n: int = 1\n"
        "def f(n):\n    m = M()\n    try: m.n = 5\n    except Exception: pass\n    return m.n",
    "pydantic, a private attribute":
        "import pydantic\nclass M(pydantic.BaseModel):\n    _p: int = pydantic.PrivateAttr(default=K)\n    v: int = 1\ndef f(n): return M()._p",
    "msgspec, a type": "import msgspec\nclass S(msgspec.Struct):\n    n: (int if K == 2 else float)\ndef f(n): return S(n).n",
    "an object in Annotated":
        "import dataclasses, typing\nclass Unit: by = K\n@dataclasses.dataclass\nclass L:\n    n: typing.Annotated[int, Unit()] = 0\n"
        "def f(n): return L(n).n",
    "tenacity":
        "import tenacity\n@tenacity.retry(stop=tenacity.stop_after_attempt(K))\ndef g(n): return n\ndef f(n): return g(n)",
    "jsonschema":
        "import jsonschema\nV = {'type': 'integer', 'minimum': K - 9}\ndef f(n): return jsonschema.Draft202012Validator(V).is_valid(n)",
    "beartype": "import beartype\n@beartype.beartype\ndef g(n: int) -> int: return n * K\ndef f(n): return g(n)",
    "typeguard": "import typeguard\n@typeguard.typechecked\ndef g(n: int) -> int: return n * K\ndef f(n): return g(n)",
    "wrapt":
        "import wrapt\n@wrapt.decorator\ndef w(wrapped, instance, args, kwargs): return wrapped(*args) * K\n@w\ndef g(n): return n\n"
        "def f(n): return g(n)",
    "numba, an option":
        "import numba\n@numba.njit(fastmath=K == 2)\ndef g(n): return n\ndef f(n): return g(n)",
    "cachetools":
        "import cachetools\n@cachetools.cached(cachetools.LRUCache(9))\ndef g(n): return n * K\ndef f(n): return g(n)",
    "toolz": "import toolz\n@toolz.curry\ndef g(a, n): return a * n\nG = g(K)\ndef f(n): return G(n)",
    "cytoolz": "import cytoolz\n@cytoolz.curry\ndef g(a, n): return a * n\nG = g(K)\ndef f(n): return G(n)",
    "sqlmodel": "import sqlmodel\nclass M(sqlmodel.SQLModel):\n    n: int = K\ndef f(n): return M(n=n).n",
}  # fmt: skip
_INSTALLED_BY_TESTS = ("pydantic", "attrs", "msgspec", "tenacity", "jsonschema", "dataclasses")
_CASES = {**EDITS, **MODELS}
_NOT_HERE = {
    "factory of a defaultdict": "the call adds a key, which the next one observes",
    "module as a whole": "its module is none of a file",
    "an object in a module as a whole": "its module is none of a file",
    "what a module gives by __getattr__": "its module is none of a file",
    "a class that an annotation names": "workers do not have the module in which Python looks for the name",
    "cachetools": "is refused: see below",
}
_numbers = itertools.count()


def load(tmp_path, name, k):
    """The function of a case, in a module of its own that has one name."""
    text = (
        _CASES[name]
        if "from __future__" not in _CASES[name]
        else _CASES[name].replace("annotations\n", f"annotations\nK = {k}\n", 1)
    )
    path = tmp_path / f"case{next(_numbers)}.py"
    path.write_text(text if "from __future__" in text else f"K = {k}\n{text}\n")
    spec = importlib.util.spec_from_file_location("observed_case", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules["observed_case"] = module
    spec.loader.exec_module(module)
    return module.f


@pytest.fixture(autouse=True)
def _no_module_stays():
    yield
    sys.modules.pop("observed_case", None)
    sys.modules.pop("whole", None)


def need(name):
    library = _CASES[name].split("\n")[0].removeprefix("import ").split(",")[0]
    if name in MODELS and library not in _INSTALLED_BY_TESTS:
        pytest.importorskip(library)


@pytest.mark.parametrize("name", _CASES)
def test_an_edit_of_what_is_observed_is_another_version(name, tmp_path):
    need(name)
    versions = [derive_version(load(tmp_path, name, k)) for k in (2, 2, 3)]
    assert versions[0] == versions[1] != versions[2]


@pytest.mark.parametrize("name", _CASES)
def test_a_call_changes_no_version_and_workers_get_what_is_called(name, tmp_path):
    need(name)
    if name in _NOT_HERE:
        pytest.skip(_NOT_HERE[name])
    function = load(tmp_path, name, 3)
    before, data = derive_version(function), make_bundle(function).data
    here = function(2)
    assert derive_version(function) == before
    del sys.modules["observed_case"]
    cloudpickle.cloudpickle._DYNAMIC_CLASS_TRACKER_BY_ID.clear()  # a worker has none of these classes
    cloudpickle.cloudpickle._DYNAMIC_CLASS_TRACKER_BY_CLASS.clear()
    there = pickle.loads(data)(2)
    assert repr(there).replace("observed_case.", "") == repr(here).replace("observed_case.", "")


def test_a_wrapper_that_pickles_as_a_name_is_refused(tmp_path):
    pytest.importorskip("cachetools")
    with pytest.raises(UdfDefinitionError, match="by its name only"):
        make_bundle(load(tmp_path, "cachetools", 2))


class Stands:
    """A proxy that says it is the function within, as those of C libraries do."""

    def __init__(self, function):
        self.function = function

    @property
    def __class__(self):
        return type(self.function)

    def __call__(self, *args):
        return self.function(*args) * 10


def test_a_proxy_that_would_be_sent_as_its_function_is_refused():
    proxy = Stands(lambda n: n)

    def f(n):
        return proxy(n)

    for act in (derive_version, make_bundle):
        with pytest.raises(UdfDefinitionError, match="stands in for a function"):
            act(f)
    with pytest.raises(UdfDefinitionError, match="stands in for a function"):
        make_bundle(proxy)


PATCHES = {
    "a function": "import textwrap\ndef mine(t): return t\ntextwrap.dedent = mine\ndef f(n): return textwrap.dedent('a')",
    "a method": "import string\ndef mine(self): return 1\nstring.Template.mine = mine\ndef f(n): return string.Template('a').mine()",
    "a method of a class that was imported":
        "from string import Template\ndef mine(self): return 1\nTemplate.mine = mine\ndef f(n): return Template('a').mine()",
    "an accessor of pandas":
        "import pandas as pd\n@pd.api.extensions.register_series_accessor('mine')\nclass A:\n    def __init__(self, s): pass\n"
        "def f(n): return pd.Series([1]).mine",
}  # fmt: skip


@pytest.mark.parametrize("name", PATCHES)
def test_what_was_put_into_installed_code_is_refused(name, tmp_path, monkeypatch):
    monkeypatch.setitem(_CASES, name, PATCHES[name])
    monkeypatch.setattr(textwrap, "dedent", textwrap.dedent)
    try:
        with pytest.raises(
            UdfDefinitionError, match=r"\.(mine|dedent), which your program has put into installed code"
        ):
            derive_version(load(tmp_path, name, 2))
    finally:
        for owner in (string.Template, pd.Series):
            if "mine" in vars(owner):
                del owner.mine
        pd.Series._accessors.discard("mine")


@pytest.mark.parametrize("named", [True, False])
def test_subclasses_that_workers_would_not_have_are_refused(named, tmp_path, monkeypatch):
    text = "class B: pass\nclass C(B): x = K\nKNOWN = [C]\ndef f(n): return B.__subclasses__()[0].x"
    monkeypatch.setitem(_CASES, "subclasses", text + " * len(KNOWN)" * named)
    if named:
        assert derive_version(load(tmp_path, "subclasses", 2)) != derive_version(load(tmp_path, "subclasses", 3))
    else:
        with pytest.raises(UdfDefinitionError, match="do not have C, a subclass of B that nothing else names"):
            derive_version(load(tmp_path, "subclasses", 2))


UNSEEN = {
    "a docstring": ('"""Words."""', '"""Other words."""'),
    "an attribute that nothing reads": ("helper.tag = 1", "helper.tag = 2"),
    "order of a dict that is only looked up": ("{'x': 1, 'y': 2}", "{'y': 2, 'x': 1}"),
    "an annotation of a helper": ("n: int", "n: float"),
    "slots": ("('a', 'b')", "('b', 'a')"),
}
TEXT = '''
D = {'x': 1, 'y': 2}
def helper(n: int):
    """Words."""
    return n * D['x'] + D.get('y') + len(D) + ('z' in D)
helper.tag = 1
class Slotted:
    __slots__ = ('a', 'b')
class Plain:
    def __init__(self):
        self.a, self.b = 1, 2
P = Plain()
def f(n):
    return helper(n) + P.a + bool(Slotted())
'''


@pytest.mark.parametrize("name", UNSEEN)
def test_an_edit_that_nothing_observes_is_the_same_version(name, tmp_path, monkeypatch):
    found = set()
    assert UNSEEN[name][0] in TEXT
    for text in (TEXT, TEXT.replace(*UNSEEN[name]) + "# moved"):
        monkeypatch.setitem(_CASES, name, text)
        found.add(derive_version(load(tmp_path, name, 2)))
    assert len(found) == 1


_WORD = """
import dataclasses, sys, types
@dataclasses.dataclass
class In:
    n: int = 1
@dataclasses.dataclass
class Row:
    i: In = None
def helper(n: HINT):
    'WORDS'
    return Row(In(n)).i.n
def module(name, **held):
    made = sys.modules[name] = types.ModuleType(name)
    made.__file__ = f'/mine/{name}.py'
    vars(made).update(held)
    return made
"""
#: W is a name by which something reads docstrings, annotations or types of fields; none of these reads anything by it.
NOT_READ = {
    "a module of one's own": "W = module('W', x=1)\ndef f(n): return helper(W.x)",
    "a module in a package of one's own": "app = module('app', W=module('app.W', x=1))\ndef f(n): return helper(app.W.x)",
    "an installed module": "import string as W\ndef f(n): return helper(len(W.digits))",
    "a value": "W = ['a']\ndef f(n): return helper(len(W))",
    "a value in a module": "config = module('config', W=['a'])\ndef f(n): return helper(len(config.W))",
    "a schema of Arrow": "import pyarrow as pa\nW = pa.schema([('a', pa.int64())])\ndef f(n): return helper(len(W))",
    "a function of one's own": "def W(n): return n\ndef f(n): return helper(W(n))",
    "a class of one's own": "class W: x = 1\ndef f(n): return helper(W.x)",
    "a key": "def f(n): return helper({'W': n, 'type': 'W'}['W'])",
    "a text that is compared": "def f(n): return helper(n if n == 'W' else 2)",
    "a module that it imports itself": "module('W', x=1)\ndef f(n):\n    import W\n    return helper(W.x)",
    "what it imports from a module of one's own":
        "module('app', W=module('app.W', x=1))\ndef f(n):\n    from app import W as w\n    return helper(w.x)",
    "an attribute that it only sets": "class C:\n    def __init__(self, n): self.W = n\ndef f(n): return helper(1) + bool(C(n))",
}  # fmt: skip
READ = {
    "an attribute of an object": "def f(n): return helper(n) and [n.W]",
    "an attribute of a class in a module": "class C: W = 1\nm = module('m', C=C)\ndef f(n): return helper(m.C.W)",
    "a function of a library": "import inspect\nW = inspect.signature\ndef f(n): return helper(1) and W(helper)",
    "what it imports from a library": "def f(n):\n    from inspect import W as w\n    return helper(1) and w(helper)",
    "a text for getattr": "def f(n): return helper(1) and getattr(n, 'W')",
    "a text for getattr by another name": "g = getattr\ndef f(n): return helper(1) and g(n, 'W')",
    "a text for code that is given names": "def get(o, name): return getattr(o, name)\ndef f(n): return helper(1) and get(n, 'W')",
    "an attribute in an inner function": "def f(n): return helper(1) and [m.W for m in [n]]",
}


def edited_helpers(tmp_path, monkeypatch, text, word):
    """The versions of a function whose helper gets another docstring and annotation."""
    found = []
    for words, hint in (("Words", "int"), ("Other words", "float")):
        program = _WORD.replace("WORDS", words).replace("HINT", hint) + re.sub(r"\bW\b", word, text)
        monkeypatch.setitem(_CASES, "a word", program)
        found.append(derive_version(load(tmp_path, "a word", 2)))
    for name in ("app", f"app.{word}", "config", "m", word):
        if str(getattr(sys.modules.get(name), "__file__", "")).startswith("/mine/"):
            del sys.modules[name]
    return found


@pytest.mark.parametrize("name", NOT_READ)
def test_what_only_has_the_name_of_a_reader_reads_nothing(name, tmp_path, monkeypatch):
    first, second = edited_helpers(tmp_path, monkeypatch, NOT_READ[name], "schema")
    assert first == second


def test_no_plain_word_makes_a_docstring_count_by_itself(tmp_path, monkeypatch):
    words = sorted(version_digest._PLAIN_WORDS - {"vars"})  # that one takes names as texts
    assert {"schema", "signature", "fields", "decode", "getsource"} <= set(words)
    text = "\n".join(f"{word} = ['a']" for word in words)
    text += f"\ndef f(n): return helper(n) + sum(map(len, [{', '.join(words)}])) + len([{str(words)[1:-1]}])"
    first, second = edited_helpers(tmp_path, monkeypatch, text, "W")
    assert first == second


@pytest.mark.parametrize("name", READ)
@pytest.mark.parametrize("word", ["schema", "signature"])
def test_what_may_read_by_a_name_makes_it_count(name, word, tmp_path, monkeypatch):
    first, second = edited_helpers(tmp_path, monkeypatch, READ[name], word)
    assert first != second


def test_versions_of_what_was_covered_are_as_they_were(tmp_path, monkeypatch):
    """A change here computes columns of users again that no one has edited."""
    monkeypatch.setitem(_CASES, "covered", TEXT)
    assert derive_version(load(tmp_path, "covered", 2)) == "d5c9a786d266e48a"


SEEDS = """
import dataclasses, enum, runpy, sys
from typing import Annotated
import attrs, msgspec, pydantic
import pydantic.dataclasses
from leman._functions.version_digest import derive_version

class Kind(enum.Enum):
    A = 1

class Unit: pass

@dataclasses.dataclass
class Row:
    n: Annotated[int, Unit()] = 0

class Node(pydantic.BaseModel):
    n: int = 0
    kind: Kind = Kind.A
    kids: "list[Node]" = []
    class Inner(pydantic.BaseModel):
        row: int | None = None

class S(msgspec.Struct, frozen=True):
    n: int = 1

@attrs.define
class A:
    n: int = attrs.field(default=1, validator=attrs.validators.in_([1, 2]))

@attrs.frozen
class F:
    n: list = attrs.Factory(list)

@pydantic.dataclasses.dataclass
class D:
    n: int = 1

class P(pydantic.BaseModel):
    _p: int = pydantic.PrivateAttr(default=1)

WORDS = ["schema", "signature", "json_schema"]
G = lambda n, w=frozenset("xyz"): n in w

def f(n):
    return [Node(n=1), Node.Inner(), Row(n), S(), A(), WORDS, G(n), F(), D(), P()._p]

print(derive_version(f))
if "called" in sys.argv:
    f(1)
    print(derive_version(f))
"""


def test_versions_are_equal_over_processes_hash_seeds_and_calls(tmp_path):
    (tmp_path / "main.py").write_text(SEEDS)
    (tmp_path / "moved").mkdir()
    (tmp_path / "moved" / "main.py").write_text(
        "# moved\n\n" + SEEDS.replace("attrs, msgspec, pydantic", "pydantic, msgspec, attrs")
    )
    found = []
    for seed, folder, more in (("1", "", ["called"]), ("2", "moved", [])):
        command = [sys.executable, "-B", str(tmp_path / folder / "main.py"), *more]
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        found += done.stdout.split()
    assert len(found) == 3
    assert len(set(found)) == 1


@pytest.mark.parametrize("kind", [pa.json_(), pa.uuid(), pa.bool8(), pa.fixed_shape_tensor(pa.float32(), [2])], ids=str)
def test_a_function_of_one_of_arrows_extension_types_has_a_version(kind):
    assert leman.udf(name="f", data_type=kind, input_columns=["x"])(lambda x: x).version


def test_validators_of_beartype_are_refused(tmp_path, monkeypatch):
    pytest.importorskip("beartype")
    text = (
        "import beartype, typing\nfrom beartype.vale import Is\nS = typing.Annotated[int, Is[lambda v: v < K]]\n"
        "@beartype.beartype\ndef g(n: S): return 1\ndef f(n): return g(n)"
    )
    monkeypatch.setitem(_CASES, "validators", text)
    for act in (derive_version, make_bundle):
        with pytest.raises(UdfDefinitionError, match=r"of beartype\.vale cannot be sent to workers"):
            act(load(tmp_path, "validators", 2))
