def concat(*parts):
    """Concatenates channels. A part that is the same for all tokens is repeated."""
    parts = [part.reshape(1) if part.dim() == 0 else part for part in parts]
    rows = torch.broadcast_shapes(*(part.shape[:-1] for part in parts))
    return torch.cat([part.expand(*rows, part.shape[-1]) for part in parts], -1)
