"""Chat templates of real families on their real vocabularies, to run by hand.

`python -m tests.measure.measure_families MODELS` takes the folder `models` of llama.cpp's sources:
its vocabularies and templates. Each pair becomes a tiny model; printed is what it takes a reply
for, and what it would put at the end of the reasoning.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from eaglechat.engine.generation.prompt import Prompter
from eaglechat.engine.generation.text import ReplyText
from eaglechat.engine.llama import backend
from eaglechat.engine.llama.objects import Model
from eaglechat.wire.protocol import Message
from eaglechat.wire.records import Part
from tests import tiny_family

OPENS = "<|channel|>analysis<|message|>"
CLOSES = "<|end|><|start|>assistant<|channel|>final<|message|>"
FAMILIES = (
    ("qwen2", "Qwen-Qwen3-0.6B", "<think>\nThinking.\n</think>\n\nHello"),
    ("qwen35", "Qwen3.5-4B", "Thinking.\n</think>\n\nHello"),
    ("gemma-4", "google-gemma-4-31B-it", "<|channel>thought\nThinking.\n<channel|>Hello"),
    ("llama-bpe", "meta-llama-Llama-3.1-8B-Instruct", "Hello"),
    ("llama-bpe", "deepseek-ai-DeepSeek-R1-Distill-Llama-8B", "Thinking.\n</think>\n\nHello"),
    ("gpt-2", "openai-gpt-oss-120b", f"{OPENS}Thinking.{CLOSES}Hello"),
)
CHAT = (
    Message(role="user", content="hi"),
    Message(role="assistant", content="Hello", reasoning="Thinking."),
    Message(role="user", content="again"),
)


def main() -> None:
    models = Path(sys.argv[1])
    backend.start_backend(backend.LOG_ERRORS)
    with tempfile.TemporaryDirectory() as folder:
        for vocabulary, template, raw in FAMILIES:
            source = (models / "templates" / f"{template}.jinja").read_text(encoding="utf-8")
            real = models / f"ggml-vocab-{vocabulary}.gguf"
            file = tiny_family.write_model_like(Path(folder) / "model.gguf", source, real)
            with Model(file, vocabulary_only=True) as model:
                report(template, model, raw)


def report(name: str, model: Model, raw: str) -> None:
    prompter = Prompter(model)
    parts = prompter.parts()
    text = ReplyText(parts.stream)
    ids = model.tokenize(raw, bos=False, special=True)
    written = [*(text.push(parts.written(token)) for token in ids), text.flush()]
    found = {part.value: "".join(t for t, of in written if of is part).strip() for part in Part}
    print(name, found, [model.spelled(token) for token in parts.closing])
    print("  ", prompter.reasoning)
    print("  ", repr(prompter.text(CHAT)[-160:]))


if __name__ == "__main__":
    main()
