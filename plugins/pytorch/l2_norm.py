class L2Norm(nn.Module):
    """y = scale * x / max(|x|, eps); a row of zeros stays one."""

    def __init__(self, dim, eps=0, scale=1):
        super().__init__()
        self.eps = eps
        self.scale = scale

    def forward(self, x):
        return self.scale * x / x.norm(dim=-1, keepdim=True).clamp(min=max(self.eps, 1e-30))
