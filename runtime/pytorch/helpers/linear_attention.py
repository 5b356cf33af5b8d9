def linear_attention(q, k, v, n_head, n_key_head, decay=None, beta=None):
    """Returns o_t = S_t q_t, with S_t = S_{t-1} diag(a_t) + b_t (v_t - S_{t-1} diag(a_t) k_t) k_t' if there is
    beta, else S_t = S_{t-1} diag(a_t) + v_t k_t'. decay is log a_t. For long sequences use a kernel instead."""
    group = n_head // n_key_head
    q, k = (x.unflatten(-1, (n_key_head, -1)).repeat_interleave(group, 2) for x in (q, k))
    v = v.unflatten(-1, (n_head, -1))
    state = v.new_zeros(v.shape[0], n_head, v.shape[-1], k.shape[-1])
    outputs = []
    for t in range(v.shape[1]):
        if decay is not None:
            state = state * decay[:, t].unflatten(-1, (n_head, -1)).exp()[:, :, None]
        new = v[:, t]
        if beta is not None:
            new = beta[:, t, :, None] * (new - (state @ k[:, t, :, :, None]).squeeze(-1))
        state = state + new[..., None] * k[:, t, :, None]
        outputs.append((state @ q[:, t, :, :, None]).squeeze(-1))
    return torch.stack(outputs, 1).flatten(2)
