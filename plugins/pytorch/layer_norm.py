class LayerNorm(nn.Module):
    """y = weight * (x - mean(x)) / sqrt(var(x) + eps) + bias"""

    def __init__(self, dim, eps=1e-05, affine=True, bias=True):
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(dim)) if affine else None
        self.bias = nn.Parameter(torch.zeros(dim)) if affine and bias else None

    def forward(self, x):
        return F.layer_norm(x, x.shape[-1:], self.weight, self.bias, self.eps)
