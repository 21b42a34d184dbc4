"""What can draft for a target, by GGUF headers, before llama.cpp opens the files.

For some pairs llama.cpp ends the process, or writes out of bounds; for others it gives the reason
only in its log. `KINDS` has a row for each kind of drafter, whose module is in `engine/drafters`.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import Literal

from eaglechat.gguf.header import GGUFError, GGUFHeader, read_header, read_tensor, read_texts
from eaglechat.gguf.memory import head_widths
from eaglechat.gguf.preflight import (
    DRAFT_ARCHITECTURE,
    EAGLE_4,
    EXTRACT_LAYERS,
    TARGET_ARCHITECTURES,
    Pairing,
    PreflightError,
    deepest_readable_layer,
    why_no_chat_model,
)
from eaglechat.paths import expanded
from eaglechat.wire.drafters import DrafterChoice, DrafterKind
from eaglechat.wire.protocol import Load
from eaglechat.wire.records import N_DRAFT_MAX_LIMIT


def kind_of(draft: GGUFHeader) -> DrafterKind | None:
    """The kind of drafter that a file is; None for a language model, which may draft for another
    (`model`)."""
    if draft.architecture == _BLOCKS:
        return block_of(draft).variant
    if draft.architecture == ASSISTANT or draft.is_heads_alone:
        return "mtp"
    return eagle_of(draft) if draft.architecture == DRAFT_ARCHITECTURE else None


def pairings(target: GGUFHeader, draft: GGUFHeader | None) -> tuple[Pairing, ...]:
    """All that drafts for a target: the draft, which `why_unfit` has accepted, and what the
    target's own file has. Heads in a sidecar stand in for those in the target."""
    found = [] if draft is None else [Pairing(kind_of(draft) or "model", draft)]
    if why_no_heads(target) is None and not any(one.kind == "mtp" for one in found):
        found.append(Pairing("mtp"))
    return tuple(found)


def kinds(target: GGUFHeader, draft: GGUFHeader | None) -> tuple[DrafterKind, ...]:
    """The kinds of all that drafts for a target, in that order; without any, only n-grams do."""
    return tuple(one.kind for one in pairings(target, draft))


def offered_kind(target: GGUFHeader, draft: GGUFHeader) -> DrafterKind | None:
    """The kind of drafter that a file would be for a target: `model` for a much smaller model of
    its family; None if it is not worth a try. Whether a draft fits is `why_unfit`."""
    if (kind := kind_of(draft)) is not None:
        return kind
    pre = "tokenizer.ggml.pre"
    if draft.size_bytes > _MOST_OFFERED * target.size_bytes or draft.get(pre) != target.get(pre):
        return None
    return "model" if next(_no_model(target, draft), None) is None else None


def takes_drafts(target: GGUFHeader) -> bool:
    """Whether llama.cpp runs any draft with targets of this architecture: one that reads their
    layer inputs, or a sidecar of MTP heads."""
    return target.architecture in TARGET_ARCHITECTURES | RUNS_HEADS


def check_choice(target: GGUFHeader, draft: GGUFHeader | None, choice: DrafterChoice) -> None:
    """Raises PreflightError if the user chose a drafter that the pair does not have."""
    found = kinds(target, draft)
    if choice in ("auto", "ngram", "none") or choice in found:
        return
    why = why_no_heads(target) if choice == "mtp" else None
    why = why or (
        f"the draft given is of another kind ({found[0]})" if draft else "no draft is given"
    )
    raise PreflightError(f"{choice} cannot draft for {target.path.name}: {why}")


def check_pair(target: Path, draft: Path | None) -> tuple[GGUFHeader, GGUFHeader | None]:
    """The headers of a target and its draft. Raises PreflightError if they cannot run together."""
    headers = _read(target, "target"), _read(draft, "draft") if draft is not None else None
    try:
        # A check may rest on those before it: none is made behind the first reason.
        for reason in chain(_reasons(*headers), _reasons_inside(*headers)):
            raise PreflightError(reason)
    except (OSError, GGUFError) as error:
        raise PreflightError(f"the draft cannot be read: {error}") from error
    return headers


def check_load(load: Load) -> tuple[GGUFHeader, GGUFHeader | None]:
    """The headers of a load's files. Raises PreflightError if they cannot run together, or have not
    the drafter that the user chose."""
    headers = check_pair(expanded(load.target), expanded(load.draft) if load.draft else None)
    check_choice(*headers, load.speculation.drafter)
    return headers


def why_unfit(target: GGUFHeader, draft: GGUFHeader | None) -> str | None:
    """Like `check_pair`, of headers alone, such as those of files on the Hub: why these cannot run
    together; None if they can."""
    return next(_reasons(target, draft), None)


def _reasons(target: GGUFHeader, draft: GGUFHeader | None) -> Iterator[str]:
    """Why these cannot run together."""
    if (kind := kind_of(target)) is not None:
        what = (
            f"{target.path} has the MTP heads of a model alone, not the model"
            if kind == "mtp"
            else f"the target {target.path} is a draft (architecture {target.architecture}), not a "
            "language model"
        )
        if draft is None:
            yield f"{what}; give it as the draft, with its own target"
        else:
            yield f"{what}; are target and draft swapped? (the draft given is {draft.path})"
    if (other := why_no_chat_model(target)) is not None:
        named = f" ({target.architecture})" if target.architecture else ""
        yield f"{target.path}{named} cannot chat, it is {other}"
    if not target.architecture:
        yield f"the header of {target.path} does not name its architecture"
    if draft is not None:
        yield from KINDS[kind_of(draft) or "model"].reasons(target, draft)


def _reasons_inside(target: GGUFHeader, draft: GGUFHeader | None) -> Iterator[str]:
    """Why, by what headers do not hold. Raises OSError, GGUFError."""
    if draft is not None:
        yield from _wrong_own_tokens(draft)
        if kind_of(draft) is None:
            yield from _other_texts(target, draft)


def _read(path: Path, role: str) -> GGUFHeader:
    try:
        return read_header(path)
    except FileNotFoundError:
        raise PreflightError(f"the {role} {path} does not exist") from None
    except OSError as error:
        why = error.strerror or error
        raise PreflightError(f"the {role} {path} cannot be read: {why}") from error
    except GGUFError as error:
        raise PreflightError(f"the {role} cannot be read: {error}") from error


# --- what several kinds check: each yields why a target and a draft cannot run together ---


def _made_for_another(
    target: GGUFHeader, draft: GGUFHeader, n_embd: int, n_layers: int | None = None
) -> Iterator[str]:
    """The target that a draft was made for has this hidden size, the draft's vocabulary, and this
    many layers if the draft says."""
    for phrase, made_for, its in (
        ("hidden size {}", n_embd, target.n_embd),
        ("a vocabulary of {} tokens", draft.n_vocab, target.n_vocab),
        ("{} layers", target.n_layers if n_layers is None else n_layers, target.n_layers),
    ):
        if made_for != its:
            yield (
                f"the draft was made for a target with {phrase.format(made_for)}, "
                f"{target.path.name} has {its}"
            )


def _exports_nothing(target: GGUFHeader, draft: GGUFHeader) -> Iterator[str]:
    """A target whose graph does not export layer inputs fails a GGML_ASSERT."""
    if target.architecture not in TARGET_ARCHITECTURES:
        yield (
            f"the target {target.path} has the architecture {target.architecture}, whose llama.cpp "
            f"graph does not export layer inputs, so the draft {draft.path.name} cannot read it; "
            "load the target without a draft"
        )


def _unreadable(target: GGUFHeader, layers: Iterable[int]) -> Iterator[str]:
    last = deepest_readable_layer(target)
    for layer in layers:
        if not 0 <= layer <= last:
            what = f"the input of layer {layer}"
            if layer == target.n_layers:
                what = f"the state after the last layer ({layer})"
            yield (
                f"the draft reads {what} of its target, {target.path.name} ({target.architecture}) "
                f"offers the inputs of layers 0 to {last}"
            )


def _wrong_own_tokens(draft: GGUFHeader) -> Iterator[str]:
    """A draft's list of its own tokens, `d2t`, if it has one, is that of its vocabulary: llama.cpp
    writes the draft's logits wherever the list points. Raises OSError, GGUFError."""
    d2t = next((tensor for tensor in draft.tensors if tensor.name == "d2t"), None)
    if d2t is None:
        return
    if d2t.type != "I64" or len(d2t.shape) != 1:
        yield (
            f"the draft's d2t is a tensor of {d2t.type} with {len(d2t.shape)} dimensions, "
            "llama.cpp needs a list of I64"
        )
    if not any(tensor.name == "output.weight" for tensor in draft.tensors):
        yield f"the draft has {d2t.shape[0]} tokens of its own (d2t), but no output head for them"
    if d2t.shape[0] > draft.n_vocab:
        yield f"the draft's d2t has {d2t.shape[0]} tokens, its vocabulary has {draft.n_vocab}"
    for (id,) in struct.iter_unpack("<q", read_tensor(draft, d2t)):
        if not 0 <= id < draft.n_vocab:
            yield f"the draft's d2t names token {id}, its vocabulary has {draft.n_vocab}"


# --- EAGLE-3 ---

_EAGLE3_LAYERS = 1
_SHAREABLE = ("token_embd.weight", "output.weight")
"""A draft without these tensors uses its target's."""


def eagle_of(draft: GGUFHeader) -> Literal["eagle3", "eagle4"]:
    """An EAGLE-4 draft without its candidate head runs as EAGLE-3.1."""
    return "eagle4" if draft.get(EAGLE_4) else "eagle3"


def _no_eagle3(target: GGUFHeader, draft: GGUFHeader) -> Iterator[str]:
    its, layers = f"the draft {draft.path}", draft.numbers("eagle3.target_layers")
    if layers is None and draft.get("eagle3.target_layers") is not None:
        how = f"as a list of {EXTRACT_LAYERS} whole numbers"
        yield f"{its} does not give its extract layers (eagle3.target_layers) {how}"
    layers = layers or ()
    if len(layers) != EXTRACT_LAYERS:
        yield f"{its} names {len(layers)} extract layers, EAGLE-3 needs {EXTRACT_LAYERS}"
    if draft.n_layers != _EAGLE3_LAYERS:
        yield f"{its} has {draft.n_layers} layers, an EAGLE-3 draft has {_EAGLE3_LAYERS}"
    yield from _exports_nothing(target, draft)
    yield from _made_for_another(target, draft, draft.number("eagle3.target_hidden_size"))
    own = {tensor.name for tensor in draft.tensors}
    if draft.n_embd != target.n_embd and not own.issuperset(_SHAREABLE):
        yield (
            f"the draft has hidden size {draft.n_embd} and no embeddings or output head of its "
            f"own, so it cannot use those of {target.path.name}, which has {target.n_embd}"
        )
    yield from _unreadable(target, layers)


# --- MTP heads: in the target's own file, in a sidecar (a file of the same architecture with the
# heads and without the other blocks), or as Gemma 4's assistant, a model of its own ---

ASSISTANT, _ASSISTANTS_TARGET = "gemma4-assistant", "gemma4"

STATES_OF_ALL_ROWS = frozenset(
    {
        "bailingmoe3", "cohere2moe", "deepseek2", "deepseek32", "glm-dsa", "glm4moe", "hy_v3",
        "nemotron_h_moe", "qwen35", "qwen35moe",
    }
)  # fmt: skip
"""Architectures whose graph exports a head's states before it drops the rows without output. Only
there may one batch hold rows of both kinds: the other graphs drop them first, and llama.cpp then
reads the states of the wrong rows, or ends the process."""

RUNS_HEADS = STATES_OF_ALL_ROWS | {"mimo2", "qwen3next", "step35"}
"""Architectures for which llama.cpp has a graph of the heads. deepseek4 has one too, with states of
another width than `llama_model_n_embd_out` says."""


def why_no_heads(target: GGUFHeader) -> str | None:
    """Why MTP heads cannot draft for a target; None if they can.

    llama.cpp ends the process where heads that are declared are missing, so they are looked for
    among the tensors.
    """
    declared = target.number("{arch}.nextn_predict_layers")
    if not target.n_mtp_heads:
        if declared:
            return f"its MTP heads were stripped, but its header still declares {declared}"
        return "its file has no MTP heads"
    if target.architecture not in RUNS_HEADS:
        return f"llama.cpp cannot run the MTP heads of {target.architecture} models"
    if declared != target.n_mtp_heads:
        return f"its file declares {declared} MTP heads and has {target.n_mtp_heads}"
    return None


def without_stripped_blocks(target: GGUFHeader) -> dict[str, int]:
    """Fields of the header as they would be without MTP heads, if the blocks of those that it
    declares were stripped as a whole; else nothing. For some architectures llama.cpp does not load
    a file that lacks what its header declares."""
    n_layers, arch = target.n_layers, target.architecture
    last = f"blk.{target.number('{arch}.block_count') - 1}."
    tensors = (*target.tensors, *target.tensors_elsewhere)
    if not target.number("{arch}.nextn_predict_layers") or any(
        tensor.name.startswith(last) for tensor in tensors
    ):
        return {}
    return {f"{arch}.block_count": n_layers, f"{arch}.nextn_predict_layers": 0}


def _no_mtp(target: GGUFHeader, draft: GGUFHeader) -> Iterator[str]:
    is_assistant = draft.architecture == ASSISTANT
    wanted = _ASSISTANTS_TARGET if is_assistant else draft.architecture
    if target.architecture != wanted:
        yield (
            f"the draft {draft.path} has the MTP heads of a {wanted} model, {target.path.name} is "
            f"a {target.architecture} model"
        )
    if is_assistant:
        n_embd = draft.number("{arch}.embedding_length_out")
        yield from _made_for_another(target, draft, n_embd)
        yield from _other_keys(target, draft)
        return
    if (why := why_no_heads(draft)) is not None:
        yield f"the draft {draft.path} cannot draft: {why}"
    yield from _made_for_another(target, draft, draft.n_embd, draft.n_layers)


def _other_keys(target: GGUFHeader, assistant: GGUFHeader) -> Iterator[str]:
    """An assistant's layers read the keys and values of the target's last sliding and last full
    layer in the shape that its own header gives. Where they are smaller, llama.cpp ends the
    process; where they are larger, it reads a part of them."""
    for kind, of_target in _shapes_of_keys(target).items():
        own = _shapes_of_keys(assistant).get(kind, of_target)
        if own != of_target:
            yield (
                f"the draft reads keys of {own[0]} heads {own[1]} wide in the {kind} layers of its "
                f"target, {target.path.name} has {of_target[0]} heads {of_target[1]} wide"
            )


def _shapes_of_keys(header: GGUFHeader) -> dict[str, tuple[int, int]]:
    """The number and width of the key heads in the last layer of each kind."""
    found = {}
    shared = header.number("{arch}.attention.shared_kv_layers")
    is_sliding = header.flags("{arch}.attention.sliding_window_pattern")
    own = is_sliding[: len(is_sliding) - shared] or is_sliding
    key = "{arch}.attention.head_count"
    heads = header.numbers(f"{key}_kv") or ()
    of_all = header.number(f"{key}_kv", header.number(key))
    for layer, sliding in enumerate(own):
        found["sliding" if sliding else "full"] = (
            heads[layer] if layer < len(heads) else of_all,
            header.number(f"{{arch}}.attention.key_length{'_swa' if sliding else ''}"),
        )
    return found


# --- block drafters: all have llama.cpp's architecture `dflash`. DFlash (arXiv 2602.06036) fills a
# block of masks in one pass. DSpark adds a Markov head, which lets a token see the one before it,
# and a head that says how sure it is. DFlash2 selects each token from a lattice of candidates ---

_BLOCKS = "dflash"


@dataclass(frozen=True)
class Block:
    """How a drafter's block is filled in and read."""

    variant: Literal["dflash", "dspark", "dflash2"]
    size: int
    """The most rows of a block, as trained."""
    first: int
    """The row that drafts the first token: 0 if the last token's own row does, else 1."""
    is_causal: bool = False
    """Whether a row of the block sees only those before it."""
    has_confidence: bool = False
    """Whether the draft says of each token how likely the target accepts it."""

    @property
    def longest(self) -> int:
        """The most tokens that a block drafts."""
        return min(self.size - self.first, N_DRAFT_MAX_LIMIT)


def block_of(draft: GGUFHeader) -> Block:
    """llama.cpp tells the variants apart by the same tensors."""
    names = {tensor.name for tensor in draft.tensors}
    if "markov_w1.weight" in names:
        variant: Literal["dflash", "dspark", "dflash2"] = "dspark"
    else:
        variant = "dflash2" if "selector_hidden.weight" in names else "dflash"
    from_anchor = variant == "dspark" and draft.get("dflash.sample_from_anchor") is not False
    return Block(
        variant,
        size=draft.number("dflash.block_size"),
        first=0 if from_anchor else 1,
        is_causal=draft.get("dflash.attention.causal") is True,
        has_confidence=variant == "dspark"
        and "conf_proj.weight" in names
        and draft.get("dflash.has_confidence_head") is not False,
    )


def knows_probability(drafter: Pairing) -> bool:
    """Whether llama.cpp's own drafter of this kind knows how probable its tokens are."""
    draft = drafter.file if drafter.kind == "dspark" else None
    return draft is None or block_of(draft).has_confidence


def _no_block(target: GGUFHeader, draft: GGUFHeader) -> Iterator[str]:
    yield from _exports_nothing(target, draft)
    its, layers = f"the draft {draft.path}", draft.numbers("dflash.target_layers") or ()
    if not layers:
        what = "the target layers that it reads (dflash.target_layers)"
        yield f"{its} does not give {what} as a list of whole numbers"
    if block_of(draft).longest < 1:
        size = f"(dflash.block_size) {draft.get('dflash.block_size')}"
        yield f"{its} gives the size of its block {size}, in which it cannot draft a token"
    mask = draft.number("tokenizer.ggml.mask_token_id", -1)
    if not 0 <= mask < draft.n_vocab:
        what = "no mask token (tokenizer.ggml.mask_token_id), with which it would fill a block"
        yield f"{its} has {what}; convert it anew"
    keys, values = head_widths(draft)
    if keys != values:
        widths = f"keys {keys} wide and values {values} wide"
        needs = "llama.cpp's graph of it needs the same width"
        yield f"{its} has attention heads with {widths}, {needs}"
    yield from _made_for_another(target, draft, draft.n_embd)
    yield from _unreadable(target, layers)


# --- whole models. Both must write the same tokens. The comparison is llama.cpp's
# `common_speculative_are_compatible` (common/speculative.cpp): the vocabulary's type, BOS and EOS,
# sizes within 128 tokens, and the same texts from token 5 on, as families differ in the first ---

_MOST_MORE, _FIRST_COMPARED = 128, 5
_RECURRENT = ("{arch}.ssm.state_size", "{arch}.shortconv.l_cache", "{arch}.wkv.head_size")
"""Sizes of recurrent states."""
_MOST_OFFERED = 1 / 3
"""A model of more than this share of the target's bytes is not offered as its draft."""


def _no_model(target: GGUFHeader, draft: GGUFHeader) -> Iterator[str]:
    """Compares all but the texts of the tokens."""
    if (other := why_no_chat_model(draft)) is not None:
        yield f"{draft.path} cannot draft, it is {other}"
    if any(draft.number(key) for key in _RECURRENT):
        yield (
            f"{draft.path} is a recurrent or hybrid model: its state cannot take back rejected "
            "tokens, so it cannot draft"
        )
    for what, key, adds in (
        ("type of tokenizer", "model", ""),
        ("BOS token", "bos_token_id", "add_bos_token"),
        ("EOS token", "eos_token_id", "add_eos_token"),
    ):
        here, there = (_of_tokenizer(one, key, adds) for one in (target, draft))
        if here != there:
            yield _differ(target, draft, f"the {what} is {here} here, {there} there")
    if abs(target.n_vocab - draft.n_vocab) > _MOST_MORE:
        sizes = f"{target.n_vocab:,} tokens here, {draft.n_vocab:,} there"
        yield _differ(target, draft, sizes)


def _other_texts(target: GGUFHeader, draft: GGUFHeader) -> Iterator[str]:
    """Compares the texts of the tokens, which headers do not hold. Raises OSError, GGUFError."""
    key = "tokenizer.ggml.tokens"
    texts = zip(read_texts(target, key), read_texts(draft, key), strict=False)
    for id, both in islice(enumerate(texts), _FIRST_COMPARED, None):
        if both[0] != both[1]:
            here, there = (ascii(text.decode("utf-8", errors="replace")) for text in both)
            yield _differ(target, draft, f"token {id} is {here} here, {there} there")


def _of_tokenizer(header: GGUFHeader, key: str, adds: str) -> object:
    """A field of the tokenizer; None for a token that it does not add."""
    if adds and not header.get(f"tokenizer.ggml.{adds}"):
        return None
    return header.get(f"tokenizer.ggml.{key}")


def _differ(target: GGUFHeader, draft: GGUFHeader, how: str) -> str:
    return (
        f"{draft.path} cannot draft for {target.path.name}: their vocabularies differ ({how}). "
        "A draft model has to be of the target's family"
    )


# --- all kinds ---


@dataclass(frozen=True)
class Kind:
    reasons: Callable[[GGUFHeader, GGUFHeader], Iterator[str]]
    """Why a target and a draft cannot run together."""
    file: str
    """The name of its module."""
    no_trees: str | None = None
    """Why it drafts chains only; None if it grows trees, with a sequence for each path."""


_ONE_PASS = "a block is drafted in one pass, as a chain"

KINDS: Mapping[DrafterKind, Kind] = {
    "eagle3": Kind(_no_eagle3, "eagle3"),
    "eagle4": Kind(_no_eagle3, "eagle3"),
    "mtp": Kind(_no_mtp, "mtp", "MTP heads draft chains only"),
    "dflash": Kind(_no_block, "dflash", _ONE_PASS),
    "dspark": Kind(_no_block, "dflash", _ONE_PASS),
    "dflash2": Kind(_no_block, "dflash", _ONE_PASS),
    "model": Kind(_no_model, "model", "a draft model drafts chains only"),
}
