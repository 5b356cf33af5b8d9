class Dot(nn.Module):
    """A projection to one number; its weight is a vector."""

    def __init__(self, dim, bias=False):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(dim))
        self.bias = nn.Parameter(torch.empty(1)) if bias else None

    def forward(self, x):
        y = (x * self.weight).sum(-1, keepdim=True)
        return y if self.bias is None else y + self.bias
