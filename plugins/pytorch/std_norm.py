class StdNorm(nn.Module):
    """y = weight * (x - mean(x)) / (std(x) + eps) + bias"""

    def __init__(self, dim, eps=1e-06, unbiased=True):
        super().__init__()
        self.eps = eps
        self.unbiased = unbiased
        self.weight = nn.Parameter(torch.ones(dim))
        self.bias = nn.Parameter(torch.zeros(dim))

    def forward(self, x):
        deviation = x.std(-1, keepdim=True, unbiased=self.unbiased)
        return self.weight * (x - x.mean(-1, keepdim=True)) / (deviation + self.eps) + self.bias
