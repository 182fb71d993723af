"""Columns as features: against scikit-learn, and as functions of the set of rows."""

import json
from datetime import date

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.feature_extraction.text import HashingVectorizer
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from ergnn.config.errors import FormatError
from ergnn.data.scale import CLIP, TEXT_LENGTH, Scale
from ergnn.data.tables.encoder import MIN_COUNT, Encoder
from ergnn.data.tables.kinds import TEXT_WIDTH, Codes, decide_kinds, encode_values
from ergnn.folder.example import make_customers

RNG = np.random.default_rng(0)
RARE = [f"room {i % 20}" for i in range(60)]


def fitted(columns: dict[str, list[object]], **told: str) -> tuple[Encoder, Codes]:
    table = {name: pa.array(values, from_pandas=True) for name, values in columns.items()}
    kinds = decide_kinds(table, told, "the table")
    codes = encode_values(kinds, table, "the table")
    return Encoder.fit(kinds, codes.numbers, codes.values), codes


def dense(encoder: Encoder, codes: Codes) -> np.ndarray:
    features = encoder.features(codes)
    return features.toarray() if encoder.is_sparse else features


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([1.5, 2.0, None, 7.25], "number"),
        (["1", "2.5", "NA", "3"], "number"),
        ([True, False, True], "number"),
        (["true", "False", "true"], "number"),
        ([1, 2, 3] * 30, "category"),
        (list(range(90)), "number"),
        ([0, 1] * 40, "number"),
        (["DE", "FR", "", "DE", "FR", "US", "US"], "category"),
        (["2024-01-31", "2023-02-01", None], "date"),
        (["2024-01-31T10:00:00", "2023-02-01T00:00:00"], "date"),
        ([date(2024, 1, 31), date(2023, 2, 1)], "date"),
        (["DE", "FR", "3"] * 2, "category"),
        (["room 1"] * MIN_COUNT + RARE, "category"),
        (RARE, "text"),  # as a category, all of its values would be "other"
        ([f"note number {i}" for i in range(50)], "text"),
        ([f"user{i}" for i in range(50)], "ignore"),
        ([None, None], "ignore"),
        (["same"] * 5, "ignore"),
    ],
)
def test_kinds_of_columns(values: list[object], kind: str) -> None:
    (decided,) = decide_kinds({"c": pa.array(values, from_pandas=True)}, {}, "t")
    assert decided.kind == kind, decided.why


@given(st.lists(st.floats(-1e6, 1e6), min_size=3, max_size=40), st.randoms())
@settings(max_examples=50, deadline=None)
def test_the_scale_does_not_depend_on_the_order_of_rows(values: list[float], random: object) -> None:
    shuffled = list(values)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert Scale.fit(np.array(values)) == Scale.fit(np.array(shuffled))


@pytest.mark.parametrize("factor", [1e-6, 1.0, 1e6])
def test_numbers_are_standardized(factor: float) -> None:
    values = factor * RNG.normal(3, 2, 500)
    (ours,) = Scale.fit(values).apply(values).T
    theirs = StandardScaler().fit_transform(values[:, None])[:, 0]
    slope, offset = np.polyfit(theirs, ours, 1)
    assert 2**-0.125 <= slope <= 2**0.125
    assert abs(offset) <= 1 / 16
    assert np.allclose(ours, slope * theirs + offset)


def test_heavy_tails_take_the_logarithm_and_outliers_are_cut() -> None:
    incomes = np.exp(RNG.normal(10, 1.5, 2000))
    scale = Scale.fit(incomes)
    assert scale.unit > 0
    assert np.abs(scale.apply(incomes)).max() <= CLIP
    normal = np.append(RNG.normal(size=200), 1e9)
    assert Scale.fit(RNG.normal(size=200)).unit == 0
    spread = Scale.fit(normal).apply(normal)[:-1]
    assert spread.std() > 0.1, "one outlier must not hide the others"


def test_missing_numbers_are_average_and_marked() -> None:
    encoder, codes = fitted({"age": [20.0, None, 40.0, 60.0]})
    assert encoder.names == ["age", "age missing"]
    found = dense(encoder, codes)
    assert found[1].tolist() == [0.0, 1.0]
    assert found[[0, 2, 3], 1].tolist() == [0, 0, 0]


def test_categories_are_those_of_a_one_hot_encoder() -> None:
    values = ["a"] * 20 + ["b"] * 10 + ["c"] * MIN_COUNT + ["d"] * (MIN_COUNT - 1) + ["e"]
    encoder, codes = fitted({"c": values})
    assert encoder.names == ["c=a", "c=b", "c=c", "c=other"]
    theirs = OneHotEncoder(min_frequency=MIN_COUNT, sparse_output=False).fit_transform(np.array(values)[:, None])
    ours = dense(encoder, codes)
    assert np.allclose(ours - ours.min(0), theirs)
    kinds = decide_kinds({"c": pa.array(values)}, {}, "t")
    unseen = encode_values(kinds, {"c": pa.array(["never seen", None])}, "t")
    found = encoder.features(unseen)
    assert found[0].argmax() == 3
    assert not found[1].any()


def test_text_is_hashed_as_by_scikit_learn() -> None:
    texts = [f"order {i} was late again" for i in range(60)] + [""]
    encoder, codes = fitted({"note": texts}, note="text")
    theirs = HashingVectorizer(n_features=TEXT_WIDTH, ngram_range=(1, 2)).transform(texts)
    assert abs(encoder.features(codes) - TEXT_LENGTH * theirs).max() < 1e-6
    assert np.allclose(np.linalg.norm(dense(encoder, codes), axis=1), [TEXT_LENGTH] * 60 + [0])


def test_dates_are_days_months_and_weekdays() -> None:
    days = [date(2024, 1, 1), date(2023, 7, 4), date(1969, 12, 31), date(2000, 2, 29)]
    encoder, codes = fitted({"d": [*days, None]})
    assert codes.numbers[:4, 0].tolist() == [(day - date(1970, 1, 1)).days for day in days]
    found = dense(encoder, codes)
    month, weekday = (encoder.names.index(f"d {part}=1") for part in ("month", "weekday"))
    for row, day in zip(found, days, strict=False):
        assert row[month : month + 12].argmax() + 1 == day.month
        assert row[weekday : weekday + 7].argmax() + 1 == day.isoweekday()
    assert not found[4, month:].any()
    assert found[4, encoder.names.index("d missing")] == 1


def test_counts_in_many_columns_are_words() -> None:
    counts = (RNG.random((100, 30)) < 0.1) * RNG.integers(1, 4, (100, 30))
    columns = {f"w{i}": counts[:, i].tolist() for i in range(30)} | {"size": (1e6 * RNG.random(100)).tolist()}
    encoder, codes = fitted(columns)
    assert [column.kind for column in encoder.columns] == ["word"] * 30 + ["number"]
    found, used = dense(encoder, codes), counts.any(1)
    assert encoder.names == ["size", *(f"w{i}" for i in range(30))]
    assert np.allclose(np.linalg.norm(found[:, 1:], axis=1)[used], TEXT_LENGTH)
    assert np.array_equal(found[:, 1:] > 0, counts > 0)


def test_codes_survive_as_one_matrix_of_32_bits() -> None:
    for note in ({}, {"note": [f"late delivery {i}" for i in range(60)]}):
        columns = {"key": [1.7e9 + i / 7 for i in range(59)] + [None], "c": ["a", None, "b"] * 20, **note}
        encoder, codes = fitted(columns)
        again = Codes.from_matrix(codes.to_matrix(), encoder.num_numbers)
        assert np.allclose(again.numbers, codes.numbers, rtol=2**-47, atol=0, equal_nan=True)
        assert np.array_equal(again.numbers[:, 1], codes.numbers[:, 1], equal_nan=True), "hashes are exact"
        assert abs(again.text - codes.text).max() == 0 if note else again.text.shape == (60, 0)
        assert np.isfinite(codes.to_matrix().data if note else codes.to_matrix()).all()


def test_all_kinds_together_survive_json() -> None:
    columns = {
        "age": [30.0, None, 50.0] * 20,
        "country": ["DE", "FR", None] * 20,
        "note": [f"late delivery {i}" for i in range(60)],
        "signup": ["2024-01-31", "2023-02-01", "2023-02-03"] * 20,
        "key": [f"k{i}" for i in range(60)],
    }
    encoder, codes = fitted(columns)  # type: ignore[arg-type]
    again = Encoder.from_json(json.loads(json.dumps(encoder.to_json())))
    assert again == encoder
    assert len(again.names) == encoder.features(codes).shape[1] == len(encoder.names)
    assert (again.features(codes) != encoder.features(codes)).nnz == 0
    assert [column.describe() for column in encoder.columns][-1] == "left out"


@pytest.mark.parametrize(
    ("first", "later", "message"),
    [
        ([1.5, 2.5], ["3", "abc"], "row 2, column 'x': 'abc'; a number is required"),
        ([1.5, 2.5], ["2024-01-01"], "a number is required"),
        ([1.5, 2.5], [1.0, float("inf")], "row 2, column 'x': inf; a finite number"),
        (["2024-01-01", "2024-01-02"], ["2024-01-05", "soon"], "row 2, column 'x': 'soon'; a date"),
        (["2024-01-01", "2024-01-02"], [5], "a date such as"),
    ],
)
def test_values_of_another_kind_are_refused(first: list[object], later: list[object], message: str) -> None:
    kinds = decide_kinds({"x": pa.array(first)}, {}, "t")
    with pytest.raises(FormatError, match=message):
        encode_values(kinds, {"x": pa.array(later)}, "update 2")
    with pytest.raises(FormatError, match="update 2: no column 'x'"):
        encode_values(kinds, {"y": pa.array([1])}, "update 2")


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([f"{i}.{i}%" for i in range(60)], "look like numbers, but '0.0%' cannot be read; write numbers"),
        ([f"${1000 + i}" for i in range(60)], "look like numbers, but '$1000'"),
        ([f"{10 + i},{i:03d}" for i in range(60)], "look like numbers, but '10,000'"),
        ([*(str(i / 4) for i in range(60)), "old"], "look like numbers, but 'old'"),
        ([*(str(18 + i % 24) for i in range(60)), "old"], "look like numbers, but 'old'"),
        ([f"{1 + i % 28:02d}.{1 + i % 12:02d}.20{10 + i}" for i in range(60)], "look like dates, but '01.01.2010'"),
        ([f"{1 + i % 12}/{1 + i % 28}/20{10 + i}" for i in range(60)], "write dates such as 2024-05-31"),
        ([f"{50 + i} kg" for i in range(60)], "look like numbers, but '50 kg'"),
        ([f"2024-01-{1 + i % 28:02d}" if i else "2024-02-30" for i in range(60)], "look like dates, but '2024-02-30'"),
        ([f"2024-01-{1 + i % 28:02d}T12:00{'Z' * (i < 50)}" for i in range(60)], "but '2024-01-23T12:00' cannot be"),
    ],
)
def test_columns_that_nearly_hold_numbers_or_dates_are_asked_about(values: list[str], message: str) -> None:
    columns = {"x": pa.array(values)}
    with pytest.raises(FormatError, match=r"t, row \d+, column 'x': nearly all values ") as error:
        decide_kinds(columns, {}, "t")
    assert message in str(error.value)
    assert decide_kinds(columns, {"x": "text"}, "t")[0].kind == "text"


@pytest.mark.parametrize(
    "values", [["+41 79 {:03d} 11 22"], ["10.0.0.{}"], ["A-{}"], ["{}-{}"], ["room {}"], ["{}{:c}"]]
)
def test_texts_with_digits_are_no_numbers(values: list[str]) -> None:
    texts = [values[0].format(i, i + 65) for i in range(60)]
    assert decide_kinds({"x": pa.array(texts)}, {}, "t")[0].kind in ("text", "ignore")


def test_dashes_and_question_marks_are_missing_values() -> None:
    encoder, codes = fitted({"x": ["-", "?", "1", "2", "4", "--"] * 10})
    assert [column.kind for column in encoder.columns] == ["number"]
    assert np.isnan(codes.numbers).sum() == 30


def test_the_typical_length_is_that_of_most_rows() -> None:
    rows, _ = make_customers(800, 0)
    names = [name for name in rows[0] if name not in ("id", "label", "week")]
    columns = {name: [row[name] if row[name] != "" else None for row in rows] for name in names}
    for some in (["age", "income"], ["country", "plan"], ["signup"], ["note"], names):
        encoder, codes = fitted({name: columns[name] for name in some})
        assert encoder.square == pytest.approx((dense(encoder, codes) ** 2).sum(1).mean(), rel=0.3)
