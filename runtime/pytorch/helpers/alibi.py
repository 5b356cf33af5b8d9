def alibi(q, factor=1):
    """Returns what ALiBi subtracts from the scores, [heads, tokens, tokens]."""
    n = q.shape[1]
    power = 2 ** math.floor(math.log2(n))
    slopes = [2 ** (-8 * (i + 1) / power) for i in range(power)]
    slopes += [2 ** (-4 * (i + 1) / power) for i in range(0, 2 * (n - power), 2)]
    tokens = torch.arange(q.shape[-2], device=q.device)
    return factor * torch.tensor(slopes, device=q.device)[:, None, None] * (tokens[:, None] - tokens)
