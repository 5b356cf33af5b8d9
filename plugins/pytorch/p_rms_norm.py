class PRMSNorm(nn.Module):
    """y = weight * x / sqrt(mean(x^2) + eps), with the mean over the first p * dim channels only."""

    def __init__(self, dim, p=0.0625, eps=1e-05):
        super().__init__()
        self.measured = math.ceil(p * dim)
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(dim))

    def forward(self, x):
        mean = x[..., : self.measured].square().mean(-1, keepdim=True)
        return self.weight * x * torch.rsqrt(mean + self.eps)
