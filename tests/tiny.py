"""Tiny random models: GGUFs that llama.cpp runs in microseconds.

A target and an EAGLE-3 draft for it, and models that have the whole vocabulary of a family.
`tests/tiny_kinds` has targets and drafts of the other kinds.

The target's next token depends on the tokens before it, but is far from even, and the draft is
right often enough, and wrong often enough, that every path of a round is taken.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
from gguf import GGUFWriter

N_EMBD, N_LAYERS, N_HEADS, N_FF, N_CTX = 32, 4, 4, 64, 4096
END = "<end>"
TOKENS = [*"abcdefghijklmnopqrstuvwxyz", "Ġ", "Ã", "©", "th", "<s>", END]
"""Letters, a space, the two bytes of é, a merge, beginning and end; one token a character."""
BOS, EOS = len(TOKENS) - 2, len(TOKENS) - 1
DRAFT_VOCABULARY = [*range(20), 26, 27, 28, EOS]
TARGET_LAYERS = (1, 2, 3)
TEMPLATE = (
    "{% for message in messages %}{{ message['content'] + ' ' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ 'x' }}{% endif %}"
)


def write_target(
    path: Path, *, template: str = TEMPLATE, looks_back: bool = True, **changes: Any
) -> Path:
    """A target. `changes` replace values of the header, by key. One that does not look back makes
    the same of a token wherever it stands."""
    random = np.random.default_rng(7)
    writer = GGUFWriter(path, changes.pop("general.architecture", "llama"))
    write_shape(writer, changes)
    write_vocabulary(writer, template, TOKENS)
    embeddings, output = _vocabulary_matrices()
    write_tensor(writer, "token_embd.weight", embeddings)
    write_tensor(writer, "output.weight", output)
    write_tensor(writer, "output_norm.weight", np.ones(N_EMBD))
    attention = {} if looks_back else {"attn_output": np.zeros((N_EMBD, N_EMBD))}
    for layer in range(N_LAYERS):
        _write_block(writer, f"blk.{layer}", random, n_input=N_EMBD, attention=attention)
    return close(writer, path)


def write_hybrid_target(path: Path, template: str = TEMPLATE) -> Path:
    """A target whose every other layer is a short convolution: it has a recurrent state."""
    random = np.random.default_rng(7)
    writer = GGUFWriter(path, "lfm2")
    convolutional = [layer % 2 == 0 for layer in range(N_LAYERS)]
    write_shape(writer, {"shortconv.l_cache": 3}, but={"attention.head_count_kv"})
    writer.add_head_count_kv([0 if is_conv else N_HEADS for is_conv in convolutional])
    write_vocabulary(writer, template, TOKENS)
    embeddings, output = _vocabulary_matrices()
    write_tensor(writer, "token_embd.weight", embeddings)
    write_tensor(writer, "output.weight", output)
    write_tensor(writer, "token_embd_norm.weight", np.ones(N_EMBD))
    for layer, is_conv in enumerate(convolutional):
        name = f"blk.{layer}"
        _write_block(writer, name, random, n_input=N_EMBD, has_attention=not is_conv)
        if is_conv:
            for part, rows, columns in (
                ("conv", N_EMBD, 3),
                ("in_proj", 3 * N_EMBD, N_EMBD),
                ("out_proj", N_EMBD, N_EMBD),
            ):
                weights = random.standard_normal((rows, columns)) * 0.6 / np.sqrt(columns)
                write_tensor(writer, f"{name}.shortconv.{part}.weight", weights)
        else:
            for part in ("attn_q_norm", "attn_k_norm"):
                write_tensor(writer, f"{name}.{part}.weight", np.ones(N_EMBD // N_HEADS))
    return close(writer, path)


def write_draft(
    path: Path,
    *,
    layers: Sequence[int] = TARGET_LAYERS,
    shared: bool = True,
    flags: Sequence[str] = (),
    **changes: Any,
) -> Path:
    """The target's draft, with a vocabulary of its own; `shared` leaves the embeddings out."""
    random = np.random.default_rng(11)
    writer = GGUFWriter(path, changes.pop("general.architecture", "eagle3"))
    if layers:
        writer.add_array("eagle3.target_layers", [int(layer) for layer in layers])
    for flag in flags:
        writer.add_bool(flag, True)
    hidden = changes.pop("target_hidden_size", N_EMBD)
    writer.add_uint32("eagle3.target_hidden_size", hidden)
    write_shape(writer, changes)
    write_vocabulary(writer, TEMPLATE, TOKENS)
    embeddings, output = _vocabulary_matrices()
    if not shared:
        write_tensor(writer, "token_embd.weight", embeddings)
    write_tensor(writer, "output.weight", output[DRAFT_VOCABULARY])
    writer.add_tensor("d2t", np.array(DRAFT_VOCABULARY, dtype=np.int64))
    # The mean of the three layers: near the target's own state, so that the draft is often right.
    write_tensor(writer, "fc.weight", np.concatenate([np.eye(N_EMBD, hidden) / 3] * 3, axis=1))
    write_tensor(writer, "output_norm.weight", np.ones(N_EMBD))
    write_tensor(writer, "blk.0.attn_norm_2.weight", np.ones(N_EMBD))
    _write_block(writer, "blk.0", random, n_input=2 * N_EMBD, attention=_look_at_last_token())
    return close(writer, path)


def write_model(path: Path, template: str | None, control: Sequence[str]) -> Path:
    """A model whose tokens are the bytes and these control tokens; a base model has no template."""
    writer = GGUFWriter(path, "llama")
    tokens = [*_byte_tokens(), *control, "<|the-end|>"]
    n_control = len(control) + 1
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("default")
    writer.add_token_list(tokens)
    writer.add_token_types([1] * (len(tokens) - n_control) + [3] * n_control)
    writer.add_token_merges(["a b"])
    writer.add_eos_token_id(len(tokens) - 1)
    if template is not None:
        writer.add_chat_template(template)
    return _write_random_model(writer, path, len(tokens))


def _byte_tokens() -> list[str]:
    """How GPT-2's vocabularies spell the bytes."""
    shown = [*range(ord("!"), ord("~") + 1), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    return [*map(chr, shown), *(chr(256 + i) for i in range(256 - len(shown)))]


def _write_random_model(writer: GGUFWriter, path: Path, n_vocab: int) -> Path:
    random = np.random.default_rng(5)
    write_shape(writer, {"block_count": 1, "vocab_size": n_vocab})
    for name in ("token_embd", "output"):
        write_tensor(writer, f"{name}.weight", random.standard_normal((n_vocab, N_EMBD)))
    write_tensor(writer, "output_norm.weight", np.ones(N_EMBD))
    _write_block(writer, "blk.0", random, n_input=N_EMBD)
    return close(writer, path)


def write_shape(writer: GGUFWriter, changes: Mapping[str, Any], but: Collection[str] = ()) -> None:
    """Sizes of the model, which `changes` replace or add to, by key; keys of `but` are left out."""
    values: dict[str, Any] = {
        "block_count": 1 if writer.arch == "eagle3" else N_LAYERS,
        "context_length": N_CTX,
        "embedding_length": N_EMBD,
        "feed_forward_length": N_FF,
        "attention.head_count": N_HEADS,
        "attention.head_count_kv": N_HEADS,
        "attention.key_length": N_EMBD // N_HEADS,
        "attention.value_length": N_EMBD // N_HEADS,
        "rope.dimension_count": N_EMBD // N_HEADS,
        "vocab_size": len(TOKENS),
    }
    for key, value in {**values, **changes}.items():
        if key not in but:
            writer.add_uint32(f"{writer.arch}.{key}", value)
    writer.add_float32(f"{writer.arch}.attention.layer_norm_rms_epsilon", 1e-5)
    writer.add_name("Tiny")


def write_vocabulary(
    writer: GGUFWriter, template: str, tokens: Sequence[str], merge: str = "t h"
) -> None:
    """These tokens; `<s>` begins a text, END ends a reply. llama.cpp wants one merge at least."""
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("default")
    writer.add_token_list(tokens)
    writer.add_token_types([3 if token.startswith("<") else 1 for token in tokens])
    writer.add_token_merges([merge])
    writer.add_bos_token_id(tokens.index("<s>"))
    writer.add_eos_token_id(tokens.index(END))
    writer.add_add_bos_token(True)
    writer.add_chat_template(template)


def _vocabulary_matrices() -> tuple[np.ndarray, np.ndarray]:
    """Embeddings and output head: token t points at the likeliest token after it."""
    random = np.random.default_rng(3)
    embeddings = random.standard_normal((len(TOKENS), N_EMBD))
    following = random.permutation(EOS)
    output = 0.25 * random.standard_normal((len(TOKENS), N_EMBD))
    output[following] += 0.16 * embeddings[:EOS]
    # Control tokens and halves of é stay unlikely: replies neither end nor break by themselves.
    output[[BOS, EOS, TOKENS.index("Ã"), TOKENS.index("©")]] = 0.0
    return embeddings, output


def _look_at_last_token() -> dict[str, np.ndarray]:
    """Attention of the draft that passes on the embedding of its newest token."""
    token_half = np.concatenate([np.eye(N_EMBD), np.zeros((N_EMBD, N_EMBD))], axis=1)
    return {
        "attn_q": 3 * token_half,
        "attn_k": 3 * token_half,
        "attn_v": 2 * token_half,
        "attn_output": np.eye(N_EMBD),
    }


def _write_block(
    writer: GGUFWriter,
    name: str,
    random: np.random.Generator,
    *,
    n_input: int,
    attention: Mapping[str, np.ndarray] = MappingProxyType({}),
    has_attention: bool = True,
) -> None:
    def weights(rows: int, columns: int) -> np.ndarray:
        return random.standard_normal((rows, columns)) * (0.6 / np.sqrt(columns))

    write_tensor(writer, f"{name}.attn_norm.weight", np.ones(N_EMBD))
    write_tensor(writer, f"{name}.ffn_norm.weight", np.ones(N_EMBD))
    if has_attention:
        for part in ("attn_q", "attn_k", "attn_v"):
            write_tensor(
                writer, f"{name}.{part}.weight", attention.get(part, weights(N_EMBD, n_input))
            )
        output = attention.get("attn_output", weights(N_EMBD, N_EMBD))
        write_tensor(writer, f"{name}.attn_output.weight", output)
    write_tensor(writer, f"{name}.ffn_gate.weight", weights(N_FF, N_EMBD))
    write_tensor(writer, f"{name}.ffn_up.weight", weights(N_FF, N_EMBD))
    write_tensor(writer, f"{name}.ffn_down.weight", weights(N_EMBD, N_FF))


def write_tensor(writer: GGUFWriter, name: str, values: np.ndarray) -> None:
    writer.add_tensor(name, values.astype(np.float32))


def close(writer: GGUFWriter, path: Path) -> Path:
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path
