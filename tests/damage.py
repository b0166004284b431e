"""Stores damaged at random: bytes of any file, any part of their JSON, and models as a whole."""

import copy
import json

import numpy as np
from hypothesis import strategies as st

from daskgp.data.stores import groups, models

NAMES = ["__class__", "__init__", "os.system", "../../etc/passwd", "", "X", "float16", "object"]
NUMBERS = [0, -1, 1, 2, 3, 7, 10**6, 10**12, 2**63, -(10**30), 10**400, 0.5, -2.5, 1e-300, 1e308]
NUMBERS += [float("nan"), float("inf")]


def deep(depth, kind=list):
    """A value nested that deep."""
    value = {"kernel": "rbf"} if kind is dict else []
    for _ in range(depth):
        value = {"kernel": "sum", "parts": [value, value["kernel"]]} if kind is dict else [value]
    return value


ODD = st.one_of(
    st.sampled_from(NAMES),
    st.sampled_from(NUMBERS),
    st.sampled_from([None, True, False, [], {}, [[]], [None], {"kernel": "rbf"}, {"a": {}}]),
    st.sampled_from([deep(3), deep(400), deep(400, dict), ["x0"] * 3, [0] * 5, [10**12, 2]]),
    st.text(max_size=5),
    st.lists(st.sampled_from(NUMBERS), max_size=4),
)


def places(tree, at=()):
    """Paths to everything inside of a JSON value."""
    inside = tree.items() if isinstance(tree, dict) else enumerate(tree)
    for key, value in inside:
        yield (*at, key)
        if isinstance(value, dict | list):
            yield from places(value, (*at, key))


def changed(draw, tree):
    """A copy of a JSON value of which something is another, gone, added or renamed."""
    tree = copy.deepcopy(tree)
    found = list(places(tree))
    if not found:
        return draw(ODD)
    *above, last = draw(st.sampled_from(found))
    holder = tree
    for key in above:
        holder = holder[key]
    how = draw(st.sampled_from(["replace", "replace", "replace", "drop", "rename", "add"]))
    if how == "replace":
        holder[last] = draw(ODD)
    elif how == "drop":
        del holder[last]
    elif isinstance(holder, list):
        holder.append(draw(ODD))
    elif how == "rename":
        holder[draw(st.sampled_from(NAMES))] = holder.pop(last)
    else:
        holder[draw(st.sampled_from(NAMES))] = draw(ODD)
    return tree


@st.composite
def damaged_files(draw, files):
    """Contents of files by name, of which one to three are damaged."""
    files = dict(files)
    for _ in range(draw(st.integers(1, 3))):
        name = draw(st.sampled_from(sorted(files)))
        whole = files[name]
        how = draw(
            st.sampled_from(["json", "json", "json", "json", "bits", "cut", "gone", "extra"])
        )
        if how == "json" and name.endswith("zarr.json"):
            try:
                tree = json.loads(whole)
            except ValueError:  # damaged before
                continue
            if isinstance(tree, dict | list):
                files[name] = json.dumps(changed(draw, tree)).encode()
        elif how == "cut":
            files[name] = whole[: draw(st.integers(0, len(whole)))]
        elif how == "gone":
            if len(files) > 1:
                del files[name]
        elif how == "extra":
            files[f"{name}-extra/zarr.json"] = whole
        elif whole:
            at = draw(st.integers(0, len(whole) - 1))
            bits = bytes([whole[at] ^ draw(st.integers(1, 255))])
            files[name] = whole[:at] + bits + whole[at + 1 :]
    return files


@st.composite
def damaged_models(draw, whole):
    """What a model store holds, damaged, with the checksum of a sound one."""
    arrays, attributes = dict(whole.arrays), whole.attributes
    for _ in range(draw(st.integers(1, 2))):
        if draw(st.booleans()):
            attributes = changed(draw, attributes)
            attributes = attributes if isinstance(attributes, dict) else {}
        else:
            name = draw(st.sampled_from(sorted(arrays)))
            arrays[name] = changed_array(draw, arrays.pop(name))
            if draw(st.integers(0, 4)) == 0:
                arrays[draw(st.sampled_from(["inputs", "setting_x", "state_", "stray"]))] = (
                    arrays.pop(name)
                )
    notes = draw(st.sampled_from([{}, whole.notes, {"history": draw(ODD)}]))
    attributes = json.loads(json.dumps(attributes))
    try:
        digest = groups.checksum(arrays, attributes)
    except TypeError:  # names of keys that cannot be sorted
        digest = ""
    return models.Stored(arrays, attributes, digest, notes)


def changed_array(draw, values):
    """Another shape, type or content."""
    values = np.array(values)
    text = values.dtype.kind == "U"  # of a damage before this one
    how = draw(st.sampled_from(["nan", "shape", "type", "value", "empty", "flat", "more", "zero"]))
    if how == "nan" and values.dtype.kind == "f" and values.size:
        values.flat[draw(st.integers(0, values.size - 1))] = np.nan
    elif how == "shape":
        values = values[..., None]
    elif how == "type" and not text:
        values = values.astype(draw(st.sampled_from(["f4", "i4", "u1", "c16", "bool", "U3"])))
    elif how == "value" and values.size and not text:
        number = draw(st.sampled_from([n for n in NUMBERS if abs(n) < 2**31 or n != n]))
        values = values.astype(np.float64)
        values.flat[draw(st.integers(0, values.size - 1))] = number
    elif how == "empty":
        values = values[:0] if values.ndim else np.empty(0)
    elif how == "flat":
        values = values.reshape(-1)
    elif how == "more" and values.ndim:
        values = np.concatenate([values, values])
    elif how == "zero":
        values = np.zeros_like(values)
    return values
