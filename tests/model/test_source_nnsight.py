"""nnsight models: here nothing is lost, elsewhere numbers come back and the rest is refused."""

from __future__ import annotations

import ast
import builtins
import importlib.util
import inspect
import json
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from importlib.metadata import version
from typing import Any

import pytest
import torch
from model.source_objects import NOT_OURS, build, nnsight_of, same, tokenizer

import interp
from interp.core.errors import (
    LoadError,
    NonFiniteError,
    OptionError,
    PromptError,
    UnreadableAttention,
)
from interp.model.hooks import in_trace

pytestmark = [
    pytest.mark.skipif(
        importlib.util.find_spec("nnsight") is None,
        reason="nnsight is not installed (the extra `nnsight`)",
    ),
    *map(pytest.mark.filterwarnings, NOT_OURS),
    pytest.mark.filterwarnings("ignore::UserWarning:transformers.*"),
]

IDS = [[9, 33, 21, 40, 33, 21, 21, 17, 9, 33]]
METRICS = ["induction", "entropy"]


@pytest.fixture(scope="module")
def nnsight_llama() -> interp.Model:
    return interp.load(nnsight_of("llama"), name="llama", remote="local")


@pytest.mark.slow
def test_loading_a_plain_model_imports_neither_package() -> None:
    """nnsight patches torch when it is imported, and TransformerLens takes six seconds."""
    code = (
        "import interp, sys; interp.score(interp.load('planted:induction'), ['induction']);"
        "print([m for m in sys.modules if m.split('.')[0] in ('nnsight', 'transformer_lens')],"
        "hasattr(5, 'save'))"
    )
    path = [p for p in sys.path if p]
    out = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path[:0] = {path!r}; {code}"],
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    assert out.stdout.strip() == "[] False"


@pytest.mark.parametrize("package", ["nnsight", "transformer_lens", "interp_engine"])
def test_one_file_imports_each_package(package: str) -> None:
    from pathlib import Path

    found = set()
    for path in Path(interp.__file__).parent.rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        for node in ast.walk(ast.parse(text)) if package in text else ():
            names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            if any(n.split(".")[0] == package for n in names):
                found.add(path.name)
    assert found == {f"{package}.py"}


# --- here -------------------------------------------------------------------------------------


def test_the_plain_wrapper_is_read_too_and_still_traces() -> None:
    import nnsight

    module = build("gpt2")
    held = nnsight.NNsight(module)
    model = interp.load(held, name="m")
    assert model.module is module
    same(model.run(IDS), interp.load(module).run(IDS))
    with torch.no_grad(), held.trace(torch.tensor(IDS)):
        logits = nnsight.save(held.lm_head.output)
    same(logits, model.run(IDS))


def test_its_tokenizer_comes_with_it(nnsight_llama) -> None:
    local = interp.load(nnsight_of("llama"))
    assert local.tokenizer is tokenizer()
    by_text, by_ids = local.run("t09 t33 t21"), local.run([[9, 33, 21]])
    same(by_text, by_ids)
    scores = [
        interp.score(nnsight_llama, "entropy", p, null="none").to_pandas().score
        for p in ("t09 t33 t21", [[9, 33, 21]])
    ]
    assert list(scores[0]) == list(scores[1])


def test_a_model_without_a_tokenizer_takes_ids_alone() -> None:
    import nnsight

    model = interp.load(nnsight.NNsight(build("gpt2")), name="bare")
    with pytest.raises(PromptError, match="bare has no tokenizer"):
        interp.score(model, "entropy", "some text")
    interp.score(model, "entropy", IDS, null="none")


def test_a_model_whose_weights_are_not_there_yet_says_what_to_do() -> None:
    import nnsight

    plain = build("gpt2")
    with torch.device("meta"):
        module = type(plain)(plain.config)
    with pytest.raises(LoadError, match=r"no weights yet; give it dispatch=True.*remote=True"):
        interp.load(nnsight.NNsight(module))


def test_what_is_no_language_model_is_refused() -> None:
    import nnsight

    with pytest.raises(LoadError, match="not a Hugging Face model"):
        interp.load(nnsight.NNsight(torch.nn.Linear(2, 2)))
    with pytest.raises(LoadError, match=r"names no model for a server"):
        interp.load(nnsight.NNsight(build("gpt2")), remote="local")
    with pytest.raises(LoadError, match=r"remote= is for nnsight models"):
        interp.load(build("gpt2"), remote=True)
    with pytest.raises(LoadError, match=r"dtype cannot be chosen"):
        interp.load(nnsight_of("gpt2"), dtype="float64")
    with pytest.raises(LoadError, match=r"attention cannot be chosen"):
        interp.load(nnsight_of("gpt2"), attention="eager", remote="local")


# --- elsewhere --------------------------------------------------------------------------------


def test_only_numbers_per_head_come_back(nnsight_llama, monkeypatch) -> None:
    """Nothing that is returned has an axis of keys, queries or the model's width."""
    kept = []
    run = type(nnsight_llama.runs).run

    def spy(self, *args):
        kept.append(run(self, *args))
        return kept[-1]

    monkeypatch.setattr(type(nnsight_llama.runs), "run", spy)
    prompts = interp.Prompts((tuple(IDS[0]), (9, 33, 21)))
    interp.score(nnsight_llama, METRICS, prompts, null="none")
    assert len(kept) == 1
    assert len(kept[0]) == 3
    for site in kept[0]:
        assert set(site) == {"finite", "means"}
        assert {name: tuple(x.shape) for name, x in site["means"].items()} == {
            "induction": (2, 6),
            "entropy": (2, 6),
        }


def test_what_travels_imports_nothing_and_uses_nothing_of_ours() -> None:
    tree = ast.parse(inspect.getsource(in_trace))
    imports = [n for n in ast.walk(tree) if isinstance(n, (ast.Import, ast.ImportFrom))]
    assert [ast.unparse(n) for n in imports] == ["from __future__ import annotations"]
    own = {f.name for f in tree.body if isinstance(f, ast.FunctionDef)}
    for f in (f for f in tree.body if isinstance(f, ast.FunctionDef)):
        bound = {n.arg for n in ast.walk(f) if isinstance(n, ast.arg)}
        bound |= {
            n.id for n in ast.walk(f) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)
        }
        used = {n.id for n in ast.walk(f) if isinstance(n, ast.Name)} - bound - own
        assert all(hasattr(builtins, name) for name in used), used


def test_blocks_of_rows_give_the_same_numbers(nnsight_llama, monkeypatch) -> None:
    want = interp.score(nnsight_llama, METRICS, IDS, null="none").to_pandas().score
    monkeypatch.setattr("interp.model.sources.nnsight.SCORES", 3 * 6 * 10)
    got = interp.score(nnsight_llama, METRICS, IDS, null="none").to_pandas().score
    same(torch.tensor(got.to_numpy()), torch.tensor(want.to_numpy()), 1e-6)
    assert list(got) != list(want), "rows were formed in other blocks"


def test_scores_in_half_precision_are_recomputed_in_single() -> None:
    import nnsight

    module = build("llama", "sdpa").to(torch.bfloat16)
    plain = interp.load(module, name="m")
    far = interp.load(nnsight.TransformersModel(module, tokenizer=tokenizer()), remote="local")
    tables = [interp.score(m, METRICS, IDS, null="none").to_pandas() for m in (plain, far)]
    same(*(torch.tensor(t["score"].to_numpy()) for t in tables), tolerance=1e-6)


def test_generation_step_by_step(nnsight_llama) -> None:
    here = interp.load(nnsight_of("llama"))
    want = here.generate(IDS, 3, names=["pattern"])
    ids, found = nnsight_llama.while_generating(
        IDS, 3, ["entropy", "largest", "first_token", "distance"]
    )
    assert ids.tolist() == want.ids.tolist()
    for site in nnsight_llama.sites:
        for step, cache in enumerate(want.steps):
            row = cache["pattern", site.layer][:, :, -1].double()
            back = torch.arange(row.shape[-1] - 1, -1, -1)
            for name, value in {
                "entropy": -(row * row.clamp_min(1e-38).log()).sum(-1),
                "largest": row.amax(-1),
                "first_token": row[..., 0],
                "distance": (row * back).sum(-1),
            }.items():
                assert found[site][name].shape == (3, 1, 6)
                same(found[site][name][step], value, 1e-5)
    with pytest.raises(OptionError, match=r"induction are not formed; known: entropy"):
        nnsight_llama.while_generating(IDS, 2, ["induction"])
    with pytest.raises(PromptError, match="one length"):
        nnsight_llama.while_generating([[9, 33], [9, 33, 21]], 2)


def test_what_cannot_be_done_elsewhere_is_refused_by_name(nnsight_llama) -> None:
    elsewhere = r"llama runs at remote='local', from where numbers per head and logits come back"
    with pytest.raises(OptionError, match=f"uniform-attention needs the pattern.*{elsewhere}"):
        nnsight_llama.run(IDS, [interp.model.uniform("L0H0")])
    with pytest.raises(OptionError, match=f"captures and gradients need .*{elsewhere}"):
        nnsight_llama.capture(IDS, ["pattern"])
    with pytest.raises(OptionError, match="has no head L9H0"):
        nnsight_llama.run(IDS, [interp.zero("L9H0")])
    task = interp.repeats_task(nnsight_llama, n=2, max_length=4)
    with pytest.raises(OptionError, match=r"kind='resample' needs activations"):
        interp.ablate(nnsight_llama, task, kind="resample", null="none")
    with pytest.raises(OptionError, match=f"null='random-init' needs .*{elsewhere}"):
        interp.score(nnsight_llama, "entropy", IDS, null="random-init")
    with pytest.raises(OptionError, match=r"retrieval.* not available here, since llama runs"):
        interp.score(nnsight_llama, "retrieval", IDS)
    with pytest.raises(OptionError, match=r"engine='fused': llama runs at"):
        interp.score(nnsight_llama, "entropy", IDS, engine="fused")
    prompts = interp.Prompts((tuple(IDS[0]), (9, 33)), padding="left")
    with pytest.raises(PromptError, match="padding='right'"):
        interp.score(nnsight_llama, "entropy", prompts, null="none")


def test_the_default_metrics_and_their_nulls_without_random_weights(nnsight_llama) -> None:
    table = interp.score(nnsight_llama)
    frame = table.to_pandas()
    assert {"induction", "entropy", "previous_token"} <= set(frame["metric"])
    nulls = {metric: p["null"] for (_, metric), p in table.provenance.items()}
    assert nulls["induction"] == "shuffled-tokens"
    assert nulls["entropy"] == "none", "said, not silently left out"
    about = next(iter(table.provenance.values()))
    assert about["content_hash"] == "not known: the weights are at remote='local'"


def test_numbers_that_are_not_finite_are_named() -> None:
    held = nnsight_of("gpt2")
    model = interp.load(held, name="m", remote="local")
    with torch.no_grad():
        held._module.transformer.h[1].attn.c_attn.bias[-1] = float("nan")
    with pytest.raises(NonFiniteError, match=r"decoder layer 1 .*transformer\.h\.1\.attn"):
        interp.score(model, "entropy", IDS, null="none")


# --- labels and servers -----------------------------------------------------------------------


def counted_without_assignments(monkeypatch: Any) -> None:
    """As nnsight 0.7 counted: the call is then `attention_interface_0`."""
    from nnsight.intervention import source

    monkeypatch.setattr(source, "FORWARD_CACHE", {})
    monkeypatch.setattr(source.Instrument, "bound", lambda self, target, value, node: value)


def test_the_attention_call_is_found_whatever_its_number(monkeypatch) -> None:
    counted_without_assignments(monkeypatch)
    model = interp.load(nnsight_of("llama"), remote="local")
    assert set(model.runs.labels.values()) == {"attention_interface_0"}
    got = interp.score(model, "entropy", IDS, null="none").to_pandas().score
    want = interp.score(interp.load(build("llama")), "entropy", IDS, null="none").to_pandas().score
    same(torch.tensor(got.to_numpy()), torch.tensor(want.to_numpy()))


def test_labels_that_have_moved_away_are_refused(monkeypatch) -> None:
    from nnsight.intervention import source

    wrap = source.Instrument.wrap

    def renamed(self, name, *args):
        return wrap(self, name.replace("attention_interface", "attn_fn"), *args)

    monkeypatch.setattr(source, "FORWARD_CACHE", {})
    monkeypatch.setattr(source.Instrument, "wrap", renamed)
    with pytest.raises(
        UnreadableAttention, match=r"names no operation attention_interface_N.*moved"
    ):
        interp.load(nnsight_of("llama"), remote="local")


def test_labels_that_name_something_else_are_refused(monkeypatch) -> None:
    from nnsight.intervention import source

    wrap = source.Instrument.wrap
    swap = {"attention_interface": "other", "self_q_proj": "attention_interface"}

    def renamed(self, name, *args):
        return wrap(self, swap.get(name, name), *args)

    monkeypatch.setattr(source, "FORWARD_CACHE", {})
    monkeypatch.setattr(source.Instrument, "wrap", renamed)
    with pytest.raises(
        UnreadableAttention, match=r"attention_interface_0 is an attention call.*moved"
    ):
        interp.load(nnsight_of("llama"), remote="local")


class Server:
    """An address that answers `/env` with given versions, and nothing else."""

    def __init__(self, packages: dict[str, str]):
        class Answer(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                body = json.dumps({"python_version": "3.11", "packages": packages}).encode()
                self.send_response(200)
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *args: object) -> None:
                """Quiet."""

        self.server = HTTPServer(("127.0.0.1", 0), Answer)
        self.address = f"http://127.0.0.1:{self.server.server_port}"

    def __enter__(self) -> str:
        self.thread = threading.Thread(target=self.server.serve_forever)
        self.thread.start()
        return self.address

    def __exit__(self, *_: object) -> None:
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()


@pytest.fixture
def named_on_the_hub(monkeypatch) -> Any:
    held = nnsight_of("llama")
    monkeypatch.setattr(
        type(held), "to_model_key", lambda self: "nnsight.TransformersModel:some/model"
    )
    return held


def test_a_closed_server_is_told_in_one_line(named_on_the_hub) -> None:
    with Server({}) as address:
        pass  # nothing listens there any more
    with pytest.raises(LoadError, match=rf"nothing answers at {address} .*remote='local'") as told:
        interp.load(named_on_the_hub, remote=address)
    assert "\n" not in str(told.value)


def test_a_server_with_another_nnsight_is_told_before_anything_is_sent(named_on_the_hub) -> None:
    with (
        Server({"nnsight": "0.7.0", "torch": torch.__version__}) as address,
        pytest.raises(
            LoadError, match=r"has nnsight 0\.7\.0 \(here .*pip install nnsight==0\.7\.0"
        ),
    ):
        interp.load(named_on_the_hub, remote=address)


def test_a_server_with_other_models_code_is_warned_of(named_on_the_hub) -> None:
    from interp.model.sources.nnsight import VersionWarning

    packages = {"nnsight": version("nnsight"), "transformers": "5.0.1"}
    with (
        Server(packages) as address,
        pytest.warns(VersionWarning, match=r"transformers 5\.0\.1 \(here"),
        pytest.raises(LoadError, match=rf"{address}"),  # it answers nothing but its versions
    ):
        interp.load(named_on_the_hub, remote=address)


def test_a_model_without_a_name_has_no_server() -> None:
    with pytest.raises(LoadError, match=r"by its name on the hub.*remote='local'"):
        interp.load(nnsight_of("llama"), remote="http://127.0.0.1:9")
