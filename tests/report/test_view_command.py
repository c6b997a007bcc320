"""`interp view` in this process."""

from __future__ import annotations

import json
import re
import sys

import numpy as np
import pytest
from click.testing import CliRunner
from report import reading
from zoo import FAMILIES

import interp
from interp.cli.main import main
from interp.core.errors import OptionError, UnknownName
from interp.heads.patterns.capturing import image_inputs


@pytest.fixture
def run_view():
    return lambda *args: CliRunner().invoke(main, ["view", *map(str, args)])


MODEL = "bundled:induction"


def test_a_short_text_makes_a_page_of_tokens(run_view, tmp_path) -> None:
    out = tmp_path / "v.html"
    done = run_view(MODEL, "--text", "the cat and the cat", "--heads", "L1H0,L0H2", "-o", out)
    assert done.exit_code == 0, done.output
    assert done.stdout == f"{out}\n"
    assert re.search(r"interp: .*v\.html: 0\.\d\d MB", done.stderr)
    data = reading.data_of(out.read_text(encoding="utf-8"))
    assert data["open"] == [0, 8]
    assert data["stacks"][0]["block"] == 1
    assert "".join(data["stacks"][0]["queries"]).endswith("the cat")


def test_a_figure_takes_no_size(run_view, tmp_path) -> None:
    done = run_view(MODEL, "--text", "a b", "--set", "max_mb=1", "-o", tmp_path / "figure.svg")
    assert done.exit_code == 2
    assert "--set max_mb limits a page" in done.stderr
    assert done.stderr.count("\n") == 1
    assert not list(tmp_path.iterdir())


STARTS = {".svg": b"<svg", ".html": b"<!doctype html>", ".pdf": b"%PDF", ".png": b"\x89PNG"}


def _converts() -> bool:
    """Whether the extra `pdf` and the library cairo are there; without them the rest is tested."""
    try:
        import cairosvg  # noqa: F401
    except (ImportError, OSError):
        return False
    return True


def test_the_suffix_of_the_output_is_kept_or_refused(run_view, tmp_path, monkeypatch) -> None:
    """The page, and its head as a figure; the same names for `View.save` in Python."""
    text = "The cat sat on the mat. The cat sat on the"
    shown = interp.view(MODEL, text)
    written = STARTS if _converts() else {x: STARTS[x] for x in (".svg", ".html")}
    for suffix, start in written.items():
        for out in (tmp_path / f"command{suffix}", tmp_path / f"python{suffix}"):
            done = run_view(MODEL, "--text", text, "-o", out) if "command" in out.name else None
            assert done is None or done.exit_code == 0, done.output
            assert done is not None or shown.save(out) is None
            assert out.read_bytes().startswith(start)
    names = {f"{way}{suffix}" for way in ("command", "python") for suffix in written}
    assert {path.name for path in tmp_path.iterdir()} == names
    page = (tmp_path / "command.html").read_text(encoding="utf-8")
    stack, at = reading.data_of(page)["open"]
    head = reading.data_of(page)["stacks"][stack]["heads"][at]["name"]
    figure = (tmp_path / "command.svg").read_text(encoding="utf-8")
    assert f": decoder {head}</text>" in figure
    assert head != "L0H0"  # not the first one, but the one with which the page opens
    for suffix in (".gif", ".json", ".md", ".xyz"):
        done = run_view(MODEL, "--text", text, "-o", tmp_path / f"page{suffix}")
        assert done.exit_code == 2
        assert "give a name that ends in .html or .svg or .pdf or .png" in done.stderr
        assert done.stderr.count("\n") == 1
    with pytest.raises(UnknownName, match=r"\.html.*\.pdf.*\.png.*\.svg"):
        shown.save(tmp_path / "page.gif")
    monkeypatch.setitem(sys.modules, "cairosvg", None)
    done = run_view(MODEL, "--text", text, "-o", tmp_path / "without.png")
    assert (done.exit_code, "pip install interp[pdf]" in done.stderr) == (2, True)
    assert {path.name for path in tmp_path.iterdir()} == names


def test_a_long_file_is_shown_in_blocks_and_it_is_said(run_view, tmp_path) -> None:
    text = tmp_path / "t.txt"
    text.write_text("the cat sat on the mat. " * 80, encoding="utf-8")
    out = tmp_path / "v.html"
    done = run_view(
        MODEL, "--file", text, "--max-length", 600, "--set", "tiles=L1H0:400-420,0-20", "-o", out
    )
    assert done.exit_code == 0, done.output
    data = reading.data_of(out.read_text(encoding="utf-8"))["stacks"][0]
    assert (data["block"], data["tiles"][0]["name"]) == (16, "L1H0:400-420,0-20")
    again = (MODEL, "--file", text, "--max-length", 600, "-o", out, "--overwrite")
    done = run_view(*again)
    assert "600 tokens are more than 512: shown in blocks" in done.stderr
    done = run_view(*again, "--set", "show=tokens", "-q")
    assert done.stderr == ""
    assert reading.data_of(out.read_text(encoding="utf-8"))["stacks"][0]["block"] == 1


@pytest.fixture
def vit(tmp_path):
    """A tiny ViT with the processor of its images, and an image."""
    pillow = pytest.importorskip("PIL.Image", reason="needs pillow")
    folder = tmp_path / "vit"
    module = FAMILIES["vit"].model("sdpa")
    module.save_pretrained(folder)
    size = module.config.image_size
    made = {
        "image_processor_type": "ViTImageProcessor",
        "do_resize": True,
        "do_rescale": True,
        "size": {"height": size, "width": size},
        "do_normalize": True,
        "image_mean": [0.5] * 3,
        "image_std": [0.5] * 3,
        "rescale_factor": 1 / 255,
    }
    (folder / "preprocessor_config.json").write_text(json.dumps(made), encoding="utf-8")
    ramp = np.zeros((2 * size, 2 * size, 3), np.uint8)
    ramp[:, :, 0] = np.linspace(0, 255, 2 * size)
    pillow.fromarray(ramp).save(tmp_path / "ramp.png")
    return folder, tmp_path / "ramp.png"


def test_an_image_is_shown_as_the_model_sees_it(run_view, tmp_path, vit) -> None:
    folder, image = vit
    out = tmp_path / "v.html"
    done = run_view(folder, "--image", image, "-o", out)
    assert done.exit_code == 0, done.output
    page = out.read_text(encoding="utf-8")
    picture = reading.data_of(page)["stacks"][0]["picture"]
    config = FAMILIES["vit"].model().config
    assert picture["size"] == [config.image_size] * 2
    assert picture["grid"] == [config.image_size // config.patch_size] * 2
    done = run_view(folder, "--image", tmp_path / "v.html", "-o", tmp_path / "w.html")
    assert (done.exit_code, "is not an image" in done.stderr) == (1, True)
    (folder / "preprocessor_config.json").unlink()
    done = run_view(folder, "--image", image, "-o", tmp_path / "w.html")
    assert "no image processor" in done.stderr
    assert not (tmp_path / "w.html").exists()


def test_without_pillow_it_is_said_what_to_install(monkeypatch, tmp_path) -> None:
    model = interp.load(FAMILIES["vit"].model("sdpa"), name="vit", check=False)
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(OptionError, match=r"pip install 'interp\[images\]'"):
        image_inputs(model, "vit", tmp_path / "x.png")


@pytest.mark.parametrize(
    ("args", "says"),
    [
        ((), "give exactly one of --text, --file and --image"),
        (("--text", "a", "--file", __file__), "give exactly one of"),
        (("--text", " "), "the text is empty"),
        (("--text", "a b", "--heads", "L9H0"), "no head L9H0; it has L0H0 to L1H7"),
        (("--text", "a b", "--heads", "nine"), "cannot read 'nine' as a head"),
        (("--text", "a b", "--stack", "cross"), "no stack 'cross'"),
        (("--text", "a b", "--max-length", "900"), "fewer than --max-length 900"),
        (
            ("--text", "a", "--text", "b", "--set", "show=blocks"),
            "cannot be combined with --set show=blocks",
        ),
        (
            ("--text", "a", "--text", "b", "--max-length", "2"),
            "cannot be combined with --max-length",
        ),
        (
            ("--text", "a", "--text", "b", "--set", "tiles=L0H0:0-1,0-1"),
            "cannot be combined with a second --text",
        ),
        (
            ("--text", "a", "--set", "show=tokens", "--set", "tiles=L0H0:0-1,0-1"),
            "cannot be combined with --set show=tokens",
        ),
        (("--text", "a b", "--set", "tiles=L0H0"), "cannot read 'L0H0' as a tile"),
        (("--image", "x.png", "--text", "a"), "--image cannot be combined with --text"),
        (
            ("--image", "x.png", "--set", "tiles=L0H0:0-1,0-1"),
            "cannot be combined with --set tiles",
        ),
        (("--image", "x.png"), "of kind causal; it does not read images alone"),
        (("--file", "nowhere.txt"), "nowhere.txt is not a file; --file expects"),
        (("--text", "a b", "--set", "max_mb=0.01"), "more than 0.01 MB"),
    ],
)
def test_what_is_wrong_is_one_line_and_no_page(run_view, tmp_path, args, says) -> None:
    out = tmp_path / "v.html"
    done = run_view(MODEL, *args, "-o", out)
    assert done.exit_code in (1, 2)
    assert says in done.stderr
    assert done.stderr.count("\n") == 1
    assert done.stdout == ""
    assert not out.exists()
