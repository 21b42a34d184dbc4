"""The structs of llama-cpp-python are those of the llama.cpp that it loads."""

from __future__ import annotations

import ctypes
import inspect
import re
from typing import Any

import pytest

from eaglechat.engine.llama import bindings, objects
from eaglechat.engine.llama.bindings import api
from eaglechat.wire.errors import NativeLibraryError

STRUCTS = ["llama_context", "llama_model", "llama_model_quantize"]
WE_SET = {
    name
    for module in (bindings, objects)
    for name in re.findall(r"params\.(\w+)(?: =|\b)", inspect.getsource(module))
}


def struct_with_a_field_more(struct: str, place: int, kind: type) -> Any:
    """The struct of a newer llama.cpp, which has one more field at this place."""
    fields = [(name, of) for name, of, *_ in getattr(api, f"{struct}_params")._fields_]
    fields.insert(place, ("new", kind))
    return type("Newer", (ctypes.Structure,), {"_fields_": fields})


def values(params: Any) -> list[Any]:
    """Of the fields, in order; of a pointer or a function, whether there is one."""
    found = [getattr(params, name) for name, *_ in params._fields_]
    return [one if isinstance(one, int | float) else bool(one) for one in found]


@pytest.mark.parametrize("struct", STRUCTS)
@pytest.mark.parametrize(
    ("kind", "value"),
    [(ctypes.c_int32, 0), (ctypes.c_int32, 7), (ctypes.c_void_p, 0), (ctypes.c_bool, True)],
    ids=["0", "7", "pointer", "bool"],
)
def test_a_new_field_anywhere_is_told_before_a_setting_is_taken_for_another(
    monkeypatch: pytest.MonkeyPatch, struct: str, kind: type, value: Any
) -> None:
    known = getattr(api, f"{struct}_params")
    defaults = getattr(api, f"{struct}_default_params")()
    names = [name for name, *_ in known._fields_]
    for place in range(len(names)):
        newer = struct_with_a_field_more(struct, place, kind)
        written = newer(new=value, **{name: getattr(defaults, name) for name in names})
        read = known.from_buffer_copy(bytes(written)[: ctypes.sizeof(known)])
        monkeypatch.setattr(api, f"{struct}_default_params", lambda read=read: read)
        moved = [
            name
            for name in WE_SET.intersection(names)
            if getattr(newer, name).offset != getattr(known, name).offset
        ]
        # Among zeros, another one is not seen.
        if moved and values(read) != values(defaults):
            with pytest.raises(NativeLibraryError, match=rf"do not fit: {struct}_params\."):
                bindings.check_structs()
