class GroupNorm(nn.Module):
    """Layer-normalizes each of `groups` equal parts of a token's channels: y = weight * h + bias."""

    def __init__(self, dim, groups=1, eps=1e-05, affine=True):
        super().__init__()
        self.groups = groups
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(dim)) if affine else None
        self.bias = nn.Parameter(torch.zeros(dim)) if affine else None

    def forward(self, x):
        parts = x.unflatten(-1, (self.groups, -1))
        y = F.layer_norm(parts, parts.shape[-1:], eps=self.eps).flatten(-2)
        return y if self.weight is None else y * self.weight + self.bias
