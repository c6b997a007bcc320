"""Task files in the terms of lm-evaluation-harness: choices, minimal pairs, and plain texts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from interp.core.documents import parse_json
from interp.core.errors import PromptError
from interp.core.text_file import read_lines

PAIR = ("sentence_good", "sentence_bad")


def file_task(path: Path) -> dict[str, Any]:
    """Return the configuration of a task whose documents are the lines of a file."""
    if not path.is_file():
        raise PromptError(f"the task file {path} does not exist")
    documents: list[dict[str, Any]] = []
    for number, line in enumerate(read_lines(path), 1):
        if line.strip():
            document = {"text": line} if path.suffix == ".txt" else _document(path, number, line)
            documents.append(document)
    if not documents:
        raise PromptError(f"{path} contains no documents")

    def data(**_: Any) -> Any:
        from datasets import Dataset

        return {"test": Dataset.from_list(documents)}

    kinds = {tuple(sorted(d)) for d in documents}
    if len(kinds) > 1:
        raise PromptError(f"{path} mixes choices and pairs of sentences; give a file for each")
    config = {"task": path.stem, "custom_dataset": data, "test_split": "test"}
    if path.suffix == ".txt":
        return config | {
            "output_type": "loglikelihood_rolling",
            "doc_to_text": "",
            "doc_to_target": "{{text}}",
            "metric_list": [_metric(n, n, False) for n in ("word_perplexity", "byte_perplexity")],
        }
    prompt: Callable[[Mapping[str, Any]], str] = lambda d: d["prompt"]  # noqa: E731
    return config | {
        "output_type": "multiple_choice",
        "doc_to_text": prompt,
        "doc_to_choice": lambda d: list(d["choices"]),
        "doc_to_target": lambda d: 0,
        "target_delimiter": "",
        "metric_list": [_metric("acc", "mean", True)],
    }


def _metric(name: str, aggregation: str, higher: bool) -> dict[str, Any]:
    stated = "weighted_perplexity" if name.endswith("perplexity") else aggregation
    return {"metric": name, "aggregation": stated, "higher_is_better": higher}


def _document(path: Path, number: int, line: str) -> dict[str, Any]:
    try:
        row = parse_json(line)
    except ValueError as error:
        raise PromptError(f"{path} line {number} is not valid JSON: {error}") from error
    if isinstance(row, dict) and all(isinstance(row.get(x), str) for x in PAIR):
        return {"prompt": "", "choices": [row[x] for x in PAIR]}
    if isinstance(row, dict) and {"prompt", "answer", "wrong"} <= set(row):
        wrong = [row["wrong"]] if isinstance(row["wrong"], str) else row["wrong"]
        texts = [row["prompt"], row["answer"], *wrong] if isinstance(wrong, list) else [None]
        if wrong and all(isinstance(x, str) for x in texts):
            return {"prompt": row["prompt"], "choices": texts[1:]}
    raise PromptError(
        f"{path} line {number}: expected the texts prompt, answer and wrong, or sentence_good and "
        "sentence_bad"
    )
