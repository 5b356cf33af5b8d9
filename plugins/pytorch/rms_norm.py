class RMSNorm(nn.Module):
    """y = weight * x / sqrt(mean(x^2) + eps); with unit_offset the gain is 1 + weight."""

    def __init__(self, dim, eps=1e-05, affine=True, unit_offset=False):
        super().__init__()
        self.eps = eps
        self.unit_offset = unit_offset
        self.weight = nn.Parameter(torch.full((dim,), 0.0 if unit_offset else 1.0)) if affine else None

    def forward(self, x):
        y = x.to(torch.promote_types(x.dtype, torch.float32))
        y = y * torch.rsqrt(y.square().mean(-1, keepdim=True) + self.eps)
        if self.weight is not None:
            y = y * (1 + self.weight if self.unit_offset else self.weight)
        return y.type_as(x)
