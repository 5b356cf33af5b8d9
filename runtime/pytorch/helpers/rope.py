def rope(x, n_head, base, dims=0, interleaved=False, frequencies=None, magnitude=1):
    """Rotates pairs of the first `dims` channels of each head by angles that grow with the position."""
    x = x.unflatten(-1, (n_head, -1))
    dims = dims or x.shape[-1]
    pairs = torch.arange(0, dims, 2, dtype=torch.float64, device=x.device)
    turns = base ** (-pairs / dims) if frequencies is None else pairs.new_tensor(frequencies)
    angles = torch.arange(x.shape[1], device=x.device)[:, None] * turns
    cos, sin = ((magnitude * f(angles)).float()[:, None] for f in (torch.cos, torch.sin))
    turning, rest = x[..., :dims], x[..., dims:]
    a, b = (turning[..., ::2], turning[..., 1::2]) if interleaved else turning.chunk(2, -1)
    a, b = a * cos - b * sin, b * cos + a * sin
    turned = torch.stack((a, b), -1).flatten(-2) if interleaved else torch.cat((a, b), -1)
    return torch.cat((turned.type_as(x), rest), -1).flatten(-2)
