def route(logits, top_k, kind, correction=None, n_group=1, top_group=1, renormalize=False, scale=1):
    """Returns the weights and the indices of each token's experts, [tokens, top_k]."""
    logits = logits.flatten(0, -2)
    scores = torch.sigmoid(logits) if kind == "sigmoid" else torch.softmax(logits, -1)
    ranked = scores if correction is None else scores + correction
    if top_group < n_group:
        groups = ranked.unflatten(-1, (n_group, -1))
        best = groups.topk(1 if correction is None else min(2, groups.shape[-1]), -1).values.sum(-1)
        kept = torch.zeros_like(best).scatter(-1, best.topk(top_group, -1).indices, 1)
        ranked = groups.masked_fill(kept[..., None] == 0, -math.inf).flatten(-2)
    chosen = ranked.topk(top_k, -1).indices
    weights = (logits if kind == "softmax_of_top_k" else scores).gather(-1, chosen)
    if kind == "softmax_of_top_k":
        weights = torch.softmax(weights, -1)
    if renormalize:
        weights = weights / (weights.sum(-1, keepdim=True) + 1e-20)
    return scale * weights, chosen
