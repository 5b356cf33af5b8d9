def visible(q, window=0):
    """Returns a mask [tokens, tokens], true where a query sees a key."""
    tokens = torch.arange(q.shape[-2], device=q.device)
    distance = tokens[:, None] - tokens
    return (distance >= 0) & (distance < window) if window else distance >= 0
