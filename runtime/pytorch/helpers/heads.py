def heads(x, n_head, group=1):
    """Returns [batch, heads, tokens, head_dim], with each head repeated `group` times."""
    x = x.unflatten(-1, (n_head, -1)).transpose(1, 2)
    return x if group == 1 else x.repeat_interleave(group, 1)
