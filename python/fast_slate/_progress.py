"""The messages of a run → a bar, if tqdm is there, and the caller's own function."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

_TICKS = 1000


class Watcher:
    """Hears of a run, and tells the bar and the callback."""

    def __init__(self, callback: Callable[[dict[str, Any]], object] | None) -> None:
        self._callback = callback
        self._bar: Any = None
        try:
            from tqdm.auto import tqdm
        except ImportError:
            return
        layout = "{desc} {percentage:3.0f}%|{bar}| {elapsed}<{remaining}{postfix}"
        self._bar = tqdm(total=_TICKS, desc="training", bar_format=layout, leave=False)

    def __call__(self, kind: str, content: Any) -> None:
        if kind == "step":
            step, spent, seconds, reward = content
            if self._bar is not None:
                self._bar.update(round(_TICKS * spent) - self._bar.n)
                self._bar.set_postfix_str(f"step {step}, sampled reward {reward:.4f}", refresh=False)
            told = {"kind": kind, "step": step, "spent": spent, "seconds": seconds}
            self._tell({**told, "sampled_reward": reward})
            return
        for row in json.loads(content):
            self._tell(row)

    def _tell(self, message: dict[str, Any]) -> None:
        if self._callback is not None:
            self._callback(message)

    def close(self) -> None:
        """Removes the bar."""
        if self._bar is not None:
            self._bar.close()
