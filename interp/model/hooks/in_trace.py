"""Functions that run on the remote machine: attention calls in, numbers per head out.

They are sent as source code and run where this package is not installed, so they import nothing and
use only methods of the given tensors. Their definitions equal those of `interp.model.calls.call`
and `interp_kernels.reference`; the tests compare them.
"""

from __future__ import annotations


def call_parts(given):
    """Return the tensors of an operation that is an attention call; None for other operations.

    Every call of transformers' attention interface has the module, q, k, v and a mask, in this
    order or by these names.
    """
    args, named = given
    arguments = {}
    arguments.update(zip(("module", "query", "key", "value", "attention_mask"), args, strict=False))
    arguments.update(named)
    if not all(getattr(arguments.get(n), "ndim", 0) == 4 for n in ("query", "key", "value")):
        return None
    module, query, mask = arguments["module"], arguments["query"], arguments.get("attention_mask")
    kernel = str(getattr(module.config, "_attn_implementation", "eager"))
    unread = mask is not None and getattr(mask, "ndim", 0) != 4
    if unread or "fla" in kernel or "flex" in kernel or "/" in kernel:
        raise ValueError(f"the kernel {kernel!r} has a mask that cannot be read; use sdpa or eager")
    causal = arguments.get("is_causal")
    causal = getattr(module, "is_causal", True) if causal is None else causal
    scale, bias = arguments.get("scaling"), arguments.get("position_bias")
    sinks = arguments.get("s_aux") if arguments.get("s_aux") is not None else arguments.get("sinks")
    return {  # detached from the autograd graph: numbers are returned, not gradients
        "q": query.detach(),
        "k": arguments["key"].detach(),
        "v": arguments["value"].detach(),
        "mask": mask,
        "scale": float(query.shape[-1] ** -0.5 if scale is None else scale),
        # eager functions do not hide later positions themselves: their mask does
        "causal": kernel != "eager" and bool(causal) and mask is None and query.shape[2] > 1,
        "bias": None if bias is None else bias.detach(),
        "softcap": arguments.get("softcap"),
        "sinks": None if sinks is None else sinks.detach(),
    }


def pattern_rows(call, start, stop):
    """Return `[batch, head, row, key]` pattern in float32 and visible keys, of some rows."""
    q, k = call["q"][:, :, start:stop], call["k"]
    q, k = (q.float(), k.float()) if q.element_size() < 4 else (q, k)
    batch, heads, rows, width = q.shape
    groups, keys = k.shape[1], k.shape[2]
    s = q.reshape(batch, groups, -1, width) @ k.transpose(-1, -2)
    s = s.reshape(batch, heads, rows, keys) * call["scale"]
    if call["softcap"] is not None:
        s = (s / call["softcap"]).tanh() * call["softcap"]
    bias, mask = call["bias"], call["mask"]
    if bias is not None:
        s = s + (bias if bias.shape[2] == 1 else bias[:, :, start:stop])[..., :keys].to(s.dtype)
    seen = s.new_ones(s.shape).bool()
    key = s.new_ones(keys).cumsum(0) - 1
    query = s.new_ones(rows).cumsum(0) - 1 + start
    if call["causal"]:
        seen = seen & (key <= query[:, None])
    if mask is not None:
        mask = (mask if mask.shape[2] == 1 else mask[:, :, start:stop])[..., :keys]
        if mask.is_floating_point():
            hidden = mask < -1e30 if mask.element_size() >= 4 else mask < -3e4
            seen, s = seen & ~hidden, s + mask.masked_fill(hidden, 0).to(s.dtype)
        else:
            seen = seen & mask
    s = s.masked_fill(~seen, -1e30)
    if call["sinks"] is not None:
        sink = call["sinks"].to(s.dtype).reshape(1, -1, 1)
        total = s.logsumexp(-1).logaddexp(sink)
        return (s - total[..., None]).exp() * seen, seen, query[:, None], key
    return s.softmax(-1) * seen, seen, query[:, None], key


def sketch(given, output):
    """Return sizes of an attention call, causality, and the error of pattern·v against z.

    None for operations other than attention calls.
    """
    call = call_parts(given)
    if call is None:
        return None
    out = output[0].detach()
    q, k, v = call["q"], call["k"], call["v"]
    pattern, seen, query, key = pattern_rows(call, 0, q.shape[2])
    z = out.reshape(out.shape[0], out.shape[1], q.shape[1], -1).transpose(1, 2).to(pattern.dtype)
    groups = v.shape[1]
    mixed = pattern.reshape(pattern.shape[0], groups, -1, pattern.shape[-1]) @ v.to(pattern.dtype)
    error = (mixed.reshape(z.shape) - z).abs().max() / z.abs().max().clamp_min(1e-30)
    square = q.shape[2] == k.shape[2] and k.shape[2] > 1
    ahead = bool((seen & (key > query)).any()) if square else True
    back = bool((seen & (key < query)).any()) if square else False
    return {
        "n_heads": q.shape[1],
        "n_kv_heads": v.shape[1],
        "d_head": q.shape[-1],
        "d_v": v.shape[-1],
        "queries": q.shape[2],
        "keys": k.shape[2],
        "causal": back and not ahead,
        "error": float(error),
        "finite": bool(out.isfinite().all()),
    }


def row_means(given, output, asked, real, block):
    """Return per prompt and head the mean of each statistic over counted rows, else NaN."""
    call, out = call_parts(given), output[0]
    if call is None:
        raise ValueError("the operation is not an attention call: its label has changed")
    q = call["q"]
    totals = {}
    for start in range(0, q.shape[2], block):
        stop = min(start + block, q.shape[2])
        pattern, seen, query, key = pattern_rows(call, start, stop)
        for label, what, target in asked:
            counted = real.to(q.device)[:, None, start:stop]
            if what == "mass":
                hit = seen & target.to(q.device)[:, None, start:stop]
                value, counted = (pattern * hit).sum(-1), counted & hit.any(-1)
            elif what == "entropy":
                value = -(pattern * pattern.clamp_min(1e-38).log()).sum(-1)
            elif what == "distance":
                value = (pattern * (query - key).abs()).sum(-1)
            else:
                value = pattern.amax(-1)
            value, counted = value.double(), counted.expand_as(value).double()
            before = totals.get(label, (0, 0))
            totals[label] = before[0] + (value * counted).sum(-1), before[1] + counted.sum(-1)
    means = {label: (total / number).cpu() for label, (total, number) in totals.items()}
    return {"finite": bool(out.isfinite().all()), "means": means}


def last_row(given, output, asked):
    """Return statistics of the last query alone, `[batch, head]` each, for a generation step."""
    call = call_parts(given)
    if call is None:
        raise ValueError("the operation is not an attention call: its label has changed")
    last = call["q"].shape[2]
    # with a cache there is one query, after all keys
    pattern, _, _, key = pattern_rows(call, last - 1, last)
    pattern = pattern[:, :, 0]
    back = (key.shape[0] - 1 - key).abs()
    statistics = {}
    for what in asked:
        if what == "entropy":
            value = -(pattern * pattern.clamp_min(1e-38).log()).sum(-1)
        elif what == "distance":
            value = (pattern * back).sum(-1)
        elif what == "first_token":
            value = pattern[..., 0]
        else:
            value = pattern.amax(-1)
        statistics[what] = value.double().cpu()
    return statistics


def edit_z(given, output, steps):
    """Change the heads' outputs of an attention call in place, before the model reads them."""
    if call_parts(given) is None:
        raise ValueError("the operation is not an attention call: its label has changed")
    z = output[0]
    for step in steps:
        gate = step["gate"].to(z.device, z.dtype)[:, None, :, None]
        other = z.new_zeros(())
        if step["mean"]:
            real = step["real"].to(z.device, z.dtype)[:, :, None, None]
            other = (z * real).sum((0, 1), keepdim=True) / real.sum()
        elif step["value"] is not None:
            other = step["value"].to(z.device, z.dtype).transpose(1, 2)
        mixed = z * gate + other * (1 - gate)
        changed = z.where(gate == 1, other.expand_as(z).where(gate == 0, mixed))
        if step["where"] is not None:
            changed = changed.where(step["where"].to(z.device)[:, :, None, None], z)
        z.copy_(changed)


def z_totals(given, output, real, by_position):
    """Return the sum of z over counted queries, `[head, 1 or query, d_v]` in float64."""
    if call_parts(given) is None:
        raise ValueError("the operation is not an attention call: its label has changed")
    z = output[0].detach().transpose(1, 2).double()
    kept = z * real.to(z.device)[:, None, :, None]
    total = kept.sum(0) if by_position else kept.sum((0, 2))[:, None]
    return {"finite": bool(z.isfinite().all()), "total": total.cpu()}


def logits_of(output):
    """Return the logits of a model's output, or its last hidden state without a head."""
    for name in ("logits", "last_hidden_state"):
        value = getattr(output, name, None)
        if value is not None:
            return value.detach().cpu()
    return output[0].detach().cpu()
