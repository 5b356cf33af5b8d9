class Derf(nn.Module):
    """y = weight * erf(alpha * x + shift) + bias, alpha and shift learned numbers."""

    def __init__(self, dim, alpha_init=0.5, shift_init=0, affine=True, bias=True):
        super().__init__()
        self.alpha = nn.Parameter(torch.full((), float(alpha_init)))
        self.shift = nn.Parameter(torch.full((), float(shift_init)))
        self.weight = nn.Parameter(torch.ones(dim)) if affine else None
        self.bias = nn.Parameter(torch.zeros(dim)) if affine and bias else None

    def forward(self, x):
        y = torch.erf(self.alpha * x + self.shift)
        if self.weight is not None:
            y = y * self.weight
        return y if self.bias is None else y + self.bias
