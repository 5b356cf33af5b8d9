def softmax(*scores):
    """Softmax over the operands, for each channel; the results are concatenated."""
    scores = [score.reshape(1) if score.dim() == 0 else score for score in scores]
    return torch.softmax(torch.stack(torch.broadcast_tensors(*scores), -2), -2).flatten(-2)
