"""Models that the hub does not give: why, and what to do, in one line."""

from __future__ import annotations

import importlib

import pytest
from huggingface_hub import errors

import interp
from interp.core.errors import LoadError

# Releases of huggingface_hub differ in the package whose errors theirs derive from.
http = importlib.import_module(errors.HfHubHTTPError.__bases__[0].__module__.partition(".")[0])


def refused(status: int, kind: type[errors.HfHubHTTPError]) -> Exception:
    request = http.Request("GET", "https://huggingface.co/owner/model")
    return kind("refused", response=http.Response(status, request=request))


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (refused(403, errors.GatedRepoError), r"granted on its page https://huggingface.co/owner"),
        (refused(404, errors.RepositoryNotFoundError), "nor a model of the hub that you may see"),
        (refused(404, errors.RevisionNotFoundError), "has no revision 'step9'"),
        (errors.LocalEntryNotFoundError("not there"), "the hub cannot be reached .* with the netw"),
        (OSError("disk error"), r"hub or its cache can give \(.*disk"),
    ],
    ids=["gated", "private", "revision", "offline", "other"],
)
def test_what_the_hub_refuses_is_told_apart(
    error: Exception, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from transformers import AutoConfig

    def fail(*_: object, **__: object) -> None:
        raise OSError(f"We could not get it: {error}") from error

    monkeypatch.delenv("HF_TOKEN", raising=False)
    monkeypatch.setattr(AutoConfig, "from_pretrained", fail)
    with pytest.raises(LoadError, match=message) as told:
        interp.load("owner/model", revision="step9")
    assert "\n" not in str(told.value)
    if "token" in str(told.value):
        assert "no token is set: set HF_TOKEN, or run `hf auth login`" in str(told.value)
        monkeypatch.setenv("HF_TOKEN", "hf_x")
        with pytest.raises(LoadError, match="a token is set, which may lack the right"):
            interp.load("owner/model", revision="step9")
