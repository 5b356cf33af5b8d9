class NAME(nn.Module):
    # <doc>
    def __init__(ARGUMENTS):
        super().__init__()
        # <init>

    SIGNATURE
        # <forward>
