"""A file that is no model to chat with is refused with what it is and what to do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from eaglechat.engine.llama import backend
from eaglechat.engine.llama.objects import Model
from eaglechat.gguf.header import GGUFError, parse_beginning, read_header
from eaglechat.gguf.pairing import check_pair
from eaglechat.gguf.preflight import TARGET_ARCHITECTURES, PreflightError, why_no_chat_model
from eaglechat.hub.local.library import look_at
from eaglechat.hub.local.model import ModelKind
from eaglechat.wire.errors import ModelLoadError
from tests import ggufs


def written(path: Path, arch: str, fields: dict[str, Any], *tensors: str) -> Path:
    named = {"general.architecture": arch} if arch else {}
    shapes = [(name, (8, 8)) for name in tensors]
    path.write_bytes(ggufs.gguf({**named, **fields}, tensors=shapes))
    return path


WHOLE = "token_embd.weight"


@pytest.mark.parametrize(
    ("arch", "fields", "tensors", "says"),
    [
        ("llama", {"general.type": "adapter"}, [WHOLE], "LoRA adapter"),
        ("qwen3", {"adapter.lora.alpha": 16.0}, [WHOLE], "LoRA adapter"),
        ("qwen3", {}, ["blk.0.attn_q.weight.lora_a"], "LoRA adapter"),
        ("", {"general.type": "imatrix"}, ["blk.0.attn_q.weight.in_sum2"], "importance matrix"),
        ("", {}, ["blk.0.attn_q.weight.in_sum2"], "importance matrix"),
        ("clip", {}, [WHOLE], "projector"),
        ("", {"general.type": "mmproj"}, ["v.patch_embd.weight"], "projector"),
        ("qwen3vl", {}, ["v.patch_embd.weight", "mm.0.weight"], "projector"),
        ("controlvector", {}, ["direction.1"], "control vector"),
        ("llama", {}, [], "vocabulary"),
        ("llama", {"general.type": "vocab"}, [], "vocabulary"),
        ("llama", {"tokenizer.ggml.model": "none"}, [WHOLE], "without a vocabulary"),
        *((arch, {}, [WHOLE], "embedding") for arch in (
            "bert", "nomic-bert", "nomic-bert-moe", "jina-bert-v2", "jina-bert-v3", "neo-bert",
            "modern-bert", "eurobert", "some-new-bert", "gemma-embedding", "llama-embed",
        )),
        ("qwen3", {"qwen3.pooling_type": 3}, [WHOLE], "embedding"),
        ("qwen3", {"qwen3.pooling_type": 4}, [WHOLE], "reranker"),
        ("qwen3", {}, [WHOLE, "cls.output.weight"], "reranker"),
        ("bert", {"bert.pooling_type": 4}, [WHOLE], "reranker"),
        ("t5encoder", {}, [WHOLE], "encoder"),
        ("gemma3", {"gemma3.attention.causal": False}, [WHOLE], "encoder"),
        ("t5", {}, [WHOLE], "T5"),
        *((arch, {}, [WHOLE], "diffusion") for arch in ("dream", "llada", "llada-moe", "rnd1")),
        ("qwen3", {"diffusion.shift_logits": True}, [WHOLE], "diffusion"),
        *((arch, {}, [WHOLE], "images") for arch in ("flux", "sd3", "qwen_image", "wan")),
        *((arch, {}, [WHOLE], "speech") for arch in ("whisper", "wavtokenizer-dec", "snac")),
        *((arch, {}, [WHOLE], "Ollama") for arch in ("gptoss", "mllama", "qwen25vl")),
        ("gemma3", {}, [WHOLE, "v.patch_embd.weight"], "Ollama"),
    ],
)  # fmt: skip
def test_what_the_file_is_is_said_everywhere(
    tmp_path: Path, arch: str, fields: dict[str, Any], tensors: list[str], says: str
) -> None:
    file = written(tmp_path / "m.gguf", arch, fields, *tensors)
    with pytest.raises(PreflightError, match=f"cannot chat, it is .*{says}.*[:;] "):
        check_pair(file, None)
    target = tmp_path / "target.gguf"
    target.write_bytes(ggufs.target())
    with pytest.raises(PreflightError, match=f"cannot draft, it is .*{says}"):
        check_pair(target, file)
    model = look_at(file)
    assert model.kind is ModelKind.OTHER
    assert says in (model.problem or "")


def test_a_language_model_is_none_of_these(tmp_path: Path) -> None:
    for arch in {*TARGET_ARCHITECTURES, "gemma2", "phi3", "command-r", "mamba", "rwkv7"}:
        data = ggufs.target(arch, **{f"{arch}.attention.causal": True, f"{arch}.pooling_type": 0})
        (tmp_path / "m.gguf").write_bytes(data)
        assert why_no_chat_model(read_header(tmp_path / "m.gguf")) is None
        beginning = parse_beginning(data, tmp_path / "m.gguf", len(data))
        assert beginning is not None
        assert why_no_chat_model(beginning) is None


@pytest.mark.parametrize(
    ("name", "number", "count", "is_right"),
    [
        ("m-00001-of-00001.gguf", 0, 1, True),
        ("m.gguf", 0, 0, True),
        ("m.gguf", 0, 1, True),
        ("m.gguf", 0, 3, False),
        ("m.gguf", 2, 3, False),
        ("m-00001-of-00001.gguf", 0, 3, False),
        ("m-00001-of-00003.gguf", 1, 3, False),
    ],
)
def test_a_part_of_a_split_model_has_the_name_of_one(
    tmp_path: Path, name: str, number: int, count: int, is_right: bool
) -> None:
    file = tmp_path / name
    file.write_bytes(ggufs.target(**{"split.no": number, "split.count": count}))
    if is_right:
        read_header(file)
        return
    said = f"is part {number + 1} of a model split into {count} files"
    with pytest.raises(GGUFError, match=said):
        read_header(file)
    model = look_at(file)
    assert (model.kind, said in (model.problem or "")) == (ModelKind.BROKEN, True)


def test_an_architecture_that_llama_cpp_does_not_know_is_named(tmp_path: Path) -> None:
    (tmp_path / "m.gguf").write_bytes(ggufs.target("some-new-arch"))
    backend.start_backend(backend.LOG_ERRORS)
    with pytest.raises(ModelLoadError, match="does not know the architecture 'some-new-arch'"):
        Model(tmp_path / "m.gguf")
