def heads(x, n_head, group=1):
    """Returns [batch, heads, tokens, head_dim], with each head repeated `group` times."""
    return x.unflatten(-1, (n_head, -1)).transpose(1, 2).repeat_interleave(group, 1)
