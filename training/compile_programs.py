"""Compiles the programs of Tracr's library; their weights are stored with the package.

    python -m training.compile_programs       # needs: pip install 'interp[tracr]'

takes about two minutes and writes `interp/planted/programs.npz`. Only this needs Tracr
and jax.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np

from interp.planted.compiled import Program, compiled
from interp.planted.programs import FILE, PROGRAMS, SIZES


def recipes() -> dict[str, Callable[[], Any]]:
    """Return for each program the function that makes its source."""
    from tracr.compiler import lib  # pyright: ignore[reportMissingImports]
    from tracr.rasp import rasp  # pyright: ignore[reportMissingImports]

    def fraction() -> Any:
        return lib.make_frac_prevs(rasp.tokens == "x")

    def pair_sums() -> Any:
        other = rasp.Map(lambda x: x % 3, rasp.tokens)
        return lib.make_nary_sequencemap(
            lambda x, y, z: x + y - z, rasp.tokens, other, rasp.indices
        )

    return {
        "length": lib.make_length,
        "hist": lib.make_hist,
        "count": lambda: lib.make_count(rasp.tokens, "a"),
        "shift_by": lambda: lib.shift_by(1, rasp.tokens),
        "reverse": lambda: lib.make_reverse(rasp.tokens),
        "sort_unique": lambda: lib.make_sort_unique(rasp.tokens, rasp.tokens),
        "sort": lambda: lib.make_sort(rasp.tokens, rasp.tokens, max_seq_len=5, min_key=1),
        "sort_freq": lambda: lib.make_sort_freq(5),
        "nary_sequencemap": pair_sums,
        "frac_prevs": fraction,
        "frac_prevs_causal": fraction,
        "count_less_freq": lambda: lib.make_count_less_freq(2),
        "detect_pattern": lambda: lib.detect_pattern(rasp.tokens, tuple("abc")),
        "pair_balance": lambda: lib.make_pair_balance(rasp.tokens, "(", ")"),
        "shuffle_dyck": lambda: lib.make_shuffle_dyck(["()"]),
        "shuffle_dyck2": lib.make_shuffle_dyck2,
    }


def compile_program(name: str) -> tuple[Any, Program]:
    """Return what Tracr compiles, and the torch model made of it."""
    from tracr.compiler import compiling  # pyright: ignore[reportMissingImports]

    source, about = recipes()[name](), PROGRAMS[name]
    made = compiling.compile_rasp_to_model(
        source, set(about.words), about.longest, causal=about.causal, compiler_bos="BOS"
    )
    return made, compiled(made, output=source.label, name=name)


def main() -> None:
    """Compile all programs and write the file."""
    held: dict[str, np.ndarray] = {}
    about: dict[str, Any] = {}
    for name in PROGRAMS:
        program = compile_program(name)[1]
        config: Any = program.module.config
        about[name] = {
            "sizes": {size: getattr(config, size) for size in SIZES},
            "tokens": list(program.tokens.items()),
            "bos": program.bos,
            "outputs": program.outputs,
        }
        weights = program.module.parameters()
        held[name] = np.concatenate([x.detach().numpy().ravel() for x in weights])
        print(name, about[name]["sizes"], flush=True)
    held["about"] = np.array(json.dumps(about))
    np.savez_compressed(FILE, allow_pickle=False, **held)


if __name__ == "__main__":
    main()
