def drop_path(x, p, training):
    """Drops whole sequences (stochastic depth)."""
    if not training:
        return x
    return x * torch.empty(x.shape[0], 1, 1, device=x.device).bernoulli_(1 - p) / (1 - p)
