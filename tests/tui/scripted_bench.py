"""A bench that follows a script: speeds by setting, a little different in each repeat."""

from __future__ import annotations

from collections.abc import Iterator

from eaglechat.engine.bench import measure as bench
from eaglechat.wire import protocol
from eaglechat.wire.bench_records import BenchPrompt, BenchRun, RoundProfile

TOKENS_PER_SECOND = {"plain": 83.0, "0": 81.0, "auto": 104.0}
DRAFTING = (0.0, 96.0, 103.0, 108.0, 101.0, 94.0, 88.0, 83.0, 77.0)
VERIFY_MS = 11.0


class ScriptedBench:
    """Answers a `bench` request, one run at a time."""

    def __init__(self, request: protocol.Bench) -> None:
        self.request = request
        self._settings = bench.settings_of(request.n)
        self._runs = list(self._script())
        self._done = 0
        self._profiled = list(self._settings) if request.profile else []

    @property
    def is_done(self) -> bool:
        return not self._profiled and self._done == len(self._runs)

    def next_events(self) -> list[protocol.AnyEvent]:
        if self._profiled:
            return self._next_profile()
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

    def _next_profile(self) -> list[protocol.AnyEvent]:
        setting = self._profiled.pop(0)
        profile = RoundProfile(setting, 9, 14.0, 2.0, VERIFY_MS, 0.3, 0.2, 13.5, 0.5, 99.0)
        events: list[protocol.AnyEvent] = [
            protocol.BenchProfiled(id=self.request.id, profile=profile)
        ]
        if self.is_done:
            events.append(protocol.BenchDone(id=self.request.id, cancelled=False))
        return events

    def _script(self) -> Iterator[BenchRun]:
        if self.request.profile:
            return
        first = self.request.first_repeat
        for index, prompt in enumerate(self.request.prompts):
            for repeat in range(first, first + self.request.repeats):
                for setting in self._settings:
                    yield self._run(prompt, setting, repeat, 1.0 - 0.03 * index)

    def _run(self, prompt: BenchPrompt, setting: str, repeat: int, factor: float) -> BenchRun:
        n = int(setting) if setting.isdigit() else 3 if setting == "auto" else 0
        speed = TOKENS_PER_SECOND.get(setting) or DRAFTING[n]
        tokens = self.request.max_tokens
        n_tested = tokens if n else 0
        return BenchRun(
            prompt=prompt.name,
            setting=setting,
            repeat=repeat,
            tokens=tokens,
            generation_ms=tokens * 1000.0 / (speed * factor + repeat),
            n_drafted=n * tokens // 2,
            n_tested=n_tested,
            n_accepted=n_tested * 6 // 10,
            mean_accepted_length=1.0 + 0.4 * n if n else None,
            verify_ms={n + 1: VERIFY_MS + 1.6 * n},
        )
