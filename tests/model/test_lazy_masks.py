"""Masks of transformers as structure: read from their functions, checked, and never built."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import transformers
from together import over
from torch import Tensor
from transformers import masking_utils as own

import interp
from interp.core.errors import StatisticsError, UnreadableAttention
from interp.model.hooks import tap
from interp.model.hooks.kernel_call import to_attention
from interp.model.hooks.lazy_masks import LazyMask
from interp.model.hooks.tap import tapped
from interp_kernels import Output, attention_statistics, reference
from interp_kernels.mask_structure import MaskStructure

N = 24
LEFT = torch.arange(N) >= torch.tensor([[0], [5]])
RIGHT = torch.arange(N) < torch.tensor([[N], [N - 7]])
HOLES = torch.ones(2, N, dtype=torch.bool).index_fill(1, torch.tensor([3, 9]), False)
POSITIONS = torch.cat([torch.arange(7), torch.arange(12), torch.arange(5)]).expand(2, -1)
DOCUMENTS = own.find_packed_sequence_indices(POSITIONS)
IMAGE = torch.where((torch.arange(N) >= 4) & (torch.arange(N) < 9), 0, -1).expand(2, -1)


def packed(inner: Callable) -> Callable:
    """As `create_causal_mask` composes the masks of packed documents."""
    remapped = own.remap_positions_for_packed_sequence(inner, POSITIONS)
    return own.and_masks(remapped, own.packed_sequence_mask_function(DOCUMENTS))


FUNCTIONS: dict[str, tuple[Callable, str]] = {
    "causal": (own.causal_mask_function, "causal"),
    "every key": (own.bidirectional_mask_function, "every key"),
    "window": (own.sliding_window_causal_mask_function(6), "causal, window of 6"),
    "wide window": (own.sliding_window_causal_mask_function(99), "causal"),
    "both sides": (own.sliding_window_bidirectional_mask_function(3), "ranges of keys"),
    "chunks": (own.chunked_causal_mask_function(5, torch.zeros(2, dtype=int)), "chunks of 5"),
    "packed": (packed(own.causal_mask_function), "packed documents"),
    "packed windows": (packed(own.sliding_window_causal_mask_function(4)), "ranges of keys"),
    "packed chunks": (
        packed(own.chunked_causal_mask_function(5, torch.zeros(2, dtype=int))),
        "packed documents",
    ),
    "an image": (
        own.or_masks(own.causal_mask_function, own.blockwise_overlay(IMAGE)),
        "ranges of keys",
    ),
}


def lazy(build: Callable, function: Callable, padding: Tensor | None = None, **more: Any) -> Any:
    given = {
        "batch_size": 2,
        "q_length": N,
        "kv_length": N,
        "q_offset": 0,
        "kv_offset": 0,
        "mask_function": function,
        "attention_mask": padding,
        "dtype": torch.float32,
        "device": "cpu",
        "allow_is_causal_skip": False,
    }
    return LazyMask.of(build, given | more)


def as_mask(found: MaskStructure, real: Tensor) -> Tensor:
    q = torch.zeros(2, 1, N, 2)
    call = interp_attention(q, found, real)
    return reference.visible(call).expand(2, -1, -1, -1)


def interp_attention(q: Tensor, found: MaskStructure, real: Tensor) -> Any:
    from interp_kernels import Attention

    return Attention(
        q=q,
        k=q,
        v=q,
        causal=found.causal,
        window=found.window,
        ranges=found.ranges,
        key_padding=None if bool(real.all()) else real,
    )


@over("name", FUNCTIONS)
@over("build", [own.sdpa_mask, own.eager_mask])
@over("padding", [None, LEFT, RIGHT, HOLES], ids=["none", "left", "right", "in"])
def test_structure_equals_the_mask_of_transformers(name, build, padding, monkeypatch) -> None:
    function, said = FUNCTIONS[name]
    mask, real = lazy(build, function, padding), torch.ones(2, N, dtype=torch.bool)
    real = real if padding is None else padding
    with monkeypatch.context() as context:
        context.setattr(LazyMask, "whole", lambda _: pytest.fail("the mask was built"))
        found = mask.structure(real, "Test")
    assert found is not None
    if padding is None:
        assert str(found) == said
    whole = mask.whole()
    seen = whole if whole.dtype == torch.bool else whole == 0
    want = as_mask(found, real)
    assert torch.equal(want[:, 0][real], seen.expand(2, 1, N, N)[:, 0][real])


def test_a_function_of_someone_else_is_compared_entry_by_entry() -> None:
    real = torch.ones(2, N, dtype=torch.bool)
    prefix = lazy(own.sdpa_mask, lambda b, h, q, k: (k <= q) | (k < 6))
    assert str(prefix.structure(real, "Test")) == "prefix of 6"
    strided = lazy(own.sdpa_mask, lambda b, h, q, k: (k <= q) & ((q - k) % 3 == 0))
    assert strided.structure(real, "Test") is None
    rows = strided.in_rows()
    assert torch.equal(rows.rows(slice(5, 9)), strided.whole()[:, :, 5:9])


def test_a_mask_that_differs_from_its_function_is_refused_by_name() -> None:
    def replaced(**given: Any) -> Tensor | None:
        made = own.sdpa_mask(**given)
        return made & (torch.arange(N) != 2)

    mask = lazy(replaced, own.sliding_window_causal_mask_function(6))
    with pytest.raises(UnreadableAttention, match=r"MistralAttention: .* hides key 2 for query"):
        mask.structure(torch.ones(2, N, dtype=torch.bool), "MistralAttention")


def test_no_mask_where_transformers_makes_none() -> None:
    assert lazy(own.sdpa_mask, own.causal_mask_function, allow_is_causal_skip=True) is None
    padded = lazy(own.sdpa_mask, own.causal_mask_function, LEFT, allow_is_causal_skip=True)
    assert isinstance(padded, LazyMask)


def test_every_operation_sees_the_built_mask_and_the_shape_needs_none(monkeypatch) -> None:
    mask = lazy(own.eager_mask, own.sliding_window_causal_mask_function(6))
    want = own.eager_mask(2, N, N, mask_function=own.sliding_window_causal_mask_function(6))
    with monkeypatch.context() as context:
        context.setattr(LazyMask, "whole", lambda _: pytest.fail("the mask was built"))
        assert (mask.shape, mask.dtype, mask.dim()) == (want.shape, want.dtype, 4)
    assert torch.equal(mask[:, :, 3:5, :7], want[:, :, 3:5, :7])
    assert torch.equal(mask + 1, want + 1)
    q = torch.randn(2, 1, N, 4)
    attend = torch.nn.functional.scaled_dot_product_attention
    assert torch.equal(attend(q, q, q, mask), attend(q, q, q, want))


def small(family: str, **more: Any) -> Any:
    """A tiny decoder."""
    sizes = {
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 2,
        "head_dim": 8,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "vocab_size": 50,
        "pad_token_id": 0,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "max_position_embeddings": 128,
        "sliding_window": 6,
    }
    config = getattr(transformers, f"{family}Config")(**sizes | more)
    made = getattr(transformers, f"{family.removesuffix('Text')}ForCausalLM")
    with torch.random.fork_rng():
        torch.manual_seed(0)
        kernel = "eager" if family in ("Gemma2", "GptOss") else "sdpa"
        return made._from_config(config, attn_implementation=kernel).eval()


FAMILIES: dict[str, Callable[[], Any]] = {
    "mistral": lambda: small("Mistral"),
    "gemma2": lambda: small("Gemma2", query_pre_attn_scalar=8),
    "gpt-oss": lambda: small(
        "GptOss",
        num_local_experts=2,
        num_experts_per_tok=1,
        rope_parameters={"rope_type": "default", "rope_theta": 10_000.0},
    ),
    "llama4": lambda: small(
        "Llama4Text", attention_chunk_size=5, num_local_experts=2, intermediate_size_mlp=48
    ),
}


@pytest.fixture(autouse=True)
def at_any_length(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tap, "LAZY", 0)


def reader(real: Tensor, found: list[str]) -> Callable:
    """Compare each call with its own dense pattern and output."""

    def visit(module: Any, number: int, call: Any) -> None:
        attention = to_attention(call, real, None)
        assert attention.bias is None, "a matrix was handed on"
        kind = "relative " if attention.relative_bias is not None else ""
        kind += "ranges" if attention.ranges is not None else f"window {attention.window}"
        found.append(kind)
        dense = call.pattern()
        mask = real[:, None, :, None]
        torch.testing.assert_close(reference.pattern(attention) * mask, dense * mask)
        for backend in ("chunked", "cpu"):
            z = attention_statistics(attention, [Output()], backend=backend)["output"]
            torch.testing.assert_close(z * mask, call.z * mask, rtol=1e-4, atol=1e-5)

    return visit


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("inputs", ["plain", "left", "right", "packed"])
def test_families_hand_their_kernels_structure(family, inputs) -> None:
    module = FAMILIES[family]()
    ids = torch.randint(3, 50, (2, N), generator=torch.Generator().manual_seed(1))
    real = {"left": LEFT, "right": RIGHT}.get(inputs, torch.ones(2, N, dtype=torch.bool))
    given: dict[str, Any] = {"attention_mask": real.long()}
    if inputs == "packed":
        given = {"position_ids": POSITIONS}
    found: list[str] = []
    with torch.no_grad(), tapped(module, reader(real, found), watch=False):
        module(input_ids=ids, use_cache=False, **given)
    assert len(found) == 2
    if inputs == "packed" and family != "gpt-oss":  # whose mask is made without positions
        assert set(found) == {"ranges"}


def test_relative_biases_of_t5() -> None:
    sizes = {"d_model": 32, "d_kv": 8, "d_ff": 48, "num_layers": 2, "num_heads": 4}
    config = transformers.T5Config(vocab_size=50, decoder_start_token_id=0, **sizes)
    module = transformers.T5ForConditionalGeneration._from_config(config).eval()
    ids = torch.randint(3, 50, (2, N), generator=torch.Generator().manual_seed(1))
    found: list[str] = []
    everything = torch.ones(2, N, dtype=torch.bool)
    with torch.no_grad(), tapped(module, reader(everything, found), watch=False):
        module(input_ids=ids, decoder_input_ids=ids, use_cache=False)
    assert found == ["relative window None"] * 6


@pytest.mark.parametrize("family", FAMILIES)
def test_a_fused_score_builds_no_mask_and_leaves_the_numbers(family, monkeypatch) -> None:
    module = FAMILIES[family]()
    ids = torch.randint(3, 50, (2, N), generator=torch.Generator().manual_seed(1)).tolist()
    metrics = ["induction", "previous_token", "entropy", "local_window"]
    model = interp.load(module, name=family)
    want = interp.score(model, metrics, ids, null="none", engine="stored").to_pandas()
    monkeypatch.setattr(LazyMask, "whole", lambda _: pytest.fail("the mask was built"))
    found = interp.score(model, metrics, ids, null="none", engine="fused").to_pandas()
    torch.testing.assert_close(
        torch.tensor(found["score"].to_numpy()),
        torch.tensor(want["score"].to_numpy()),
        rtol=1e-4,
        atol=1e-5,
        equal_nan=True,
    )


def test_streamed_leaves_the_run_bitwise_as_it_was(monkeypatch) -> None:
    module = FAMILIES["mistral"]()
    ids = torch.randint(3, 50, (2, N), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        want = module(input_ids=ids, use_cache=False).logits
        with tapped(module, lambda *_: None, watch=False):
            found = module(input_ids=ids, use_cache=False).logits
    assert torch.equal(found, want)


@pytest.mark.parametrize("kind", ["prefix", "a pattern with holes"])
def test_masks_of_the_caller(kind) -> None:
    module = FAMILIES["mistral"]()
    ids = torch.randint(3, 50, (1, N), generator=torch.Generator().manual_seed(1))
    mask = torch.ones(1, 1, N, N, dtype=torch.bool).tril()
    if kind == "prefix":
        mask[..., :6] = True
    else:
        mask[:, :, 8:, 4] = False
    calls = []

    def visit(module: Any, number: int, call: Any) -> None:
        attention = to_attention(call, torch.ones(1, N, dtype=torch.bool), None)
        calls.append(attention)
        for backend in ("reference", "chunked", "cpu"):
            z = attention_statistics(attention, [Output()], backend=backend)["output"]
            torch.testing.assert_close(z, call.z, rtol=1e-4, atol=1e-5)

    with torch.no_grad(), tapped(module, visit, watch=False):
        module(input_ids=ids, attention_mask=mask, use_cache=False)
    assert all((call.ranges is None) == (kind == "a pattern with holes") for call in calls)


@pytest.mark.parametrize("engine", ["stored", "streamed", "fused"])
def test_a_token_that_sees_no_key_is_refused_by_name(engine) -> None:
    model = interp.load(FAMILIES["mistral"](), name="tiny")
    ids = torch.randint(3, 50, (1, N), generator=torch.Generator().manual_seed(1))
    mask = torch.ones(1, 1, N, N, dtype=torch.bool).tril()
    mask[:, :, 7] = False
    given = {"input_ids": ids, "attention_mask": mask}
    with pytest.raises(
        StatisticsError,
        match=r"tiny, decoder\.0: the mask hides every key from token 7 of prompt 0",
    ):
        interp.score(model, ["entropy"], given, null="none", engine=engine)
