"""What is said of each setting: in the help of its flag, on the settings screen and in the docs.

The settings themselves, with their types, bounds and defaults, are in `model.py` and below it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

AS_ITS_KEY = "--"
"""Stands for the key of a setting with dashes."""


@dataclass(frozen=True)
class Said:
    description: str = ""
    flag: str = AS_ITS_KEY
    """Its flag on the command line; empty if it has none. That of a bool switches it off."""
    flag_help: str = ""
    """The help text of the flag, if that is another."""
    shorthand: tuple[tuple[str, Any], ...] = ()
    """More flags, which take no value, each with the value that it sets."""
    example: tuple[Any, ...] | None = None
    """Of a list."""
    metavar: str = ""
    """What stands for its value in the help, if that is not the usual."""
    group: str = ""
    """The title under which the help shows it."""


ANY_KEY = Said("Keys of a command, in place of its default ones.", example=("ctrl+x", "f4"))

SAID: Mapping[str, Mapping[str, Said]] = {
    "generation": {
        "temperature": Said("Randomness of sampling; 0 always takes the likeliest token."),
        "top_k": Said("Sample among the k likeliest tokens; 0 means all."),
        "top_p": Said("Sample among the likeliest tokens that add up to this probability."),
        "min_p": Said("Drop tokens less likely than this share of the likeliest."),
        "repeat_penalty": Said("Make recent tokens less likely by this factor; 1 is off."),
        "seed": Said(
            "Seed of sampling, which gives the same reply again; -1 draws a new one for each reply."
        ),
        "max_tokens": Said("Longest reply in tokens; 0 means until the context is full."),
        "thinking": Said(
            "Whether the model thinks before it answers; auto: yes, if its chat template has a "
            "switch.",
            shorthand=(("--no-thinking", "off"),),
        ),
        "effort": Said(
            "How much the model thinks: a word of its chat template, such as low, medium or high; "
            "without one the template decides."
        ),
        "system_prompt": Said(
            "The system prompt; empty leaves it to the chat template.", flag="--system"
        ),
        "role": Said("The role of new chats: its file's name without .toml; empty means none."),
    },
    "speculation": {
        "enabled": Said(
            "Draft and verify; off is plain decoding, as if there were no draft.",
            flag="--no-speculation",
            flag_help="Decode plainly, as if there were no draft.",
        ),
        "n_draft_max": Said(
            'Most tokens drafted per round; 0 is plain decoding, "auto" lets measurement choose.'
        ),
        "n_min": Said("Drop drafts shorter than this."),
        "p_min": Said("Stop drafting at a token less probable than this."),
        "shape": Said(
            'Draft a chain or a tree of n_draft_max tokens; "auto" lets measurement choose.'
        ),
        "ngram": Said(
            "Find the latest tokens earlier in the chat and propose what followed; needs no draft.",
            flag="--no-ngram",
            flag_help="Draft without n-grams.",
        ),
        "drafter": Said(
            'Who drafts behind n-grams: one that the pair has, "ngram" for n-grams alone, or '
            '"none"; "auto" takes the draft file, or else what the target\'s file has.'
        ),
    },
    "engine": {
        "llama_server": Said(
            "A llama-server that runs the pairs; empty means eaglechat's own engine."
        ),
        "command": Said(
            "Command line that starts the engine; empty starts it on this machine.",
            example=("ssh", "gpu-box", "eaglechat", "engine"),
            flag="--engine-command",
        ),
        "n_ctx": Said(
            "Context size in tokens; 0: what the target was trained for, up to 32,768, as memory "
            "allows.",
            flag="--ctx",
        ),
        "n_batch": Said("Prompt tokens decoded at once."),
        "n_threads": Said(
            "Threads of llama.cpp; 0: one for each fast physical core.", flag="--threads"
        ),
        "n_gpu_layers": Said("Layers of the models on the GPU; -1 means all.", flag="--gpu-layers"),
        "split_mode": Said("How several GPUs share the target; none uses main_gpu alone."),
        "main_gpu": Said("The GPU for split_mode none, counted from 0."),
        "tensor_split": Said(
            "Each GPU's share of the target; empty shares by free memory.", example=(3, 1)
        ),
        "rpc_servers": Said(
            "RPC servers of llama.cpp; their devices come before this machine's GPUs.",
            example=("gpu1:50052",),
        ),
        "flash_attention": Said("Flash attention; auto uses it if the backend supports it."),
        "kv_type": Said(
            "Number format of the target's KV cache; q8_0 takes half the memory and needs flash "
            "attention."
        ),
        "draft_kv_type": Said("Number format of the draft's KV cache."),
        "draft_window": Said("How many of the latest tokens an EAGLE-3 draft sees; 0 means all."),
        "checkpoints_mib": Said(
            "Memory, in MiB, for saved states of a recurrent or hybrid target, from which a chat "
            "goes on; 0 saves none."
        ),
    },
    "library": {
        "folders": Said(
            "More folders to search for GGUF files, besides the usual ones.",
            example=("/data/models",),
            flag="",
        )
    },
    "interface": {
        "theme": Said("Name of a theme."),
        "view": Said(
            "How replies are shown: text with the guessed part in a second ink, Markdown, or each "
            "token by its origin with the rejected ones.",
            flag="",
        ),
        "show_panel": Said("Show the speculation panel.", flag=""),
        "panel": Said(
            "Where the panel is: beside the chat, from 100 columns; or below it, from 80.", flag=""
        ),
        "inspect": Said("Record the target's probabilities, to look inside rounds.", flag=""),
        "notify": Said(
            "How to tell you that a long reply has ended while the terminal does not have the "
            "focus.",
            flag="",
        ),
        "notify_after": Said(
            "Tell you only of replies that took at least this many seconds.", flag=""
        ),
    },
    "server": {
        "name": Said("What the menu calls it."),
        "url": Said("Its address, such as http://gpu-box:8080; /v1 may be left out."),
        "model": Said("The model to chat with; empty lets you choose."),
        "plain_model": Said("The same model without a draft, on the same server, for comparisons."),
        "key_env": Said("Environment variable that holds its key."),
        "key_command": Said(
            "Command whose first line is its key, run once when the server is asked."
        ),
        "headers": Said("More headers to send with every request."),
        "ca_file": Said("Certificates (PEM) to trust in place of the system's."),
        "connect_timeout": Said("Longest wait for a connection, in seconds."),
        "timeout": Said("Longest wait for the next part of a reply, in seconds, prefill included."),
    },
}
"""By table and key."""
