class CausalConv(nn.Module):
    """y_t = sum over i of weight_i * x_{t-i}, in each channel."""

    def __init__(self, channels, taps, bias=False):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(channels, taps))
        self.bias = nn.Parameter(torch.empty(channels)) if bias else None

    def forward(self, x):
        channels, taps = self.weight.shape
        padded = F.pad(x.transpose(1, 2), (taps - 1, 0))
        return F.conv1d(padded, self.weight.flip(1)[:, None], self.bias, groups=channels).transpose(1, 2)
