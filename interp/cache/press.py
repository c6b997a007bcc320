"""A cache plan as a press of kvpress, which is imported here alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from interp.core.installed import package_error


class MasksKeys(Protocol):
    """A plan, which knows the keys that a layer must not see."""

    def masked_keys(self, layer: int, keys: Any) -> tuple[Any, Any, Any]:
        """Return batch, key-value head and position of every key that is hidden."""
        ...


def plan_press(plan: MasksKeys) -> Any:
    """Return a press that hides from every key-value head what a plan does not keep.

    kvpress hides keys after a prompt has been read in full, and frees no memory.
    """
    try:
        import kvpress  # pyright: ignore[reportMissingImports]
    except ImportError as error:
        purpose = "a press (with transformers below 5.3, in an environment of its own)"
        raise package_error(error, purpose, "kvpress", "pip install kvpress") from error

    @dataclass
    class PlanPress(kvpress.BasePress):
        """Hides the keys that a plan of interp does not keep."""

        plan: Any

        def compress(
            self,
            module: Any,
            hidden_states: Any,
            keys: Any,
            values: Any,
            attentions: Any,
            kwargs: Any,
        ) -> tuple[Any, Any]:
            module.masked_key_indices = self.plan.masked_keys(module.layer_idx, keys)
            return keys, values

    return PlanPress(plan)
