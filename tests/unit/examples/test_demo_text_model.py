"""The demo's vectors: alike for what is about the same, no matter who computes them."""

import numpy as np
import pytest

from examples.demo.text_model import DIMENSIONS, TextModel

DEFINITIONS = [
    ("parse_isodate", "Parse the date portion of an ISO string.", "def parse_isodate(self, datestr): ..."),
    ("remove_tree", "Recursively remove an entire directory tree.", "def remove_tree(directory): ..."),
    ("HTTPConnection.getresponse", "Get the response from the server.", "def getresponse(self): ..."),
    ("hashFile", None, "def hashFile(path):\n    return sha256(read(path)).hexdigest()"),
]


@pytest.fixture(scope="module")
def model() -> TextModel:
    return TextModel()


@pytest.mark.parametrize(
    ("question", "answer"),
    [
        ("parse a date string", "parse_isodate"),
        ("removing directories", "remove_tree"),  # other forms of the words
        ("response of an http server", "HTTPConnection.getresponse"),
        ("hash of a file", "hashFile"),
    ],
)
def test_the_nearest_definition_answers_the_question(model, question, answer):
    scores = model.definitions(*zip(*DEFINITIONS, strict=True)) @ model.question(question)

    assert DEFINITIONS[int(np.argmax(scores))][0] == answer


def test_all_vectors_have_length_one_even_without_a_word(model):
    vectors = model.definitions(["f", "_", "parse_date"], [None, "", "Parses."], ["", "", ""])

    assert vectors.dtype == np.float32
    assert vectors.shape == (3, DIMENSIONS)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, rtol=1e-5)


def test_a_vector_depends_on_its_row_alone(model):
    together = model.definitions(*zip(*DEFINITIONS, strict=True))

    alone = np.concatenate([TextModel().definitions([n], [d], [s]) for n, d, s in DEFINITIONS])

    np.testing.assert_allclose(alone, together, atol=1e-6)


def test_a_question_of_common_words_is_the_zero_vector(model):
    assert not model.question("the of a").any()
