"""The textbook formula in fp64 over the dequantised cache: what every kernel here is judged against."""

import torch

from wavewise.attention.layout import HEAD_DIM, dequantise, gather


def _keys(cache: torch.Tensor, indices: torch.Tensor, length: int) -> torch.Tensor:
    """The dequantised tokens, fp64 [n, 512], of the valid ones among the leftmost `length` indices."""
    chosen = indices[: max(length, 0)]
    return dequantise(gather(cache, chosen[chosen >= 0]))


def reference_decode(
    q: torch.Tensor,
    k_cache: torch.Tensor,
    indices: torch.Tensor,
    topk_length: torch.Tensor | None = None,
    attn_sink: torch.Tensor | None = None,
    softmax_scale: float | None = None,
    extra_k_cache: torch.Tensor | None = None,
    extra_indices: torch.Tensor | None = None,
    extra_topk_length: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """softmax(Q K^T * scale) K over both scopes as one set of keys, times 1 / (1 + exp(sink - lse)).

    Args:
        q: [B, s_q, H, 512].
        k_cache: footer layout, [pages, page_size, 1, 584].
        indices: int [B, s_q, topk]; page * page_size + offset, -1 is no key.
        topk_length: int [B]; only the leftmost so many indices count. None: all.
        attn_sink: [H]; None: no sink.
        softmax_scale: None: 512^-0.5.
        extra_k_cache: second scope, a cache of its own (its page size may differ).
        extra_indices: int [B, s_q, extra_topk].
        extra_topk_length: int [B].

    Returns:
        out fp64 [B, s_q, H, 512] and lse fp64 [B, H, s_q], natural log, without the sink. A query without a
        valid key has output 0 and lse -inf.
    """
    batch, queries, heads, _ = q.shape
    scale = HEAD_DIM**-0.5 if softmax_scale is None else softmax_scale
    out = torch.zeros((batch, queries, heads, HEAD_DIM), dtype=torch.float64, device=q.device)
    lse = torch.full((batch, heads, queries), float("-inf"), dtype=torch.float64, device=q.device)
    sink = None if attn_sink is None else attn_sink.double()
    for b in range(batch):
        length = indices.shape[2] if topk_length is None else int(topk_length[b])
        for s in range(queries):
            keys = _keys(k_cache, indices[b, s], length)
            if extra_k_cache is not None and extra_indices is not None:
                more = extra_indices.shape[2] if extra_topk_length is None else int(extra_topk_length[b])
                keys = torch.cat([keys, _keys(extra_k_cache, extra_indices[b, s], more)])
            if keys.shape[0] == 0:
                continue
            scores = q[b, s].double() @ keys.T * scale
            lse[b, :, s] = torch.logsumexp(scores, dim=1)
            out[b, s] = torch.softmax(scores, dim=1) @ keys
            if sink is not None:
                out[b, s] /= (1 + torch.exp(sink - lse[b, :, s]))[:, None]
    return out, lse
