"""interp attribute, flow, faithfulness and methods: files, pages that run nothing, bad input."""

from __future__ import annotations

import csv
import json
import os
import re
import subprocess
import sys
from html.parser import HTMLParser

import pytest
from together import over

from interp.core.registry import ATTRIBUTION_METHODS

MODEL = ("bundled:deceive",)
TEXT = "with Anna the red bird sings so"


class Reader(HTMLParser):
    """The coloured tokens of a page with what they say on hover, and every tag."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.tokens: list[tuple[str, str]] = []
        self._title: str | None = None
        self.feed(page)

    def handle_starttag(self, tag, attrs) -> None:
        self.tags.add(tag)
        given = dict(attrs)
        if tag == "span" and "title" in given:
            self._title = given["title"]

    def handle_data(self, data) -> None:
        if self._title is not None:
            self.tokens.append((data, self._title))
            self._title = None


def test_methods_are_listed_by_what_they_need(run) -> None:
    lines = run("list", "methods").stdout.splitlines()
    for name, entry in ATTRIBUTION_METHODS.items():
        line = next(x for x in lines if x.split()[:1] == [name])
        assert entry.summary in line
    assert lines.index("From gradients of the target:") > lines.index("From forward passes:")


def test_a_method_is_explained(run, errors) -> None:
    text = run("list", "methods", "occlusion").stdout
    assert "how=delete" in text
    assert "Needs: forward" in text
    assert "Zeiler" in text
    code, [line] = errors("list", "methods", "oclusion")
    assert code == 2
    assert "did you mean occlusion" in line


@pytest.mark.parametrize(
    "args",
    [
        "list methods",
        "list methods rollout",
        "attribute --help",
        "attribute flow --help",
        "evaluate faithfulness --help",
    ],
)
def test_lists_and_help_import_nothing_heavy(args: str) -> None:
    code = (
        "import sys; from interp.cli.main import main; main(sys.argv[1:], standalone_mode=False);"
        "heavy = [m for m in ('torch', 'transformers', 'pandas', 'numpy', 'rich') if m in "
        "sys.modules]; sys.exit(' '.join(heavy) or 0)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *args.split()],
        capture_output=True,
        text=True,
        env=os.environ,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout


def test_attribute_prints_and_writes_the_same_numbers(run, tmp_path) -> None:
    page, data, rows = (tmp_path / f"a.{x}" for x in ("html", "json", "csv"))
    result = run(
        "attribute",
        *MODEL,
        "--text",
        TEXT,
        "-m",
        "decompx,raw_attention",
        "-t",
        "she|he",
        "-o",
        page,
        "-o",
        data,
        "-o",
        rows,
        "--quiet",
    )
    assert result.exit_code == 0, result.output
    whole = json.loads(data.read_text())
    one, two = whole["attributions"]
    assert one["method"] == "decompx"
    assert one["tokens"] == ["<s>", *TEXT.split()]
    # completeness: printed with the method's promise, and with none
    assert f"residual {one['residual']:.2g}" in result.stdout
    assert one["total"] is not None
    assert one["residual"] == pytest.approx(one["total"] - sum(one["scores"]), abs=1e-9)
    assert "this method promises no completeness" in result.stdout
    assert two["residual"] is None
    assert "Anna" in result.stdout
    # the same in the page, with its number on hover
    read = Reader(page.read_text())
    assert [t for t, _ in read.tokens] == [*one["tokens"], *two["tokens"]]
    for (_, told), score in zip(read.tokens, one["scores"] + two["scores"], strict=True):
        assert f" {score:.4g} " in told
    assert not read.tags & {"script", "link", "img", "iframe"}
    # nothing to load: the only addresses are the numbers themselves, to save
    addresses = re.findall(r"(?:src|href)=.(.{0,14})", page.read_text())
    assert addresses == ["data:text/csv;"] * 2
    with rows.open() as lines:
        table = list(csv.DictReader(lines))
    assert [float(r["score"]) for r in table if r["method"] == "decompx"] == pytest.approx(
        one["scores"]
    )
    assert one["provenance"]["content_hash"]
    # the standing warning, because a method reads attention alone
    assert "raw_attention" in whole["warning"]
    assert "raw_attention" in page.read_text().partition('class="warning"')[2][:400]


def test_no_warning_where_no_method_reads_attention_alone(run) -> None:
    result = run("attribute", *MODEL, "--text", TEXT, "-m", "attn_lrp", "-t", "she|he")
    assert result.exit_code == 0
    assert "trained to hide" not in result.stderr


def test_tokens_of_strangers_stay_text(run, tmp_path) -> None:
    page = tmp_path / "a.html"
    text = "<img src=x onerror=alert(1)> & <b>x</b> \"quoted\" 'q'"
    result = run(
        "attribute", "bundled:induction", "--text", text, "-m", "raw_attention", "-o", page
    )
    assert result.exit_code == 0, result.output
    read = Reader(page.read_text())
    assert not read.tags & {"img", "b", "script"}
    assert "".join(t for t, _ in read.tokens).replace("<s>", "", 1) == text


def test_several_texts_come_from_a_file_and_a_bad_one_costs_only_itself(run, tmp_path) -> None:
    file, data = tmp_path / "texts.txt", tmp_path / "a.json"
    file.write_text(f"{TEXT}\nso\nthe old dog sings and with Carl a child falls so\n")
    result = run("attribute", *MODEL, "--file", file, "-m", "attn_lrp", "-t", "she|he", "-o", data)
    assert result.exit_code == 1
    assert "text 2: 'so' has 1 token(s) that are not special" in result.stderr
    done = json.loads(data.read_text())["attributions"]
    assert [d["provenance"]["text"] for d in done] == [0, 2]
    assert done[0]["value"] > 0 > done[1]["value"]


def test_flow_prints_the_saturated_share_of_chosen_outputs(run, tmp_path) -> None:
    data = tmp_path / "f.json"
    result = run(
        "attribute",
        "flow",
        *MODEL,
        "--text",
        TEXT,
        "--position",
        "-1",
        "--position",
        "3",
        "-o",
        data,
    )
    assert result.exit_code == 0, result.output
    assert "saturated share" in result.stdout
    found = json.loads(data.read_text())["attributions"]
    assert [f["method"].partition(":")[0] for f in found] == ["rollout", "attention_flow"] * 2
    for one in found:
        assert sum(one["scores"]) == pytest.approx(1, abs=1e-6)
    assert max(found[2]["scores"][4:]) == 0  # a causal model: nothing from behind position 3
    assert min(found[0]["scores"]) > 0


def test_faithfulness_prints_tables_writes_files_and_goes_on(run, tmp_path) -> None:
    file, out = tmp_path / "texts.txt", tmp_path / "out"
    file.write_text(f"{TEXT}\nand Carl falls by the river so\nthe old dog rests near Ida so\n")
    args = (
        "evaluate",
        "faithfulness",
        *MODEL,
        "--file",
        file,
        "-m",
        "attn_lrp,rollout",
        "-t",
        "she|he",
        "--out",
        out,
    )
    result = run(*args)
    assert result.exit_code == 0, result.output
    assert "spearman: rank correlation" in result.stdout
    assert "occlusion:how=mean" in result.stdout
    assert "± " in result.stdout
    # three texts cannot tell anything apart, which is not the same as finding nothing
    assert "beats" not in result.stdout
    few = "3 texts cannot show a difference between 10 pairs of methods: the smallest possible p is"
    few += " 0.25, corrected 1"
    assert few in result.stdout
    assert "9 texts could" in result.stdout
    assert "trained to hide the deciding word" in result.stderr
    assert {p.name for p in out.iterdir()} == {
        "kept",
        "faithfulness.csv",
        "faithfulness.json",
        "faithfulness.html",
    }
    [kept] = (out / "kept").iterdir()
    content = kept.read_bytes()
    again = run(*args)
    assert again.stdout == result.stdout
    assert [*(out / "kept").iterdir()] == [kept]
    assert kept.read_bytes() == content
    page = (out / "faithfulness.html").read_text()
    assert not Reader(page).tags & {"script", "img", "link"}
    assert 'class="warning"' in page
    assert few in page
    assert "not testable" in page
    limits = json.loads((out / "faithfulness.json").read_text())["limits"]["spearman"]
    assert (limits["can_show"], limits["p"], limits["needed"]) == (False, 0.25, 9)


@over(
    ("args", "code", "line"),
    [
        (
            ("attribute", *MODEL, "--text", TEXT, "-m", "attn_lpr"),
            2,
            "'attn_lpr'; did you mean attn_lrp",
        ),
        (
            ("attribute", *MODEL, "--text", TEXT, "-m", "rollout:residal=1"),
            2,
            "did you mean residual",
        ),
        (("attribute", *MODEL, "--text", TEXT, "-t", "hee"), 1, "'hee' is not a single token"),
        (
            ("attribute", *MODEL, "--text", TEXT, "-m", "attn_lrp", "-t", "class:1"),
            2,
            "no logits of classes",
        ),
        (
            ("attribute", *MODEL, "--text", TEXT, "-t", "similarity:x"),
            2,
            "outputs logits, not states",
        ),
        (
            ("attribute", *MODEL, "--text", "so", "-m", "rollout"),
            1,
            "1 token(s) that are not special",
        ),
        (
            ("attribute", *MODEL, "--text", "<s>", "-m", "rollout"),
            1,
            "0 token(s) that are not special",
        ),
        (("attribute", *MODEL, "--text", " "), 2, "the text is empty"),
        (("attribute", *MODEL), 2, "give one --text, or --file"),
        (("attribute", *MODEL, "--file", "none.txt"), 2, "none.txt is not a file"),
        (("attribute", *MODEL, "--text", TEXT, "--position", "50"), 2, "position 50"),
        (("attribute", "bundled:decieve", "--text", TEXT), 2, "did you mean deceive"),
        (
            ("attribute", "flow", *MODEL, "--text", TEXT, "--position", "x"),
            2,
            "output 'x' is not a position",
        ),
        (("attribute", "flow", *MODEL, "--text", TEXT, "--position", "40"), 2, "position 40"),
        (("evaluate", "faithfulness", *MODEL, "--file", "none.txt"), 2, "none.txt is not a file"),
    ],
)
def test_bad_input_is_one_line(errors, args, code: int, line: str) -> None:
    found, [told] = errors(*args)
    assert line in told
    assert found == code


def test_a_file_without_texts(errors, tmp_path) -> None:
    (tmp_path / "empty.txt").write_text("\n")
    for command in (("evaluate", "faithfulness"), ("attribute",), ("attribute", "flow")):
        code, [told] = errors(*command, *MODEL, "--file", tmp_path / "empty.txt")
        assert "holds no text" in told
        assert code == 1
