class NAME(nn.Module):
    """ID, a plugin: write its equation in forward."""

    def __init__(ARGUMENTS):
        super().__init__()
        # <parameters>

    def forward(self, INPUTS):
        raise NotImplementedError("ID: write the norm's equation here")
