class DyT(nn.Module):
    """y = weight * tanh(alpha * x) + bias, alpha one learned number."""

    def __init__(self, dim, alpha_init=0.5, affine=True, bias=True):
        super().__init__()
        self.alpha = nn.Parameter(torch.full((), float(alpha_init)))
        self.weight = nn.Parameter(torch.ones(dim)) if affine else None
        self.bias = nn.Parameter(torch.zeros(dim)) if affine and bias else None

    def forward(self, x):
        y = torch.tanh(self.alpha * x)
        if self.weight is not None:
            y = y * self.weight
        return y if self.bias is None else y + self.bias
