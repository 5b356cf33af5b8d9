class ScaleNorm(nn.Module):
    """y = scale * x / max(|x|, eps), with one learned number."""

    def __init__(self, dim, eps=1e-05):
        super().__init__()
        self.eps = eps
        self.scale = nn.Parameter(torch.full((), math.sqrt(dim)))

    def forward(self, x):
        return self.scale * x / x.norm(dim=-1, keepdim=True).clamp(min=self.eps)
