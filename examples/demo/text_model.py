"""Text of code as vectors: near one another where names and docstrings say similar things.

No training and no download: hashed character n-grams and words of what identifiers and docstrings say, brought
to a fixed length by a random projection with a fixed seed, so that every worker and every run agree.
"""

from __future__ import annotations

import keyword
import re
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_matrix, diags

DIMENSIONS = 384

Terms = dict[str, float]
Vectors = npt.NDArray[np.float32]

_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
_PROSE = "an are be by can given has its it of on one or otherwise that the this to used using was when will you"
_CODE_WORDS = "any args bool cls dict int kwargs list none optional parameters returns self str tuple"
_COMMON = {word.lower() for word in keyword.kwlist} | {*_PROSE.split(), *_CODE_WORDS.split()}

_FEATURES = 1 << 18
_SEED = 7
_SPREAD = 8
_SPELLING = 0.8  # a word's share for how it is spelt; the rest is for being this word
_PAIR = 0.5  # two words side by side, compared with one
_NAME, _SCOPE, _SUMMARY, _DETAILS, _CODE = 4.0, 1.0, 4.0, 0.5, 0.15
_SHORTNESS = 4.0  # length that is added to every definition, so that two lucky words do not win over a sentence


class TextModel:
    """Turns definitions and questions into unit vectors whose dot product says how well they agree."""

    def __init__(self) -> None:
        from sklearn.feature_extraction.text import HashingVectorizer  # noqa: PLC0415 - takes seconds

        self._spelling = HashingVectorizer(
            analyzer="char_wb", ngram_range=(3, 4), n_features=_FEATURES, dtype=np.float32
        )
        self._words = HashingVectorizer(analyzer=_as_one, n_features=_FEATURES, dtype=np.float32)
        self._projection = _random_projection(_FEATURES, DIMENSIONS - 1)

    def definitions(self, names: Sequence[str], docstrings: Sequence[str | None], sources: Sequence[str]) -> Vectors:
        """A vector for each definition: its name counts most, then the docstring's first line."""
        terms = map(_definition_terms, names, docstrings, sources)
        return self._unit_vectors(list(terms), constant=_SHORTNESS)

    def question(self, text: str) -> Vectors:
        """The vector of a question in plain words."""
        vector: Vectors = self._unit_vectors([_weigh([(text, 1.0)])], constant=0.0)[0]
        return vector

    def _unit_vectors(self, texts: list[Terms], constant: float) -> Vectors:
        vocabulary: dict[str, int] = {}
        columns = [vocabulary.setdefault(term, len(vocabulary)) for terms in texts for term in terms]
        weights = np.sqrt(np.fromiter((w for terms in texts for w in terms.values()), np.float32, len(columns)))
        ends = np.cumsum([0, *map(len, texts)])
        counts = csr_matrix((weights, columns, ends), (len(texts), len(vocabulary)))
        vectors = np.full((len(texts), DIMENSIONS), constant, np.float32)
        vectors[:, :-1] = counts @ self._term_vectors(list(vocabulary)) if vocabulary else 0.0
        lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
        vectors /= np.where(lengths, lengths, 1)
        return vectors

    def _term_vectors(self, terms: list[str]) -> Vectors:
        spelling = np.array([0.0 if " " in term else _SPELLING for term in terms], np.float32)
        words = diags(np.sqrt(1 - spelling**2)) @ self._words.transform(terms)
        spelt = diags(spelling) @ self._spelling.transform(terms)
        vectors: Vectors = ((words + spelt) @ self._projection).toarray()
        return vectors


def _random_projection(features: int, dimensions: int) -> csr_matrix:
    """Each feature goes to a few dimensions with a random sign: almost at right angles to any other."""
    random = np.random.default_rng(_SEED)
    dimension = random.integers(0, dimensions, features * _SPREAD)
    sign = random.choice(np.array([-1, 1], np.float32), features * _SPREAD) / np.float32(np.sqrt(_SPREAD))
    ends = np.arange(features + 1) * _SPREAD
    return csr_matrix((sign, dimension, ends), (features, dimensions))


def _definition_terms(name: str, docstring: str | None, source: str) -> Terms:
    scope, _, last = name.rpartition(".")
    summary, _, details = (docstring or "").strip().partition("\n")
    parts = [(last, _NAME), (scope.replace("<locals>", ""), _SCOPE), (summary, _SUMMARY)]
    return _weigh([*parts, (details[:400], _DETAILS), (source[:600], _CODE)])


def _weigh(parts: Sequence[tuple[str, float]]) -> Terms:
    """Words and pairs of neighbouring words, with the sum of the weights of the places where they occur."""
    terms: Terms = {}
    for text, weight in parts:
        words = _split(text)
        for word in words:
            terms[word] = terms.get(word, 0.0) + weight
        for pair in pairwise(words):
            key = " ".join(pair)
            terms[key] = terms.get(key, 0.0) + weight * _PAIR
    return terms


def _split(text: str) -> list[str]:
    """Words of prose and parts of identifiers, in lower case, without the ones that are everywhere."""
    found = (word.lower() for word in _WORD.findall(text))
    return [word for word in found if len(word) > 1 and word not in _COMMON]


def _as_one(term: str) -> list[str]:
    return [term]
