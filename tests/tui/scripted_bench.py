"""A bench that follows a script: speeds by setting, a little different in each repeat."""

from __future__ import annotations

from collections.abc import Iterator

from eaglechat.engine.bench.measure import name_of, settings_of
from eaglechat.wire import protocol
from eaglechat.wire.bench_records import PLAIN, BenchPrompt, BenchRun
from eaglechat.wire.protocol import AUTO, Speculation
from eaglechat.wire.records import NGRAM
from eaglechat.wire.stats import DrafterStats

TOKENS_PER_SECOND = {"plain": 83.0, "0": 81.0, "auto": 104.0}
DRAFTING = (0.0, 96.0, 103.0, 108.0, 101.0, 94.0, 88.0, 83.0, 77.0)
VERIFY_MS = 11.0


class ScriptedBench:
    """Answers a `bench` request, one run at a time."""

    def __init__(self, request: protocol.Bench) -> None:
        self.request = request
        self._settings = settings_of(request.n, request.shapes, request.ngram, request.drafters)
        self._runs = list(self._script())
        self._done = 0

    @property
    def is_done(self) -> bool:
        return self._done == len(self._runs)

    def next_events(self) -> list[protocol.AnyEvent]:
        run, self._done = self._runs[self._done], self._done + 1
        events: list[protocol.AnyEvent] = [protocol.BenchRunDone(id=self.request.id, run=run)]
        if self.is_done:
            events.append(protocol.BenchDone(id=self.request.id, cancelled=False))
        else:
            following = self._runs[self._done]
            events.append(
                protocol.BenchProgress(
                    id=self.request.id,
                    done=self._done,
                    total=len(self._runs),
                    prompt=following.prompt,
                    setting=following.setting,
                    tokens=following.tokens // 4,
                )
            )
        return events

    def _script(self) -> Iterator[BenchRun]:
        first = self.request.first_repeat
        for index, prompt in enumerate(self.request.prompts):
            for repeat in range(first, first + self.request.repeats):
                for setting in self._settings:
                    yield self._run(prompt, setting, repeat, 1.0 - 0.03 * index)

    def _run(
        self, prompt: BenchPrompt, setting: Speculation, repeat: int, factor: float
    ) -> BenchRun:
        asked = str(setting.n_draft_max) if setting.enabled else PLAIN
        n = int(asked) if asked.isdigit() else 3 if asked == AUTO else 0
        speed = TOKENS_PER_SECOND.get(asked) or DRAFTING[n]
        tokens = self.request.max_tokens
        n_tested = tokens if n else 0
        by_drafter = (
            {"eagle3": DrafterStats(n_tested, n_tested, n_tested, n_tested * 6 // 10)} if n else {}
        )
        if n and setting.ngram:
            by_drafter[NGRAM] = DrafterStats(4, 16, 10, 9)
        return BenchRun(
            prompt=prompt.name,
            setting=name_of(setting),
            repeat=repeat,
            tokens=tokens,
            generation_ms=tokens * 1000.0 / (speed * factor + repeat),
            n_drafted=n * tokens // 2,
            n_tested=n_tested,
            n_accepted=n_tested * 6 // 10,
            mean_accepted_length=1.0 + 0.4 * n if n else None,
            verify_ms={n + 1: VERIFY_MS + 1.6 * n},
            n=setting.n_draft_max if setting.enabled else None,
            shape=setting.shape if setting.enabled else None,
            ngram=setting.enabled and setting.ngram,
            by_drafter=by_drafter,
        )
